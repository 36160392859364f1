"""Run one command in a world: streaming, on a terminal, or for a JSON object."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

import anyio
from anyio.abc import ByteSendStream

from execworld.cli import exits
from execworld.cli.descriptors import Sink, carries_input, read_chunks
from execworld.cli.documents import encode_document
from execworld.cli.hints import hint_of
from execworld.cli.messages import Interrupted, note, report
from execworld.cli.supervision import run_supervised
from execworld.cli.worlds import WorldChoice
from execworld.seams import (
    CommandResult,
    ExecworldError,
    Output,
    OutputCallback,
    OutputLimits,
    OutputStream,
    Process,
    World,
)
from execworld.seams.values import record
from execworld.world import leaf_errors

STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
NOTHING_KEPT: Final = OutputLimits(head_bytes=0, tail_bytes=0)
JSON_LIMITS: Final = OutputLimits(head_bytes=512 * 1024, tail_bytes=512 * 1024)
_READER_PATIENCE_S: Final = 2.0
"""How long after the end of a time limit the reader of our output may still stand in the way."""


@record
class Command:
    """What to run and how.

    Attributes:
        forward_stdin: Pass our input on; None for what the input is: a pipe or file yes, a terminal or device no.
    """

    argv: tuple[bytes, ...]
    tty: bool
    timeout_s: float | None
    grace_s: float
    variables: Mapping[str, str]
    cwd: str | None
    forward_stdin: bool | None

    @property
    def forwards(self) -> bool:
        return carries_input(STDIN) if self.forward_stdin is None else self.forward_stdin


def run_command(choice: WorldChoice, command: Command, *, as_json: bool) -> int:
    """Run *command* and return the exit code of this program; with *as_json*, print one object whatever happens."""
    outcome = _Outcome()

    async def work() -> int:
        async with choice.open() as world:
            outcome.world = world
            result = await _execute(world, command, outcome if as_json else None)
        return exits.code_of_result(result)

    if not as_json:
        return run_supervised(work)
    try:
        code = run_supervised(work)
    except Exception as error:  # noqa: BLE001 - whatever it is, the reader of the object is told in the object
        code = outcome.take(error)
    anyio.run(_print, encode_document(outcome.as_dict()))
    return code


async def _print(data: bytes) -> None:
    await Sink(STDOUT).write(data)


async def _execute(world: World, command: Command, outcome: _Outcome | None) -> CommandResult:
    if command.tty:
        from execworld.cli.terminals import run_on_terminal  # termios is of no use to anything else

        return await run_on_terminal(
            world,
            list(command.argv),
            cwd=command.cwd,
            env=command.variables,
            timeout_s=command.timeout_s,
            grace_s=command.grace_s,
            forward_stdin=command.forward_stdin is not False,
        )
    if outcome is not None:
        return await _run_for(outcome, world, command)
    start = partial(_started, world, command, NOTHING_KEPT)
    return await run_streaming(start, timeout_s=command.timeout_s, grace_s=command.grace_s)


async def _run_for(outcome: _Outcome, world: World, command: Command) -> CommandResult:
    """Run *command* and let *outcome* know its result, also that of one which was ended because we were told to end."""
    process: Process | None = None
    try:
        async with _started(world, command, JSON_LIMITS) as process:
            outcome.result = await _wait(process)
    finally:
        if outcome.result is None and process is not None and not process.running:
            with anyio.CancelScope(shield=True), contextlib.suppress(ExecworldError):
                outcome.result = await process.wait()
    assert outcome.result is not None
    return outcome.result


async def run_streaming(
    start: Callable[[OutputCallback], AbstractAsyncContextManager[Process]],
    *,
    timeout_s: float | None,
    grace_s: float,
) -> CommandResult:
    """Start a command with our streams as its own and wait for it."""
    result: CommandResult | None = None
    with Streams() as streams:
        abandon: Callable[[], Coroutine[Any, Any, None]] | None = None
        if timeout_s is not None:
            abandon = partial(streams.abandon_after, timeout_s + grace_s + _READER_PATIENCE_S)
        async with start(streams.deliver) as process:
            result = await _wait(process, abandon)
    assert result is not None
    tell_of(result)
    return result


def _started(
    world: World, command: Command, limits: OutputLimits, on_output: OutputCallback | None = None
) -> AbstractAsyncContextManager[Process]:
    return world.subprocess.start(
        list(command.argv),
        cwd=command.cwd,
        env=command.variables,
        pipe_stdin=command.forwards,
        limits=limits,
        timeout_s=command.timeout_s,
        grace_s=command.grace_s,
        on_output=on_output,
    )


async def _wait(
    process: Process, abandon: Callable[[], Coroutine[Any, Any, None]] | None = None
) -> CommandResult:
    result: CommandResult | None = None
    async with anyio.create_task_group() as tasks:
        if process.stdin is not None:
            tasks.start_soon(_forward, process.stdin)
        if abandon is not None:
            tasks.start_soon(abandon)
        result = await process.wait()
        tasks.cancel_scope.cancel()
    assert result is not None
    return result


async def _forward(stdin: ByteSendStream) -> None:
    try:
        async for chunk in read_chunks(STDIN):
            await stdin.send(chunk)
    except (anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # the command does not want any more, which is its right
    await stdin.aclose()


class Streams:
    """Our standard output and error as the place where a command's output goes, while it arrives."""

    def __init__(self) -> None:
        self._sinks = {OutputStream.STDOUT: Sink(STDOUT), OutputStream.STDERR: Sink(STDERR)}
        self._writing: set[anyio.CancelScope] = set()
        self._abandoned = False

    def __enter__(self) -> Streams:
        return self

    def __exit__(self, *details: object) -> None:
        for sink in self._sinks.values():
            sink.close()

    async def deliver(self, stream: OutputStream, data: bytes) -> None:
        if self._abandoned:
            return
        with anyio.CancelScope() as scope:
            self._writing.add(scope)
            try:
                await self._sinks[stream].write(data)
            finally:
                self._writing.discard(scope)

    async def abandon_after(self, delay_s: float) -> None:
        """Drop all output from then on: a time limit holds although nobody reads what the command wrote."""
        await anyio.sleep(delay_s)
        self._abandoned = True
        note("output was dropped, because nobody read it")
        for scope in self._writing:
            scope.cancel()


def tell_of(result: CommandResult) -> None:
    """Say what a reader of the output could not know."""
    for text in result.notes:
        note(text)
    if result.timed_out:
        note(f"the time limit of {result.timeout_s:g} s ended the command")
    elif result.background:
        note("processes that the command left in the background end now, with the world")
    if result.tree is not None and not result.tree.gone:
        note(f"still alive: {', '.join(str(pid) for pid in result.tree.survivors) or 'some process'}")


class _Outcome:
    """What is known at the end, however it came."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.result: CommandResult | None = None
        self.status: str | None = None
        self.interrupted_by: int | None = None
        self.error: dict[str, object] | None = None

    def take(self, error: Exception) -> int:
        """Keep *error* for the object and return its exit code."""
        if isinstance(error, Interrupted):
            self.status, self.interrupted_by = "interrupted", error.number
            if isinstance(error.__cause__, Exception):
                self.take(error.__cause__)
                self.status = "interrupted"
            return exits.SIGNAL_BASE + error.number
        self.status = "error"
        known = [leaf for leaf in leaf_errors(error) if isinstance(leaf, ExecworldError)]
        if known:
            hint = hint_of(known[0])
            self.error = known[0].as_dict() | ({"hint": hint} if hint else {})
            return exits.code_of_error(known[0])
        self.error = {"code": "INTERNAL", "message": f"{type(error).__name__}: {error}", "retryable": None}
        return report(error)

    def as_dict(self) -> dict[str, object]:
        result = self.result
        status = (
            self.status if self.status is not None else str(result.status) if result is not None else "error"
        )
        unknown: object = None
        fields = dict.fromkeys(_RESULT_FIELDS, unknown)
        if self.world is not None:
            fields |= {
                "world_id": self.world.world_id,
                "view_id": self.world.view_id,
                "enforcement": self.world.enforcement.as_dict(),
            }
        if result is not None:
            fields |= {name: getattr(result, name) for name in _RESULT_FIELDS}
            fields |= {
                "stdout": _output(result.stdout),
                "stderr": _output(result.stderr),
                "enforcement": result.enforcement.as_dict(),
                "tree": None if result.tree is None else dataclasses.asdict(result.tree),
                "usage": None if result.usage is None else dataclasses.asdict(result.usage),
                "notes": list(result.notes),
            }
        return {"status": status, **fields, "interrupted_by": self.interrupted_by, "error": self.error}


_RESULT_FIELDS: Final = tuple(field.name for field in dataclasses.fields(CommandResult))


def _output(output: Output) -> dict[str, object]:
    """``text`` where the bytes are UTF-8, else ``base64``; what was dropped is marked in the text and counted."""
    fields: dict[str, object] = {
        "total_bytes": output.total_bytes,
        "dropped_bytes": output.dropped_bytes,
        "dropped_lines": output.dropped_lines,
        "truncated": output.truncated,
        "complete": output.complete,
    }
    try:
        text = output.text if output.truncated else output.data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(output.data).decode("ascii"), **fields}
    return {"text": text, **fields}
