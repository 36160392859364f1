"""One shell that runs commands one after the other, and gives back what each wrote and its exit status.

The shell is on a terminal without prompt and echo. A command is typed to it as the value of a variable, in pieces that
a terminal takes, and evaluated when it is whole: an unfinished one is an error of syntax, and does not eat what is
typed next; one that reads its input reads the terminal, and none of the commands.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import anyio

from execworld.seams import CommandInvalid, ExecworldError, World
from execworld.seams.values import value_class
from execworld.tools.terminals.readiness import Timing, WaitReason
from execworld.tools.terminals.service import TerminalService
from execworld.tools.terminals.values import SendResult, Viewport

if TYPE_CHECKING:
    from execworld.tools.terminals.session import TerminalSession  # brings pyte

# A terminal takes lines of up to 4095 bytes (N_TTY). A character has up to four, and so has a quote in quotes.
_PIECE_CHARS: Final = 900
# The terminal acts on these when they are typed, unless ^V stands before them.
_CONTROLS: Final = re.compile(r"[\x01-\x08\x0b-\x1f\x7f]")
_TIMING: Final = Timing(settle_s=2.0, unanswered_s=2.0, idle_s=math.inf)
_BACK_TO_PROMPT_S: Final = 3.0


@value_class
class PersistentResult:
    """What became of a command.

    Attributes:
        viewport: What it wrote.
        reason: Why there is a result now; with ``stdin_read`` it still runs.
        exit_code: Its exit status; None when it did not end, or took the shell with it.
        shell_exit_code: Exit code of the shell, when the command ended it.
        shell_ended: The next command gets a new shell.
    """

    viewport: Viewport
    reason: WaitReason
    exit_code: int | None
    shell_exit_code: int | None
    shell_ended: bool


class PersistentShell:
    """A shell that is started with the first command, and again after one that ended it."""

    def __init__(self, terminals: TerminalService) -> None:
        self._terminals = terminals
        self._session: TerminalSession | None = None
        self._lock = anyio.Lock()

    async def run(self, world: World, cwd: str, command: str, timeout_s: float) -> PersistentResult:
        """Run *command*, after those that were begun before it.

        A command that is not over in time takes the shell with it, and so does a cancellation.

        Raises:
            CommandInvalid: it is blank or holds a NUL.
            CommandNotFound, SpawnFailed: there is no shell.
        """
        lines = typed_lines(command)
        async with self._lock:
            session = await self._ready(world, cwd)
            session.begin_line()
            try:
                operation = session.begin_send("\r".join(lines), timeout_s=timeout_s, prompts=len(lines))
                result = await operation.wait()
                if result.reason is WaitReason.PROMPT and session.prompt_repeated:
                    asked = await session.begin_send("(exit $?)", timeout_s=timeout_s).wait()
                    result = replace(result, last_exit_code=asked.last_exit_code)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._end(session)
                raise
            ended = result.reason in (WaitReason.TIMEOUT, WaitReason.SESSION_EXIT)
            if ended:
                await self._end(session)
            return _result(result, ended=ended)

    async def aclose(self) -> None:
        """End the shell and what it left. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await self._terminals.close(self, session.id)

    async def _ready(self, world: World, cwd: str) -> TerminalSession:
        """A shell at its prompt: the one from before, if it can be had."""
        session = self._session
        if session is not None:
            same = session.view_id == world.view_id and not session.exited
            if same and (session.at_prompt or await _interrupted(session)):
                return session
            await self._end(session)
        env = {"TERM": "dumb"}
        self._session, _ = await self._terminals.open(
            self, world, silent=True, timing=_TIMING, cwd=cwd, env=env
        )
        return self._session

    async def _end(self, session: TerminalSession) -> None:
        if self._session is session:
            self._session = None
        await self._terminals.close(self, session.id)


async def _interrupted(session: TerminalSession) -> bool:
    """Bring the shell back from a command that waits for input; whether that was possible."""
    try:
        operation = session.begin_send("\x03", submit=False, timeout_s=_BACK_TO_PROMPT_S)
        return (await operation.wait()).reason is WaitReason.PROMPT
    except ExecworldError:
        return False


def typed_lines(command: str) -> list[str]:
    """What is typed for a command; the shell prompts once after each.

    Raises:
        CommandInvalid: the command is blank or holds a NUL.
    """
    if not command.strip():
        raise CommandInvalid("the command is blank", op="terminal.run")
    if "\0" in command:
        raise CommandInvalid("the command holds a NUL", op="terminal.run")
    pieces = [command[start : start + _PIECE_CHARS] for start in range(0, len(command), _PIECE_CHARS)]
    quoted = ["'" + _CONTROLS.sub("\x16\\g<0>", piece.replace("'", "'\\''")) + "'" for piece in pieces]
    first, *further = quoted
    return [
        f"_execworld_command={first}",
        *(f"_execworld_command=$_execworld_command{piece}" for piece in further),
        'eval "$_execworld_command"',
    ]


def _result(result: SendResult, *, ended: bool) -> PersistentResult:
    viewport = result.viewport
    if viewport.lines[-1:] == ("",):
        # The line of the cursor, in which nothing is written yet.
        viewport = replace(
            viewport, lines=viewport.lines[:-1], first=viewport.first if viewport.lines[1:] else 0
        )
    return PersistentResult(
        viewport=viewport,
        reason=result.reason,
        exit_code=result.last_exit_code if result.reason is WaitReason.PROMPT else None,
        shell_exit_code=result.status.exit_code if result.reason is WaitReason.SESSION_EXIT else None,
        shell_ended=ended,
    )
