"""`Process` over any machine: pumps, limits, termination and the result."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator
from dataclasses import field
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup

from execworld.machine.base import (
    STDERR,
    STDOUT,
    ExitStatus,
    Machine,
    NoSuchHandle,
    SignalTarget,
    StreamClosed,
)
from execworld.machine.ending import checked_seconds, decode_status, end_tree
from execworld.machine.output import OutputWindow
from execworld.machine.spill import SpillFile, SpillStore
from execworld.machine.streams import MachineReceiveStream, MachineSendStream
from execworld.machine.values import Spawned
from execworld.seams.enforcement import Enforcement
from execworld.seams.errors import ExecworldError, OutcomeUnknown, WorldLost
from execworld.seams.policy import ResourceLimits
from execworld.seams.results import CommandResult, KillMethod, Output, OutputLimits, OutputSlice, TreeReport
from execworld.seams.subprocess import OutputCallback, OutputStream, Process, StreamMode
from execworld.seams.values import record

_CHUNK_BYTES: Final = 256 * 1024
_LAST_BYTES_S: Final = 1.0
_OVER: Final = (ExecworldError, NoSuchHandle)
"""The world is lost; or the handle was freed after a task was woken and before it went on, too late to cancel it."""
_STREAM_NUMBER: Final = {OutputStream.STDOUT: STDOUT, OutputStream.STDERR: STDERR}


@record
class ProcessScope:
    """What all processes of one view share.

    Attributes:
        machine: Where they run.
        tasks: Outlives every call: output of a background job must be read on after the call that started it returned.
        limits: Of the policy; those on time and output of each command are held here.
        spills: Where output that does not fit goes.
        live: Processes and terminals whose tree is not known to be gone.
    """

    machine: Machine
    tasks: TaskGroup
    spills: SpillStore
    world_id: str
    view_id: str
    enforcement: Callable[[], Enforcement]
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    live: set[MachineProcess] = field(default_factory=lambda: set[MachineProcess]())


@record
class ProcessOptions:
    stdout: StreamMode = StreamMode.NULL
    stderr: StreamMode = StreamMode.NULL
    limits: OutputLimits = field(default_factory=OutputLimits)
    timeout_s: float | None = None
    grace_s: float = 3.0
    stdin: bytes | None = None
    pipe_stdin: bool = False
    on_output: OutputCallback | None = None
    notes: tuple[str, ...] = ()


class _Ending:
    """The one termination of a tree, shared by all who ask for it."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.report = TreeReport(gone=False, method=KillMethod.NOT_NEEDED)
        self.error: ExecworldError | None = None


class MachineProcess(Process):
    """One spawned command and its tree. Constructed right after the spawn, without a checkpoint in between."""

    def __init__(self, scope: ProcessScope, spawned: Spawned, options: ProcessOptions) -> None:
        handle = spawned.handle
        self._scope = scope
        self._machine = scope.machine
        self._handle = handle
        self._pid = spawned.pid
        self._asked_s = spawned.asked_s
        self._options = options
        self._started = time.monotonic()
        self._duration_s = 0.0
        self._exit: ExitStatus | None = None
        self._exit_seen = anyio.Event()
        self._lost: ExecworldError | None = None
        self._result: CommandResult | None = None
        self._timed_out = self._cancelled = self._output_limit_hit = False
        self._callback = options.on_output
        self._callback_error: Exception | None = None
        self._ending: _Ending | None = None
        self._closed = False
        self._written = 0
        self._scopes: set[anyio.CancelScope] = set()
        self._feeding = None if options.stdin is None else anyio.CancelScope()
        modes = {OutputStream.STDOUT: options.stdout, OutputStream.STDERR: options.stderr}
        self._windows = {
            stream: OutputWindow(options.limits, self._new_spill())
            for stream, mode in modes.items()
            if mode is StreamMode.COLLECT
        }
        self._pipes = {
            stream: MachineReceiveStream(self._machine, handle, _STREAM_NUMBER[stream], self.wrote)
            for stream, mode in modes.items()
            if mode is StreamMode.PIPE
        }
        self._stdin = MachineSendStream(self._machine, handle) if options.pipe_stdin else None
        scope.live.add(self)
        scope.tasks.start_soon(self._watch_exit)
        for stream in self._windows:
            scope.tasks.start_soon(self._pump, stream)
        if options.stdin is not None and self._feeding is not None:
            scope.tasks.start_soon(self._feed, options.stdin, self._feeding)
        wall_s = scope.limits.wall_s
        times = [limit_s for limit_s in (options.timeout_s, wall_s) if limit_s is not None]
        self._timeout_s = min(times, default=None)
        if self._timeout_s is not None:
            scope.tasks.start_soon(self._watch_time, self._timeout_s)
        if wall_s is not None:
            scope.tasks.start_soon(self._watch_tree, wall_s)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def world_id(self) -> str:
        return self._scope.world_id

    @property
    def view_id(self) -> str:
        return self._scope.view_id

    @property
    def stdin(self) -> ByteSendStream | None:
        return self._stdin

    @property
    def stdout(self) -> ByteReceiveStream | None:
        return self._pipes.get(OutputStream.STDOUT)

    @property
    def stderr(self) -> ByteReceiveStream | None:
        return self._pipes.get(OutputStream.STDERR)

    @property
    def running(self) -> bool:
        return self._exit is None and self._lost is None

    @property
    def freed(self) -> bool:
        """Nothing can be asked of the machine about it any more."""
        return self._closed

    def read_output(self, stream: OutputStream, offset: int = 0) -> OutputSlice:
        window = self._windows.get(stream)
        if window is None:
            raise ValueError(f"{stream} of this process is not collected")
        return window.read_from(offset)

    async def wait(self) -> CommandResult:
        if self._result is None:
            status = await self._leader_ended()
            for stream, window in self._windows.items():
                await window.reached(status.output_bytes[_STREAM_NUMBER[stream] - 1])
            if self._ending is not None:
                await self._ending.done.wait()
            if self._ending is not None or not status.tree_alive:
                await self._read_last_bytes()  # nobody holds the pipes any more, so their end is near
            if self._callback_error is not None:
                raise self._callback_error
            if self._result is None:
                self._result = self._make_result(status)
        return self._result

    async def wait_tree(self) -> None:
        if not self._closed:
            with contextlib.suppress(NoSuchHandle):  # freed meanwhile, with its tree gone
                await self._machine.wait_tree(self._handle)

    async def send_signal(self, number: int) -> None:
        if not self._closed:
            with contextlib.suppress(NoSuchHandle):
                await self._machine.signal(self._handle, number, SignalTarget.LEADER)

    async def terminate(self, *, grace_s: float | None = None) -> TreeReport:
        grace = self._options.grace_s if grace_s is None else checked_seconds(grace_s, "grace_s")
        if self._ending is None:
            if self._exit is not None and (self._closed or not self._exit.tree_alive):
                return TreeReport(gone=True, method=KillMethod.NOT_NEEDED)
            self._cancelled = self._exit is None
        return await self._end(grace)

    async def aclose(self) -> None:
        if self._closed:
            return
        with anyio.CancelScope(shield=True):
            with contextlib.suppress(ExecworldError):
                report = await self.terminate()
                if report.gone:
                    await self._read_last_bytes()
            await self._free()

    async def leave_in_background(self) -> None:
        """Give up the handle without ending the tree: what the leader left behind runs until the world closes."""
        self._callback = None
        if self._exit is not None and self._exit.tree_alive and self._ending is None:
            self._scope.tasks.start_soon(self._free_when_gone)
        elif self._exit is not None and self._ending is None and self._all_read:
            await self._free()  # nothing runs and nothing is on its way
        else:
            await self.aclose()

    # Tasks of the world

    async def _watch_exit(self) -> None:
        with contextlib.suppress(NoSuchHandle), self._cancelled_at_end():
            try:
                self._exit = await self._machine.wait(self._handle)
            except WorldLost as error:
                # It was started: what became of it is unknown, however early the world was lost.
                self._lost = OutcomeUnknown(error.message, op=error.op, world=error.world, hint=error.hint)
                self._lost.__cause__ = error
            except ExecworldError as error:
                self._lost = error
            self._duration_s = time.monotonic() - self._asked_s
        self._exit_seen.set()
        if self._feeding is not None:
            self._feeding.cancel()

    async def _pump(self, stream: OutputStream) -> None:
        window = self._windows[stream]
        limit = self._options.limits.stop_bytes
        # A lost world ends the stream; whoever waits for the process is told by its own call.
        with contextlib.suppress(*_OVER), self._cancelled_at_end():
            while chunk := await self._machine.receive(self._handle, _STREAM_NUMBER[stream], _CHUNK_BYTES):
                if self._callback is not None:
                    await self._hand_over(self._callback, stream, chunk)
                await window.add(chunk)
                self.wrote(len(chunk))
                if limit is not None and window.total_bytes > limit and self._ending is None:
                    self._output_limit_hit = True
                    self._begin_end(self._options.grace_s)
        window.end()
        if window.spills:
            with anyio.CancelScope(shield=True):
                await window.seal()

    async def _hand_over(self, callback: OutputCallback, stream: OutputStream, chunk: bytes) -> None:
        try:
            await callback(stream, chunk)
        except Exception as error:  # noqa: BLE001 - whatever the caller's code raises goes to the caller, see wait()
            self._callback, self._callback_error = None, error
            self._begin_end(self._options.grace_s)

    def wrote(self, size: int) -> None:
        """Count output against the limit of the policy, whoever reads it."""
        self._written += size
        limit = self._scope.limits.output_bytes
        if limit is not None and self._written > limit and self._ending is None:
            self._output_limit_hit = True
            self._begin_end(self._options.grace_s)

    async def _feed(self, data: bytes, feeding: anyio.CancelScope) -> None:
        # A program that reads none or half of its input is within its rights.
        with contextlib.suppress(StreamClosed, *_OVER), feeding:
            await self._machine.send(self._handle, data)
            await self._machine.close_input(self._handle)

    async def _watch_time(self, timeout_s: float) -> None:
        with self._cancelled_at_end():
            with anyio.move_on_after(self._started + timeout_s - time.monotonic()):
                await self._exit_seen.wait()
            if self.running and self._ending is None:
                self._timed_out = True
                self._begin_end(self._options.grace_s)

    async def _watch_tree(self, limit_s: float) -> None:
        """The limit of the policy holds for what the leader leaves behind, too."""
        with contextlib.suppress(*_OVER), self._cancelled_at_end():
            with anyio.move_on_after(self._started + limit_s - time.monotonic()):
                await self._machine.wait_tree(self._handle)
                return
            if self._ending is None:
                self._timed_out = self.running
                self._begin_end(self._options.grace_s)

    async def _free_when_gone(self) -> None:
        with contextlib.suppress(*_OVER), self._cancelled_at_end():
            await self._machine.wait_tree(self._handle)
            if self._ending is not None:
                await self._ending.done.wait()
            await self._read_last_bytes()
            await self._free()

    @contextlib.contextmanager
    def _cancelled_at_end(self) -> Generator[None]:
        """Go on until the handle is freed, also when the world around is cancelled.

        How a command ended that is ended because of the cancellation, and what it says meanwhile, is still to be known.
        """
        with anyio.CancelScope(shield=True) as scope:
            self._scopes.add(scope)
            try:
                yield
            finally:
                self._scopes.discard(scope)

    # Ending

    async def _leader_ended(self) -> ExitStatus:
        await self._exit_seen.wait()
        if self._exit is None:
            assert self._lost is not None
            raise self._lost
        return self._exit

    def _begin_end(self, grace_s: float) -> _Ending:
        """End the tree once; later callers join. It runs to its end whatever happens to whoever asked for it."""
        if self._ending is None:
            self._ending = _Ending()
            self._scope.tasks.start_soon(self._run_ladder, self._ending, grace_s)
        return self._ending

    async def _end(self, grace_s: float) -> TreeReport:
        ending = self._begin_end(grace_s)
        await ending.done.wait()
        if ending.error is not None:
            raise ending.error
        return ending.report

    async def _run_ladder(self, ending: _Ending, grace_s: float) -> None:
        with anyio.CancelScope(shield=True):
            try:
                ending.report = await end_tree(self._machine, self._handle, grace_s)
            except ExecworldError as error:
                ending.error = error
            finally:
                ending.done.set()

    @property
    def _all_read(self) -> bool:
        return all(window.ended for window in self._windows.values())

    async def _read_last_bytes(self) -> None:
        """Let the pumps take what is left in the pipes. Bounded: a foreign process may hold the end of a pipe."""
        if self._exit_seen.is_set() and self._all_read:
            return
        with anyio.move_on_after(_LAST_BYTES_S):
            await self._exit_seen.wait()
            for window in self._windows.values():
                await window.reached_end()

    async def _free(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._exit is not None and self._result is None:
            self._result = self._make_result(self._exit)
        self._scope.live.discard(self)
        for scope in self._scopes:
            scope.cancel()
        if self._feeding is not None:
            self._feeding.cancel()
        with contextlib.suppress(ExecworldError):
            await self._machine.release(self._handle)  # of which a cancellation keeps nothing back

    def _make_result(self, status: ExitStatus) -> CommandResult:
        exit_code, number = decode_status(status.raw)
        report = self._ending.report if self._ending is not None and self._ending.error is None else None
        return CommandResult(
            exit_code=exit_code,
            signal=number,
            stdout=self._output(OutputStream.STDOUT),
            stderr=self._output(OutputStream.STDERR),
            duration_s=self._duration_s,
            world_id=self.world_id,
            view_id=self.view_id,
            enforcement=self._scope.enforcement(),
            timed_out=self._timed_out,
            cancelled=self._cancelled,
            output_limit_hit=self._output_limit_hit,
            out_of_memory=status.out_of_memory,
            background=status.tree_alive and (report is None or not report.gone),
            tree=report,
            timeout_s=self._timeout_s,
            usage=status.usage,
            notes=self._options.notes,
        )

    def _output(self, stream: OutputStream) -> Output:
        window = self._windows.get(stream)
        return window.snapshot() if window is not None else Output()

    def _new_spill(self) -> SpillFile | None:
        limit = self._options.limits.spill_bytes
        return self._scope.spills.new_file(limit) if limit else None
