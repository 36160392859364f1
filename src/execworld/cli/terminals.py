"""A command on a terminal in the world, joined to our own terminal when we have one."""

from __future__ import annotations

import dataclasses
import os
import signal
import termios
import tty
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import anyio

from execworld.cli.descriptors import Sink, read_chunks
from execworld.cli.messages import is_terminal
from execworld.seams import Argument, CommandResult, Terminal, World

STDIN: Final = 0
STDOUT: Final = 1
_END_OF_INPUT: Final = b"\x04"


async def run_on_terminal(
    world: World,
    argv: Sequence[Argument],
    *,
    cwd: str | None,
    env: Mapping[str, str],
    timeout_s: float | None,
    grace_s: float,
    forward_stdin: bool,
) -> CommandResult:
    """Run *argv* on a terminal. Our own is in raw mode meanwhile, so every key goes to the command, Ctrl-C too."""
    rows, columns = window_size()
    timed_out, result = False, None
    async with world.subprocess.open_terminal(
        argv, rows=rows, columns=columns, cwd=cwd, env=_with_terminal_type(env), grace_s=grace_s
    ) as terminal:
        with raw_mode(STDIN):
            async with anyio.create_task_group() as tasks:
                if is_terminal(STDIN):
                    tasks.start_soon(_follow_size, terminal)
                if forward_stdin:
                    tasks.start_soon(_type_input, terminal)
                timed_out = await _show_output(terminal, timeout_s)
                result = await terminal.wait()
                tasks.cancel_scope.cancel()
    assert result is not None
    return _as_timed_out(result, timeout_s) if timed_out else result


def _as_timed_out(result: CommandResult, timeout_s: float | None) -> CommandResult:
    # The terminal of a world has no time limit of its own: the one that ended the command was ours.

    return dataclasses.replace(result, timed_out=True, cancelled=False, timeout_s=timeout_s)


async def _show_output(terminal: Terminal, timeout_s: float | None) -> bool:
    """Copy the terminal's output to ours until its end; whether the time limit was what ended it."""
    sink = Sink(STDOUT)
    try:
        with anyio.move_on_after(timeout_s) as limit:
            await _copy(terminal, sink)
        if limit.cancelled_caught:
            await terminal.terminate()
    finally:
        sink.close()
    return limit.cancelled_caught


async def _copy(terminal: Terminal, sink: Sink) -> None:
    while True:
        try:
            data = await terminal.receive()
        except anyio.EndOfStream:
            return
        await sink.write(data)


async def _type_input(terminal: Terminal) -> None:
    try:
        async for chunk in read_chunks(STDIN):
            await terminal.send(chunk)
        await terminal.send(_END_OF_INPUT)
    except anyio.BrokenResourceError:
        return  # the command ended


async def _follow_size(terminal: Terminal) -> None:
    with anyio.open_signal_receiver(signal.SIGWINCH) as changes:
        # It may have changed since the terminal was opened.
        await terminal.resize(*window_size())
        await _resize_on(changes, terminal)


async def _resize_on(changes: AsyncIterator[signal.Signals], terminal: Terminal) -> None:
    async for _ in changes:
        await terminal.resize(*window_size())


def window_size() -> tuple[int, int]:
    """Rows and columns of our terminal, 24 by 80 where there is none or it does not know."""
    for descriptor in (STDIN, STDOUT):
        try:
            size = os.get_terminal_size(descriptor)
        except OSError:
            continue
        if size.lines > 0 and size.columns > 0:
            return size.lines, size.columns
    return 24, 80


@contextmanager
def raw_mode(descriptor: int) -> Generator[None]:
    """Our terminal hands on each key as it is; afterwards it is as it was. Nothing happens without a terminal."""
    if not is_terminal(descriptor):
        yield
        return
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor, termios.TCSADRAIN)  # flushing would lose what was typed meanwhile
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _with_terminal_type(env: Mapping[str, str]) -> Mapping[str, str]:
    kind = os.environ.get("TERM")
    return {"TERM": kind, **env} if kind and is_terminal(STDIN) else env
