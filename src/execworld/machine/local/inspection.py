"""Whether a process is provably blocked reading its standard input (proc(5): syscall, mem, fdinfo).

The answer is True only on proof. Everything that cannot be read or is not known counts as False.
"""

from __future__ import annotations

import os
import platform
import re
import struct
from typing import Final

# Number of read, readv, poll, ppoll, select, pselect6, epoll_wait, epoll_pwait, epoll_pwait2 (asm/unistd.h)
_SYSCALLS: Final = {
    "x86_64": {
        0: "read", 19: "read", 7: "poll", 271: "poll", 23: "select", 270: "select",
        232: "epoll", 281: "epoll", 441: "epoll",
    },
    "aarch64": {63: "read", 65: "read", 73: "poll", 72: "select", 22: "epoll", 441: "epoll"},
}  # fmt: skip
_POLLIN: Final = 0x001 | 0x040  # POLLIN, POLLRDNORM
_MAX_POLLED: Final = 4096


def group_waits_for_input(group_id: int) -> bool:
    """Whether a thread of a process in the group is blocked reading descriptor 0, or waiting for it to be readable."""
    calls = _SYSCALLS.get(platform.machine())
    if calls is None:
        return False
    return any(_thread_waits(pid, tid, calls) for pid in _group_members(group_id) for tid in _threads(pid))


def _group_members(group_id: int) -> list[int]:
    members: list[int] = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb", buffering=0) as stream:
                text = stream.read(4096)
        except OSError:
            continue
        fields = text[text.rfind(b")") + 2 :].split()
        if len(fields) > 2 and int(fields[2]) == group_id:
            members.append(int(name))
    return members


def _threads(pid: int) -> list[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def _thread_waits(pid: int, tid: int, calls: dict[int, str]) -> bool:
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii") as stream:
            parts = stream.read().split()
        if len(parts) < 7:
            return False  # "running", or "-1 ..." outside of a system call
        kind = calls.get(int(parts[0]))
        arguments = [int(part, 16) for part in parts[1:7]]
        match kind:
            case "read":
                return arguments[0] == 0
            case "poll":
                return _polls_stdin(pid, arguments[0], arguments[1])
            case "select":
                return arguments[0] > 0 and arguments[1] != 0 and bool(_memory(pid, arguments[1], 1)[0] & 1)
            case "epoll":
                return _epoll_has_stdin(pid, arguments[0])
            case _:
                return False
    except (OSError, ValueError, IndexError, struct.error):
        return False


def _polls_stdin(pid: int, address: int, count: int) -> bool:
    if not 0 < count <= _MAX_POLLED:
        return False
    entries = struct.iter_unpack("=ihh", _memory(pid, address, count * 8))
    return any(descriptor == 0 and events & _POLLIN for descriptor, events, _ in entries)


def _epoll_has_stdin(pid: int, epoll_fd: int) -> bool:
    with open(f"/proc/{pid}/fdinfo/{epoll_fd}", encoding="ascii") as stream:
        watched = re.findall(r"^tfd:\s*0\s+events:\s*([0-9a-f]+)", stream.read(), re.MULTILINE)
    return any(int(events, 16) & _POLLIN for events in watched)


def _memory(pid: int, address: int, size: int) -> bytes:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)
