"""Find and end a process tree from user space.

A tree is what carries the marker that the leader got in its environment, what is in the leader's session, and what
descends from either. A process that leaves the session *and* clears its environment *and* outlives its parent is not
seen: that is why the local world reports ``kill.tree`` as partial.

All functions block (they read /proc) and belong into a worker thread. Without a free descriptor they raise OSError
(EMFILE, ENFILE): what could not be looked for is not gone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Final

from execworld.seams.values import record

MARKER_NAME: Final = b"EXECWORLD_TREE"
"""Environment variable that every process started by a local machine inherits."""

OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_SWEEP_LIMIT_S: Final = 20.0
_SETTLE_S: Final = 0.002
_SIGNAL_ROUNDS: Final = 16
_LOOKS: Final = threading.BoundedSemaphore(2)
"""Looks into /proc at a time. Each needs a few descriptors and all of a processor: many at once starve each other."""
_MAX_ENVIRONMENT_BYTES: Final = 4 * 1024 * 1024


@record
class Member:
    """A process, safe against reuse of its number."""

    pid: int
    start_ticks: int


@record
class Leader:
    """What identifies a tree.

    Attributes:
        pid: Process id of the leader, which is its session id too.
        marker: Value of the marker variable of its tree.
        not_before_ticks: When it was about to be started, by `now_ticks`. Nothing older can be of its tree.
    """

    pid: int
    marker: bytes
    not_before_ticks: int = 0


@record
class _ProcessRecord:
    member: Member
    parent: int
    group: int
    session: int
    alive: bool


def now_ticks() -> int:
    """The time in clock ticks since boot, never later than what a process that starts after this call will show."""
    if sys.platform != "linux":
        return 0
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 1_000_000_000 - 1


def start_ticks(pid: int) -> int:
    """Start time of a process in clock ticks since boot (proc(5), stat field 22); 0 when it is gone."""
    process = _read_record(pid)
    return process.member.start_ticks if process is not None else 0


def tree_members(leader: Leader, reaped: bool) -> list[Member]:
    """Every living process of the tree, zombies excluded. *reaped* tells whether the leader was waited for."""
    with _LOOKS:
        return _tree_members(leader, reaped)


def _tree_members(leader: Leader, reaped: bool) -> list[Member]:
    records = {process.member.pid: process for process in _all_records()}
    # The kernel does not reuse a number while a session bears it. If somebody else has it now, the session died out.
    session_is_ours = not reaped or leader.pid not in records
    found = {
        pid
        for pid, process in records.items()
        if (session_is_ours and process.session == leader.pid)
        # Most of what runs is older, and an environment costs more to read than all else that is read here.
        or (process.member.start_ticks >= leader.not_before_ticks and leader.marker in markers_of(pid))
    }
    return _living_with_descendants(records, found)


def marked_members(marker_prefix: bytes) -> list[Member]:
    """Every living process whose marker begins with *marker_prefix*, and its descendants."""
    with _LOOKS:
        return _marked_members(marker_prefix)


def _marked_members(marker_prefix: bytes) -> list[Member]:
    records = {process.member.pid: process for process in _all_records()}
    found = {pid for pid in records if any(marker.startswith(marker_prefix) for marker in markers_of(pid))}
    return _living_with_descendants(records, found)


def group_alive(leader_pid: int) -> bool:
    """Whether a living process is left in the process group or session of a leader that was just reaped."""
    try:
        os.killpg(leader_pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    try:
        records = _all_records()
    except OSError:
        return True  # out of descriptors: not proven gone
    # A group may consist of zombies that nobody reaps.
    return any(process.alive and leader_pid in (process.group, process.session) for process in records)


def signal_members(members: Iterable[Member], number: int) -> int:
    """Send a signal to each member that still is the same process; returns how many got it."""
    return sum(_signal_member(member, number) for member in members)


def signal_all(find: Callable[[], list[Member]], number: int) -> int:
    """Send a signal once to each process that *find* finds, until it finds no further one; returns how many got it.

    A process that was being forked while the others were found gets it in the next round. One that has a signal
    pending forks no more (fork(2) is restarted after the handler), so rounds are few unless the signal is ignored.
    """
    told: set[Member] = set()
    count = 0
    for _ in range(_SIGNAL_ROUNDS):
        fresh = [member for member in find() if member not in told]
        if not fresh:
            break
        count += signal_members(fresh, number)
        told.update(fresh)
    return count


def kill_members(find: Callable[[], list[Member]], limit_s: float = _SWEEP_LIMIT_S) -> list[Member]:
    """KILL what *find* finds until it finds nothing; returns what was still there when the time was up.

    New members are stopped first and killed only when a round finds no further ones: a stopped process does not fork,
    and one that is not killed yet keeps its place under a limit on processes, so a fork storm runs dry.

    Raises:
        OSError: there was no descriptor to look into /proc with, until the time was up.
    """
    deadline = time.monotonic() + limit_s
    while True:
        try:
            return _kill_until(find, deadline)
        except OSError as error:
            if error.errno not in OUT_OF_DESCRIPTORS or time.monotonic() >= deadline:
                raise
        time.sleep(_SETTLE_S)  # another thread will give one back


def _kill_until(find: Callable[[], list[Member]], deadline: float) -> list[Member]:
    while members := find() or find():  # within execve(2) a process shows no environment for a moment
        known: set[Member] = set()
        while (fresh := [m for m in members if m not in known]) and time.monotonic() < deadline:
            signal_members(fresh, signal.SIGSTOP)
            known.update(fresh)
            members = find()
        signal_members(known.union(members), signal.SIGKILL)
        if time.monotonic() >= deadline:
            return find()
        time.sleep(_SETTLE_S)  # a killed process needs a moment to leave the table
    return []


def open_pidfd(member: Member) -> int | None:
    """A descriptor that becomes readable when *member* ends; None when it is gone already (pidfd_open(2))."""
    if sys.platform != "linux":
        return None
    try:
        descriptor = os.pidfd_open(member.pid)
    except OSError as error:
        _pass_on_shortage(error)
        return None
    if start_ticks(member.pid) != member.start_ticks:
        os.close(descriptor)
        return None
    return descriptor


def markers_of(pid: int) -> list[bytes]:
    """The markers in the environment of a process; a world opened inside another one adds its own to the list."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as stream:
            environment = stream.read(_MAX_ENVIRONMENT_BYTES)
    except OSError as error:
        _pass_on_shortage(error)
        return []
    prefix = MARKER_NAME + b"="
    if prefix not in environment:
        return []
    values = [entry[len(prefix) :] for entry in environment.split(b"\0") if entry.startswith(prefix)]
    return [marker for value in values for marker in value.split(b":")]


def _signal_member(member: Member, number: int) -> bool:
    descriptor = open_pidfd(member)
    if descriptor is None or sys.platform != "linux":
        return False
    try:
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def _pass_on_shortage(error: OSError) -> None:
    """A process that cannot be looked at is gone, or not ours. One that could not be looked *for* may be alive."""
    if error.errno in OUT_OF_DESCRIPTORS:
        raise error


def _living_with_descendants(records: dict[int, _ProcessRecord], found: set[int]) -> list[Member]:
    children: dict[int, list[int]] = {}
    for pid, process in records.items():
        children.setdefault(process.parent, []).append(pid)
    pending = list(found)
    while pending:
        for child in children.get(pending.pop(), ()):
            if child not in found:
                found.add(child)
                pending.append(child)
    return [records[pid].member for pid in sorted(found) if records[pid].alive and pid != os.getpid()]


def _all_records() -> list[_ProcessRecord]:
    with contextlib.suppress(FileNotFoundError):
        return [
            process for name in os.listdir("/proc") if name.isdigit() and (process := _read_record(int(name)))
        ]
    return []


def _read_record(pid: int) -> _ProcessRecord | None:
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stream:
            text = stream.read(4096)
    except OSError as error:
        _pass_on_shortage(error)
        return None
    fields = text[text.rfind(b")") + 2 :].split()  # the name in parentheses may hold anything
    if len(fields) < 20:
        return None
    return _ProcessRecord(
        member=Member(pid, int(fields[19])),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        alive=fields[0] not in (b"Z", b"X", b"x"),
    )
