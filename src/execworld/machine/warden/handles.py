"""What this side knows of a handle that sends something unasked."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import anyio

from execworld.machine.base import STDERR, STDOUT, ExitStatus, WatchRecord
from execworld.machine.operations import Spawn
from execworld.machine.values import Redirect
from execworld.machine.warden.credit import StreamBuffer
from execworld.machine.warden.numbers import host_wait_status
from execworld.machine.warden.outbox import Parcel
from execworld.machine.warden.wire import Cursor, Malformed
from execworld.seams.results import ResourceUsage

_EXIT: Final = struct.Struct("<iBQQQQQ")
_USAGE_KNOWN, _MEMORY_KNOWN, _MEMORY_RAN_OUT, _TREE_ALIVE = 1, 2, 4, 8


class Input:
    """What is on its way to a handle's input."""

    __slots__ = ("_lock", "_progress", "broken", "closed", "in_bulk", "released", "unanswered")

    def __init__(self, *, exists: bool = True) -> None:
        self._lock: anyio.Lock | None = None
        self.unanswered = 0
        self.broken = not exists  # nobody reads it
        self.closed = False  # by this side
        self.released = False
        self.in_bulk: Parcel | None = None  # the last one that went behind the bulk queue
        self._progress: anyio.Event | None = None

    @property
    def lock(self) -> anyio.Lock:
        """One call of `Machine.send` at a time; most handles see none."""
        if self._lock is None:
            self._lock = anyio.Lock()
        return self._lock

    async def progress(self) -> None:
        if self._progress is None:
            self._progress = anyio.Event()
        await self._progress.wait()

    def wake(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    @property
    def waits_in_bulk(self) -> bool:
        """Some of it is behind the bulk queue, which nothing later of the same input may pass."""
        return self.in_bulk is not None and not self.in_bulk.complete


class RemoteProcess:
    __slots__ = ("_changed", "exit", "input", "on_terminal", "pid", "released", "streams", "tree_gone")

    def __init__(self, pid: int, spawn: Spawn) -> None:
        self.pid = pid
        self.on_terminal = spawn.terminal is not None
        self.input = Input(exists=self.on_terminal or spawn.stdin is Redirect.PIPE)
        self.streams = {number: StreamBuffer() for number in _open_streams(spawn)}
        self.exit: ExitStatus | None = None
        self.tree_gone = False
        self.released = False
        self._changed: anyio.Event | None = None

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until *reached*; asked again at every change."""
        while not reached():
            if self._changed is None:
                self._changed = anyio.Event()
            await self._changed.wait()

    def exited(self, status: ExitStatus) -> None:
        if self.exit is not None:
            raise Malformed("a process ended twice")
        self.exit = status
        self.changed()

    def became_empty(self) -> None:
        if self.exit is None or self.tree_gone:
            raise Malformed("a tree ended twice or before its leader")
        self.tree_gone = True
        self.changed()

    def changed(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    def wake(self) -> None:
        self.changed()
        self.input.released = self.released
        self.input.wake()
        for stream in self.streams.values():
            stream.wake()


class RemoteConnection:
    __slots__ = ("input", "released", "streams")

    def __init__(self) -> None:
        self.released = False
        self.input = Input()
        self.streams = {STDOUT: StreamBuffer()}

    def wake(self) -> None:
        self.input.released = self.released
        self.input.wake()
        self.streams[STDOUT].wake()


class RemoteWatch:
    __slots__ = ("released", "streams")

    def __init__(self) -> None:
        self.released = False
        self.streams = {STDOUT: StreamBuffer()}

    def wake(self) -> None:
        self.streams[STDOUT].wake()


def _open_streams(spawn: Spawn) -> tuple[int, ...]:
    if spawn.terminal is not None:
        return (STDOUT,)
    pipes = ((STDOUT, spawn.stdout), (STDERR, spawn.stderr))
    return tuple(number for number, redirect in pipes if redirect is Redirect.PIPE)


def decode_exit(cursor: Cursor) -> ExitStatus:
    raw, has, user_us, system_us, peak_memory_bytes, output_1, output_2 = cursor.take(_EXIT)
    if has > 15 or (has & _MEMORY_RAN_OUT and not has & _MEMORY_KNOWN):
        raise Malformed(f"bits {has:#x} of an exit")
    usage = ResourceUsage(user_us / 1e6, system_us / 1e6, peak_memory_bytes) if has & _USAGE_KNOWN else None
    return ExitStatus(
        raw=host_wait_status(raw),
        usage=usage,
        out_of_memory=bool(has & _MEMORY_RAN_OUT) if has & _MEMORY_KNOWN else None,
        output_bytes=(output_1, output_2),
        tree_alive=bool(has & _TREE_ALIVE),
    )


def decode_watch_records(data: bytes) -> tuple[WatchRecord, ...]:
    """Whole records, as many as there are."""
    cursor, records = Cursor(data), list[WatchRecord]()
    while not cursor.at_end:
        records.append(WatchRecord(cursor.i32(), cursor.u32(), cursor.byte_string()))
    return tuple(records)
