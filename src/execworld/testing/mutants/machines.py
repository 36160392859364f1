"""Wrong machines: the semantics above them are right."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio

from execworld.machine.base import STDOUT, ExitStatus, SignalTarget, StreamClosed
from execworld.machine.batch import Batch, BatchStep, Results
from execworld.machine.operations import Operation, SetMode, Spawn
from execworld.machine.values import Redirect, Spawned
from execworld.seams import KillMethod, OutcomeUnknown, TreeReport, WorldLost
from execworld.testing.forwarding import ForwardingMachine
from execworld.testing.mutants.mutant import Mutant


class _RewritingMachine(ForwardingMachine):
    """Changes operations on their way."""

    async def run(self, batch: Batch) -> Results:
        steps = [BatchStep(self.rewrite(step.operation), step.tolerate, step.undo) for step in batch.steps]
        return await self.inner.run(Batch(steps))

    def rewrite(self, operation: Operation[Any]) -> Operation[Any]:
        raise NotImplementedError


class _KillsOnlyTheLeader(ForwardingMachine):
    async def signal(self, handle: int, number: int, target: SignalTarget) -> int:
        leader = SignalTarget.LEADER if target is SignalTarget.TREE else target
        return await self.inner.signal(handle, number, leader)

    async def wait_tree(self, handle: int) -> None:
        await self.inner.wait(handle)

    async def kill_tree(self, handle: int) -> TreeReport:
        await self.inner.signal(handle, signal.SIGKILL, SignalTarget.LEADER)
        await self.inner.wait(handle)
        return TreeReport(gone=True, method=KillMethod.PROCESS_GROUP)


class _StatusMachine(ForwardingMachine):
    def __init__(self, inner: Any, change: Callable[[int], int]) -> None:
        super().__init__(inner)
        self._change = change

    async def wait(self, handle: int) -> ExitStatus:
        status = await self.inner.wait(handle)
        return replace(status, raw=self._change(status.raw))


def _signal_as_exit_code(raw: int) -> int:
    return (128 + (raw & 0x7F)) << 8 if raw & 0x7F else raw


def _signal_as_success(raw: int) -> int:
    return 0 if raw & 0x7F else raw


class _ReportsALossAsSuccess(ForwardingMachine):
    async def wait(self, handle: int) -> ExitStatus:
        try:
            return await self.inner.wait(handle)
        except (WorldLost, OutcomeUnknown):
            return ExitStatus(0, None, None, (0, 0), tree_alive=False)

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        try:
            return await self.inner.receive(handle, stream, max_bytes)
        except (WorldLost, OutcomeUnknown):
            return b""

    async def release(self, handle: int) -> None:
        with suppress(WorldLost, OutcomeUnknown):
            await self.inner.release(handle)

    async def kill_tree(self, handle: int) -> TreeReport:
        try:
            return await self.inner.kill_tree(handle)
        except (WorldLost, OutcomeUnknown):
            return TreeReport(gone=True, method=KillMethod.NOT_NEEDED)


class _WaitsForBackgroundJobs(ForwardingMachine):
    async def wait(self, handle: int) -> ExitStatus:
        status = await self.inner.wait(handle)
        await self.inner.wait_tree(handle)
        return status


class _DropsTheTail(ForwardingMachine):
    """What is still in the pipe when the process has ended is dropped, once enough of it was delivered."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._received: dict[tuple[int, int], int] = {}

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        position = self._received.get((handle, stream), 0)
        chunk = await self.inner.receive(handle, stream, max_bytes)
        self._received[handle, stream] = position + len(chunk)
        if position > 300_000:  # a read may bring as much as a pipe holds
            while chunk:
                chunk = await self.inner.receive(handle, stream, max_bytes)
        return chunk


class _TerminalMachine(ForwardingMachine):
    """Knows which handles are terminals."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.terminals: set[int] = set()

    async def run(self, batch: Batch) -> Results:
        results = await self.inner.run(batch)
        for step, value in zip(batch.steps, results.values, strict=True):
            if isinstance(step.operation, Spawn) and step.operation.terminal and isinstance(value, Spawned):
                self.terminals.add(value.handle)
        return results


class _TerminalEndsWithItsCommand(_TerminalMachine):
    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        chunk = await self.inner.receive(handle, stream, max_bytes)
        if handle in self.terminals and stream == STDOUT:
            with anyio.move_on_after(0.2):  # a command that prints its last and ends does both well within
                await self.inner.wait(handle)
                return b""
        return chunk


class _IgnoresResize(ForwardingMachine):
    async def resize(self, handle: int, rows: int, columns: int) -> None:
        pass


class _OneSizeOnly(_RewritingMachine):
    def rewrite(self, operation: Operation[Any]) -> Operation[Any]:
        if isinstance(operation, Spawn) and operation.terminal is not None:
            return replace(operation, terminal=(24, 80))
        return operation


class _NeverProvesAForeground(ForwardingMachine):
    async def foreground(self, handle: int) -> Any:
        state = await self.inner.foreground(handle)
        return None if state is None else replace(state, waits_for_input=True)


class _LeavesInputOpen(_RewritingMachine):
    def rewrite(self, operation: Operation[Any]) -> Operation[Any]:
        if isinstance(operation, Spawn) and operation.terminal is None:
            return replace(operation, stdin=Redirect.PIPE)
        return operation

    async def close_input(self, handle: int) -> None:
        pass


class _TellsOfAClosedInputLate(ForwardingMachine):
    """Takes input before it is known whether anybody reads it."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._closed = set[int]()

    async def send(self, handle: int, data: bytes) -> None:
        try:
            await self.inner.send(handle, data)
        except StreamClosed:
            if handle in self._closed:
                raise
            self._closed.add(handle)


class _InheritsCredentials(_RewritingMachine):
    def rewrite(self, operation: Operation[Any]) -> Operation[Any]:
        if not isinstance(operation, Spawn):
            return operation
        given = dict(operation.environment)
        host = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items() if k not in ("HOME", "PATH")}
        return replace(operation, environment=tuple((host | given).items()))


class _LosesTheMode(_RewritingMachine):
    def rewrite(self, operation: Operation[Any]) -> Operation[Any]:
        if isinstance(operation, SetMode) and operation.mode_of is not None:
            return replace(operation, mode_of=None)
        return operation


class _MergesAsDiscard(_RewritingMachine):
    def rewrite(self, operation: Operation[Any]) -> Operation[Any]:
        if isinstance(operation, Spawn) and operation.stderr is Redirect.MERGE:
            return replace(operation, stderr=Redirect.NULL)
        return operation


class _SignalsTheWholeTree(ForwardingMachine):
    async def signal(self, handle: int, number: int, target: SignalTarget) -> int:
        tree = SignalTarget.TREE if target is SignalTarget.LEADER else target
        return await self.inner.signal(handle, number, tree)


MACHINE_MUTANTS = (
    Mutant(
        "mutant kills-only-the-leader",
        "ends the command and leaves its descendants",
        ("P-22",),
        ("P-23", "P-28", "P-86", "S-63", "T-7", "T-29"),
        machine=_KillsOnlyTheLeader,
    ),
    Mutant(
        "mutant signal-as-exit-code",
        "reports a death by signal as 128 + number",
        ("P-80",),
        ("D-4", "P-24", "S-4", "T-10"),
        machine=lambda inner: _StatusMachine(inner, _signal_as_exit_code),
    ),
    Mutant(
        "mutant signal-as-success",
        "loses the signal and reports exit 0",
        ("P-80", "P-81"),
        ("D-4", "P-24", "S-4", "T-10"),
        machine=lambda inner: _StatusMachine(inner, _signal_as_success),
    ),
    Mutant(
        "mutant loss-as-success",
        "reports a command whose end is not known as exit 0",
        ("W-81", "W-82"),
        machine=_ReportsALossAsSuccess,
        breakable=True,
    ),
    Mutant(
        "mutant waits-for-background-jobs",
        "holds the result back until the last descendant has ended",
        ("P-30", "S-62"),
        ("P-28", "P-86", "T-25", "T-29", "W-18"),
        machine=_WaitsForBackgroundJobs,
    ),
    Mutant(
        "mutant drops-the-tail",
        "loses the end of a long stream",
        ("P-64", "P-70", "P-74", "P-75"),
        machine=_DropsTheTail,
    ),
    Mutant(
        "mutant terminal-ends-with-its-command",
        "loses what a terminal still holds when its command ended",
        ("T-3", "T-20"),
        ("T-4", "T-21", "T-22", "T-23", "T-25", "T-26", "T-27", "T-28", "W-12"),
        machine=_TerminalEndsWithItsCommand,
    ),
    Mutant("mutant ignores-resize", "does not resize", ("T-22",), machine=_IgnoresResize),
    Mutant("mutant one-size-only", "opens every terminal with 24 by 80", ("T-21",), machine=_OneSizeOnly),
    Mutant(
        "mutant guesses-waiting",
        "claims without proof that a program waits for input",
        ("T-5",),
        machine=_NeverProvesAForeground,
    ),
    Mutant(
        "mutant leaves-input-open",
        "gives no end of input",
        ("P-11",),
        ("P-64", "P-65", "P-67", "P-84", "P-89", "S-3", "S-70", "W-62"),
        machine=_LeavesInputOpen,
    ),
    Mutant(
        "mutant tells-of-a-closed-input-late",
        "accepts input that nobody reads, and fails with the next",
        ("P-90",),
        ("T-4",),
        machine=_TellsOfAClosedInputLate,
    ),
    Mutant(
        "mutant inherits-credentials",
        "hands the host's environment to commands",
        ("W-12",),
        machine=_InheritsCredentials,
    ),
    Mutant(
        "mutant loses-the-mode",
        "replaces a file with another mode",
        ("F-36", "F-53", "F-129"),
        machine=_LosesTheMode,
    ),
    Mutant(
        "mutant discards-merged-errors", "loses stderr when merged", ("P-76", "S-6"), machine=_MergesAsDiscard
    ),
    Mutant(
        "mutant signals-the-whole-tree",
        "sends to all what is for the leader",
        ("P-27",),
        machine=_SignalsTheWholeTree,
    ),
)
