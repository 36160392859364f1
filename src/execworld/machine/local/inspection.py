"""Whether a process is provably blocked reading its terminal (proc(5): syscall, mem, fd, fdinfo).

The answer is True only on proof. Everything that cannot be read or is not known counts as False.
"""

from __future__ import annotations

import os
import platform
import re
import stat
import struct
from collections.abc import Iterable
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
_CONTROLLING_TERMINAL: Final = os.makedev(
    5, 0
)  # /dev/tty; a process of the foreground group has just the one


def group_waits_for_input(group_id: int, terminal_device: int) -> bool:
    """Whether a thread of a process in the group is blocked reading the terminal, or waiting for it to be readable.

    Args:
        group_id: The process group.
        terminal_device: Device number of the terminal. It is recognised under every descriptor, as ``/dev/tty`` too,
            and a standard input that leads elsewhere (``producer | consumer``) is not taken for it.
    """
    calls = _SYSCALLS.get(platform.machine())
    if calls is None:
        return False
    return any(
        _thread_waits(pid, tid, calls, frozenset((terminal_device, _CONTROLLING_TERMINAL)))
        for pid in _group_members(group_id)
        for tid in _threads(pid)
    )


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


def _thread_waits(pid: int, tid: int, calls: dict[int, str], terminals: frozenset[int]) -> bool:
    try:
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii") as stream:
            parts = stream.read().split()
        if len(parts) < 7:
            return False  # "running", or "-1 ..." outside of a system call
        kind = calls.get(int(parts[0]))
        arguments = [int(part, 16) for part in parts[1:7]]
        return any(_is_terminal(pid, descriptor, terminals) for descriptor in _awaited(pid, kind, arguments))
    except (OSError, ValueError, IndexError, struct.error):
        return False


def _is_terminal(pid: int, descriptor: int, terminals: frozenset[int]) -> bool:
    status = os.stat(f"/proc/{pid}/fd/{descriptor}")
    return stat.S_ISCHR(status.st_mode) and status.st_rdev in terminals


def _awaited(pid: int, kind: str | None, arguments: list[int]) -> Iterable[int]:
    """Descriptors whose readability a blocked system call waits for."""
    match kind:
        case "read":
            return (arguments[0],)
        case "poll":
            return _polled(pid, arguments[0], arguments[1])
        case "select":
            return _selected(pid, arguments[0], arguments[1])
        case "epoll":
            return _watched(pid, arguments[0])
        case _:
            return ()


def _polled(pid: int, address: int, count: int) -> list[int]:
    if not 0 < count <= _MAX_POLLED:
        return []
    entries = struct.iter_unpack("=ihh", _memory(pid, address, count * 8))
    return [descriptor for descriptor, events, _ in entries if descriptor >= 0 and events & _POLLIN]


def _selected(pid: int, count: int, address: int) -> list[int]:
    if address == 0 or not 0 < count <= _MAX_POLLED:
        return []
    bits = _memory(pid, address, (count + 7) // 8)
    return [descriptor for descriptor in range(count) if bits[descriptor // 8] >> descriptor % 8 & 1]


def _watched(pid: int, epoll_fd: int) -> list[int]:
    with open(f"/proc/{pid}/fdinfo/{epoll_fd}", encoding="ascii") as stream:
        watched = re.findall(r"^tfd:\s*(\d+)\s+events:\s*([0-9a-f]+)", stream.read(), re.MULTILINE)
    return [int(descriptor) for descriptor, events in watched if int(events, 16) & _POLLIN]


def _memory(pid: int, address: int, size: int) -> bytes:
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(descriptor, size, address)
    finally:
        os.close(descriptor)
