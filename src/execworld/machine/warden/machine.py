"""`WardenMachine`: the waist's operations, executed at the far end of a byte stream."""

from __future__ import annotations

import dataclasses
import errno
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio
import anyio.lowlevel

from execworld.machine.base import (
    STDOUT,
    ExitStatus,
    ForegroundState,
    Machine,
    MachineFacts,
    NoSuchHandle,
    SignalFailed,
    SignalTarget,
    WatchRecord,
)
from execworld.machine.batch import Batch, BatchFailed, Results
from execworld.machine.cell import CellFailed, CellPlan, CellReport, CellsUnsupported
from execworld.machine.operations import (
    Connect,
    Open,
    OpenWalk,
    OpenWatch,
    Spawn,
)
from execworld.machine.values import Spawned
from execworld.machine.warden.batches import BatchGate, has_effects
from execworld.machine.warden.cell_codec import decode_cell_reply, encode_plan
from execworld.machine.warden.credit import CreditLedger, StreamBuffer
from execworld.machine.warden.decoding import decode_batch_reply, decode_status
from execworld.machine.warden.encoding import encode_batch
from execworld.machine.warden.facts import LinkSettings, WardenFacts, decode_kill_method
from execworld.machine.warden.frames import HostMessage, WardenMessage
from execworld.machine.warden.handles import (
    RemoteConnection,
    RemoteProcess,
    RemoteWatch,
    decode_exit,
    decode_watch_records,
)
from execworld.machine.warden.link import Link
from execworld.machine.warden.numbers import linux_signal
from execworld.machine.warden.passed import RemoteCell, RemoteHandle
from execworld.machine.warden.sending import InputPipe, InputSender
from execworld.machine.warden.sockets import SocketTransport
from execworld.machine.warden.transport import LinkEnd
from execworld.machine.warden.wire import Cursor, Malformed, byte_string
from execworld.seams.errors import SandboxReason, SandboxUnavailable
from execworld.seams.results import KillMethod, TreeReport

ValueT = TypeVar("ValueT")

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_HANDLE: Final = struct.Struct("<Q")
_DATA: Final = struct.Struct("<QBBH")
_WINDOWED, _END = 1, 2
_CELL_CREDIT_BYTES: Final = 4 * 1024 * 1024
"""What a cell may send ahead beyond the credit of any stream: all that it says shares one, which is always read."""
ALL_CAPABILITIES: Final = 2**64 - 1
_NO_REPORT: Final = TreeReport(gone=False, method=KillMethod.NOT_NEEDED)


class WardenMachine(Machine):
    """Made by `open_warden_machine`.

    Beyond what `Machine` promises: a call that was under way when the world was lost raises `OutcomeUnknown` if it may
    have changed something or waited for something that runs in the world; one that was not sent, or only looked,
    raises `WorldLost`. A cancelled batch that succeeds nevertheless has its handles closed and its processes killed.
    """

    def __init__(self, link: Link, facts: WardenFacts, settings: LinkSettings) -> None:
        self._link = link
        self._warden = facts
        self._credit = CreditLedger(settings, partial(link.tell, HostMessage.CREDIT))
        self._handles: dict[int, RemoteHandle] = {}
        self._processes = 0
        self._gate = BatchGate()
        self._freed = 0  # how often a handle was
        self._handle_freed: anyio.Event | None = None
        self._closed: anyio.Event | None = None
        self._report = _NO_REPORT
        link.receiver = self

    @property
    def facts(self) -> MachineFacts:
        return self._warden.machine

    @property
    def warden_facts(self) -> WardenFacts:
        return self._warden

    @property
    def lost(self) -> bool:
        return self._link.lost

    @property
    def world_id(self) -> str:
        """Carried by the errors of the link. Whoever makes an identity from the facts sets it."""
        return self._link.world_id

    @world_id.setter
    def world_id(self, value: str) -> None:
        self._link.world_id = value

    @property
    def link_end(self) -> LinkEnd | None:
        """How the link ended; None while it has not."""
        return self._link.end

    # Batches

    async def run(self, batch: Batch) -> Results:
        if not batch.steps:
            await anyio.lowlevel.checkpoint()
            return Results(())
        body = encode_batch(batch, self._warden.max_steps)
        effects = any(has_effects(step.operation) for step in batch.steps)
        while True:
            freed = self._freed
            await self._gate.enter(len(body))
            asked_s = time.monotonic()
            try:
                outcome = await self._link.call(
                    HostMessage.BATCH,
                    body,
                    partial(self._take_outcome, batch, asked_s),
                    op="machine.run",
                    effects=effects,
                    discard=partial(self._discard, batch),
                )
            finally:
                self._gate.leave(len(body))
            if isinstance(outcome, Results):
                return outcome
            # A batch that failed was undone, so it can wait for a descriptor and run again. With nothing of ours
            # running there is nothing to wait for.
            if outcome.error.status not in _OUT_OF_DESCRIPTORS or not self._processes:
                raise outcome
            if freed == self._freed:
                if self._handle_freed is None:
                    self._handle_freed = anyio.Event()
                await self._handle_freed.wait()

    def _take_outcome(self, batch: Batch, asked_s: float, body: bytes) -> Results | BatchFailed:
        outcome = decode_batch_reply(batch, body)
        if isinstance(outcome, Results):
            outcome = Results(
                tuple(
                    dataclasses.replace(value, asked_s=asked_s) if isinstance(value, Spawned) else value
                    for value in outcome.values
                )
            )
            for step, value in zip(batch.steps, outcome.values, strict=True):
                operation = step.operation
                if isinstance(value, Spawned) and isinstance(operation, Spawn):
                    self._processes += 1
                    self._register(value.handle, RemoteProcess(value.pid, operation))
                elif isinstance(value, int) and isinstance(operation, Connect):
                    self._register(value, RemoteConnection())
                elif isinstance(value, int) and isinstance(operation, OpenWatch):
                    self._register(value, RemoteWatch())
        return outcome

    def _register(self, handle: int, remote: RemoteHandle) -> None:
        if handle in self._handles:
            raise Malformed(f"handle {handle} was given twice")
        self._handles[handle] = remote

    def _discard(self, batch: Batch, outcome: Results | BatchFailed) -> None:
        """Undo what a batch opened whose caller has gone."""
        if isinstance(outcome, BatchFailed):
            return
        for step, value in zip(batch.steps, outcome.values, strict=True):
            if isinstance(value, Spawned):
                self._forget(value.handle)
                released = partial(self._post_release, value.handle)
                self._link.post(HostMessage.KILL_TREE, _HANDLE.pack(value.handle), released)
            elif isinstance(value, int) and isinstance(step.operation, Open | OpenWalk | Connect | OpenWatch):
                self._forget(value)
                self._post_release(value)

    # Streams

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        remote = self._handle(handle, "machine.receive")
        if isinstance(remote, RemoteWatch):
            raise NoSuchHandle(f"no process or connection {handle}")
        if isinstance(remote, RemoteCell):
            return await remote.receive(self._link, max_bytes)
        buffer = remote.streams.get(stream)
        if buffer is None or not buffer.waits:
            await anyio.lowlevel.checkpoint()
        return b"" if buffer is None else await self._next_bytes(handle, stream, buffer, max_bytes)

    async def _next_bytes(self, handle: int, stream: int, buffer: StreamBuffer, max_bytes: int) -> bytes:
        while not buffer.held:
            self._check_stream(handle, buffer)
            if buffer.ended:
                return b""
            await buffer.arrival()
            if self._link.lost:
                raise self._link.outcome_unknown("machine.receive")
        self._check_stream(handle, buffer)
        data = buffer.take(max_bytes)
        self._credit.consumed((handle, stream), buffer, len(data))
        return data

    def _check_stream(self, handle: int, buffer: StreamBuffer) -> None:
        self._link.check("machine.receive")
        if buffer.closed:
            raise NoSuchHandle(f"{handle} was released")

    async def read_watch(self, handle: int) -> tuple[WatchRecord, ...]:
        remote = self._handle(handle, "machine.read_watch")
        if not isinstance(remote, RemoteWatch):
            raise NoSuchHandle(f"no watch {handle}")
        buffer = remote.streams[STDOUT]
        await anyio.lowlevel.checkpoint()
        data = await self._next_bytes(handle, STDOUT, buffer, buffer.held or 1 << 31)
        try:
            return decode_watch_records(data)
        except Malformed as error:
            self._link.lose(f"the warden broke the protocol: {error}")
            raise self._link.not_sent("machine.read_watch") from error

    async def send(self, handle: int, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        remote = self._handle(handle, "machine.send")
        if isinstance(remote, RemoteWatch):
            raise NoSuchHandle(f"no process or connection {handle}")
        if isinstance(remote, RemoteCell):
            await remote.send(self._link, data)
            return
        target = remote.input
        async with target.lock:
            await InputSender(self._link, handle, target, self._warden.input_window_bytes).send(data)

    def input_pipe(self, handle: int) -> InputPipe:
        """The input of a connection, for one sender that never waits for an answer."""
        remote = self._handle(handle, "machine.send")
        if not isinstance(remote, RemoteConnection):
            raise NoSuchHandle(f"no connection {handle}")
        return InputPipe(self._link, handle, remote.input, self._warden.input_window_bytes)

    async def close_input(self, handle: int) -> None:
        remote = self._handle(handle, "machine.close_input")
        if isinstance(remote, RemoteWatch):
            raise NoSuchHandle(f"no process or connection {handle}")
        if isinstance(remote, RemoteCell):
            remote.stream.end_output()
            await anyio.lowlevel.checkpoint()
            return
        target = remote.input
        if not target.closed:
            # Not waited for: it is answered only when all input before it was taken, and whoever closes has no part
            # in that.
            terminal = isinstance(remote, RemoteProcess) and remote.on_terminal
            target.closed = not terminal
            target.wake()
            self._link.post(HostMessage.CLOSE_INPUT, _HANDLE.pack(handle), bulk=target.waits_in_bulk)
        await anyio.lowlevel.checkpoint()

    # Processes

    async def signal(self, handle: int, number: int, target: SignalTarget) -> int:
        self._process(handle, "machine.signal")
        status, value = await self._link.call(
            HostMessage.SIGNAL,
            struct.pack("<QIB", handle, linux_signal(number), target),
            partial(_with_status, lambda cursor: cursor.i32(), 0),
            op="machine.signal",
            effects=number != 0,
        )
        if status == errno.EBADF:
            raise NoSuchHandle(f"no process {handle}")
        if status:
            raise SignalFailed(f"signal {number} cannot be sent: {errno.errorcode.get(status, status)}")
        return value

    async def wait(self, handle: int) -> ExitStatus:
        process = self._process(handle, "machine.wait")
        await self._until(handle, process, lambda: process.exit is not None, "machine.wait")
        assert process.exit is not None
        return process.exit

    async def wait_tree(self, handle: int) -> None:
        process = self._process(handle, "machine.wait_tree")
        await self._until(handle, process, lambda: process.tree_gone, "machine.wait_tree")

    async def _until(self, handle: int, process: RemoteProcess, reached: Callable[[], bool], op: str) -> None:
        if reached():
            await anyio.lowlevel.checkpoint()
        await process.until(lambda: reached() or process.released or self._link.lost)
        if reached():
            return
        if process.released:
            raise NoSuchHandle(f"{handle} was released")
        raise self._link.outcome_unknown(op)

    async def kill_tree(self, handle: int) -> TreeReport:
        process = self._process(handle, "machine.kill_tree")
        status, report = await self._link.call(
            HostMessage.KILL_TREE,
            _HANDLE.pack(handle),
            partial(_with_status, _tree_report, _NO_REPORT),
            op="machine.kill_tree",
            effects=True,
        )
        if status:
            raise NoSuchHandle(f"no process {handle}: {errno.errorcode.get(status, status)}")
        if report.gone and not (process.tree_gone and process.exit):
            # Both come before the reply. Whoever waits for the end of the command would wait for ever.
            self._link.lose("the warden broke the protocol: a tree is gone and its command did not end")
            raise self._link.outcome_unknown("machine.kill_tree")
        return report

    async def resize(self, handle: int, rows: int, columns: int) -> None:
        self._process(handle, "machine.resize")
        status, _ = await self._link.call(
            HostMessage.RESIZE,
            struct.pack("<QHH", handle, rows, columns),
            partial(_with_status, _nothing, None),
            op="machine.resize",
            effects=False,
        )
        if status:
            raise NoSuchHandle(f"no terminal {handle}: {errno.errorcode.get(status, status)}")

    async def foreground(self, handle: int) -> ForegroundState | None:
        self._process(handle, "machine.foreground")
        status, state = await self._link.call(
            HostMessage.FOREGROUND,
            _HANDLE.pack(handle),
            partial(_with_status, _foreground, None),
            op="machine.foreground",
            effects=False,
        )
        if status == errno.EBADF:
            raise NoSuchHandle(f"no process {handle}")
        return state

    # Cells

    async def restrict_programs(self, program: bytes, *, capabilities: int = ALL_CAPABILITIES) -> None:
        """Put everything that is started from now on, in cells too, under the seccomp filter *program*.

        Once, and before anything else is asked of the machine.

        Args:
            program: May be empty: no filter.
            capabilities: Mask of those that programs keep of what the warden has.

        Raises:
            SandboxUnavailable: it could not be done. Nothing will run unrestricted, nor should anything be run.
        """
        status, _ = await self._link.call(
            HostMessage.RESTRICT,
            struct.pack("<Q", capabilities) + byte_string(program),
            partial(_with_status, _nothing, None),
            op="machine.restrict_programs",
            effects=True,
        )
        if status:
            raise SandboxUnavailable(
                "what the world's programs are to be kept from could not be set up: "
                f"{errno.errorcode.get(status, str(status))}",
                reason=SandboxReason.SETUP_FAILED,
                op="world.open",
                world=self.world_id,
            )

    async def make_cell(self, plan: CellPlan) -> CellReport:
        outcome = await self._link.call(
            HostMessage.MAKE_CELL,
            encode_plan(plan),
            partial(self._take_cell, plan),
            op="machine.make_cell",
            effects=False,
            discard=self._discard_cell,
        )
        if isinstance(outcome, CellReport):
            return outcome
        raise outcome

    def _take_cell(self, plan: CellPlan, body: bytes) -> CellReport | CellFailed | CellsUnsupported:
        outcome = decode_cell_reply(plan, body)
        if isinstance(outcome, CellReport):
            self._register_cell(outcome.handle)
        return outcome

    def _register_cell(self, handle: int) -> None:
        if not self._link.takes_descriptors:
            remote = RemoteConnection()
            self._register(handle, remote)
            self._credit.grant((handle, STDOUT), remote.streams[STDOUT], _CELL_CREDIT_BYTES)
            return
        passed = self._link.take_descriptor()
        if passed is None:
            raise Malformed(f"the stream of cell {handle} was not passed")
        self._register(handle, RemoteCell(handle, SocketTransport(passed)))

    def cell_stream(self, handle: int) -> SocketTransport | None:
        """The stream of a cell where the warden passed it, for a caller that closes it; else it is the handle's."""
        remote = self._handle(handle, "machine.send")
        if not isinstance(remote, RemoteCell):
            return None
        remote.used = True
        return remote.stream

    def _discard_cell(self, outcome: CellReport | CellFailed | CellsUnsupported) -> None:
        if isinstance(outcome, CellReport) and self._forget(outcome.handle):
            self._post_release(outcome.handle)

    async def drop_cell(self, handle: int) -> TreeReport:
        if not isinstance(self._handle(handle, "machine.drop_cell"), RemoteConnection | RemoteCell):
            raise NoSuchHandle(f"no cell {handle}")
        status, report = await self._link.call(
            HostMessage.DROP_CELL,
            _HANDLE.pack(handle),
            partial(_with_status, _tree_report, _NO_REPORT),
            op="machine.drop_cell",
            effects=True,
        )
        self._forget(handle)
        if status:
            raise NoSuchHandle(f"no cell {handle}: {errno.errorcode.get(status, status)}")
        return report

    # End

    async def release(self, handle: int) -> None:
        if self._forget(handle):
            self._post_release(handle)
            await anyio.lowlevel.checkpoint_if_cancelled()
            return
        # An open file may hold a lock: who locks it next must find it free.
        self._link.check("machine.release")
        await self._link.call(
            HostMessage.RELEASE,
            _HANDLE.pack(handle),
            partial(_with_status, _nothing, None),
            op="machine.release",
            effects=False,
        )
        self._announce_free_handle()

    async def ping(self) -> None:
        await self._link.call(
            HostMessage.PING, b"", partial(_with_status, _nothing, None), op="machine.ping", effects=False
        )

    async def aclose(self) -> TreeReport:
        if self._closed is not None:
            await self._closed.wait()
            return self._report
        self._closed = anyio.Event()
        with anyio.CancelScope(shield=True):
            try:
                answer = await self._link.close_world(partial(_with_status, _tree_report, _NO_REPORT))
                if answer is not None:
                    self._report = answer[1]
                await self._link.stop()
                if answer is None and self._link.end is not None and self._link.end.tree is not None:
                    self._report = self._link.end.tree
            finally:
                self._closed.set()
        return self._report

    # What the reader calls

    def notified(self, kind: WardenMessage, body: memoryview) -> None:
        if kind is WardenMessage.DATA:
            self._take_data(body)
            return
        cursor = Cursor(bytes(body))
        handle = cursor.u64()
        remote = self._handles.get(handle)
        process = remote if isinstance(remote, RemoteProcess) else None
        match kind:
            case WardenMessage.EXIT:
                status = decode_exit(cursor)
                if process is not None:
                    process.exited(status)
            case WardenMessage.TREE_GONE:
                decode_kill_method(cursor.u8())
                if process is not None:
                    process.became_empty()
            case _:
                decode_status(cursor.u16())
                if isinstance(remote, RemoteProcess | RemoteConnection):
                    remote.input.broken = True
                    remote.input.wake()
        cursor.end()

    def _take_data(self, body: memoryview) -> None:
        if len(body) < _DATA.size:
            raise Malformed("a message ends too early")
        handle, number, flags, status = _DATA.unpack_from(body)
        data = bytes(body[_DATA.size :])
        ends = bool(flags & _END)
        if flags > (_WINDOWED | _END) or ends == bool(data) or (status and not ends):
            raise Malformed("data whose flags, status and length do not go together")
        remote = self._handles.get(handle)
        stream = None if remote is None else remote.streams.get(number)
        if remote is not None and (stream is None or stream.ended):
            raise Malformed(f"data for stream {number}, which is not open")
        self._credit.came(stream, len(data), windowed=bool(flags & _WINDOWED))
        if stream is not None:
            if ends:
                stream.ended = True
            else:
                stream.add(data)
            stream.wake()

    def ended(self) -> None:
        for remote in self._handles.values():
            remote.wake()
        self._announce_free_handle()

    # Helpers

    def _handle(self, handle: int, op: str) -> RemoteHandle:
        self._link.check(op)
        remote = self._handles.get(handle)
        if remote is None:
            raise NoSuchHandle(f"no process, connection or watch {handle}")
        return remote

    def _process(self, handle: int, op: str) -> RemoteProcess:
        remote = self._handle(handle, op)
        if not isinstance(remote, RemoteProcess):
            raise NoSuchHandle(f"no process {handle}")
        return remote

    def _forget(self, handle: int) -> bool:
        remote = self._handles.pop(handle, None)
        if remote is None:
            return False
        if isinstance(remote, RemoteProcess):
            self._processes -= 1
        remote.released = True
        for number, stream in remote.streams.items():
            stream.closed = True
            self._credit.gave_up((handle, number), stream)
            stream.drop()
        remote.wake()
        return True

    def _post_release(self, handle: int, reply_before: bytes = b"") -> None:
        self._link.post(HostMessage.RELEASE, _HANDLE.pack(handle), self._announce_free_handle)

    def _announce_free_handle(self, reply: bytes = b"") -> None:
        self._freed += 1
        if self._handle_freed is not None:
            self._handle_freed.set()
            self._handle_freed = None


def _with_status(decode: Callable[[Cursor], ValueT], otherwise: ValueT, body: bytes) -> tuple[int, ValueT]:
    """A status in numbers of this host, and the fields that follow a status of 0."""
    cursor = Cursor(body)
    number = cursor.u16()
    status, value = (decode_status(number), otherwise) if number else (0, decode(cursor))
    cursor.end()
    return status, value


def _nothing(cursor: Cursor) -> None:
    return None


def _tree_report(cursor: Cursor) -> TreeReport:
    gone, method = cursor.flag(), decode_kill_method(cursor.u8())
    survivors = tuple(cursor.i32() for _ in range(cursor.u32()))
    if gone and survivors:
        raise Malformed("a report of a tree contradicts itself")
    return TreeReport(gone, method, survivors)


def _foreground(cursor: Cursor) -> ForegroundState | None:
    present, group, waits = cursor.flag(), cursor.i32(), cursor.flag()
    return ForegroundState(group, waits) if present else None
