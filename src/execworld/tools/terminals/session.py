"""One program on a terminal of its own, with a screen and a reader that never blocks it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import anyio
from anyio.abc import TaskGroup

from execworld.seams.errors import CleanupIncomplete, ExecworldError, SignalRefused
from execworld.seams.subprocess import Subprocess
from execworld.seams.terminal import Foreground, Terminal
from execworld.seams.tool_errors import NoSession, SendActive
from execworld.seams.values import value_class
from execworld.tools.terminals.emulator import Emulator, Text
from execworld.tools.terminals.operation import SendOperation
from execworld.tools.terminals.readiness import Timing
from execworld.tools.terminals.shells import TERMINAL_ENVIRONMENT, PromptedShell, PromptMark
from execworld.tools.terminals.values import SendResult, TerminalInfo, TerminalStatus, Viewport

_CHUNK_BYTES: Final = 32 * 1024  # what is laid out without letting others run
_MOST_ANSWERS: Final = 64  # that wait for a program to read them; it does not read what is more
_HANG_UP: Final = 1  # SIGHUP
_PASTE_START: Final = "\x1b[200~"
_PASTE_END: Final = "\x1b[201~"
# A line editor takes a tab and a line end within for keys. Other controls are keys, and meant to be.
_PASTED: Final = re.compile(r"(?=.*[\t\n])[^\x00-\x08\x0b-\x1f\x7f-\x9f]+", re.DOTALL)


@value_class
class TerminalSpec:
    """What runs on a terminal.

    Attributes:
        argv: The program; for a shell the words that start it.
        shell: Set for a shell whose prompts are marked.
        cwd: Working directory; the world's by default.
        env: On top of what every command gets.
        rows: Height of the screen.
        columns: Width of the screen.
        scrollback_lines: How many lines are kept above the screen.
        scrollback_chars: And how many characters in all.
        grace_s: Time between TERM and KILL at closing.
    """

    argv: Sequence[str]
    shell: PromptedShell | None = None
    cwd: str | None = None
    env: Mapping[str, str | None] | None = None
    rows: int = 40
    columns: int = 160
    scrollback_lines: int = 10_000
    scrollback_chars: int = 4 * 1024 * 1024
    grace_s: float = 1.0


class TerminalSession:
    """See `TerminalService` for how to get one."""

    def __init__(self, ident: str, name: str | None, spec: TerminalSpec, timing: Timing) -> None:
        self.id = ident
        self.name = name
        self.timing = timing
        self._spec = spec
        self.emulator = Emulator(
            spec.rows,
            spec.columns,
            scrollback_lines=spec.scrollback_lines,
            scrollback_chars=spec.scrollback_chars,
            answer=self._answer,
            command_string=self._command_string,
        )
        self._terminal: Terminal | None = None
        self._tasks: TaskGroup | None = None
        self._opened = anyio.Event()
        self._leave = anyio.Event()
        self._left = anyio.Event()
        self._typing = anyio.Lock()
        self._to_answer, self._answers = anyio.create_memory_object_stream[bytes](_MOST_ANSWERS)
        self._operation: SendOperation | None = None
        self._closing = False
        self._failure: ExecworldError | None = None
        self._status = TerminalStatus(running=True)
        self._pid = -1
        self._prompt_place: tuple[int, int] | None = None
        self.changed = anyio.Event()
        """Set, and replaced, whenever there is output or the program ends."""
        self.last_output_at = -math.inf
        self.received_bytes = 0
        self.prompt: PromptMark | None = None
        self.prompt_count = 0
        self.prompt_repeated = False
        """The last prompt is an older one, drawn again; its status is the one from then."""
        self.provable = False
        """The world has proven a wait for input here."""
        self.view_id = ""

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def status(self) -> TerminalStatus:
        return self._status

    @property
    def exited(self) -> bool:
        return not self._status.running

    @property
    def shell_group(self) -> int | None:
        """Process group of the shell; None when another program runs here."""
        return None if self._spec.shell is None else self._pid

    @property
    def at_prompt(self) -> bool:
        """The shell drew its prompt, and nothing came after it."""
        return self._prompt_place is not None and self.emulator.is_at(self._prompt_place)

    @property
    def info(self) -> TerminalInfo:
        command = "shell" if self._spec.shell is not None else " ".join(self._spec.argv)
        return TerminalInfo(self.id, self.name, command, self._status, self._pid)

    async def host(self, subprocess: Subprocess) -> None:
        """Open the terminal and hold it until it is closed or the program ends; a task of its own."""
        spec = self._spec
        try:
            async with subprocess.open_terminal(
                spec.argv,
                rows=spec.rows,
                columns=spec.columns,
                cwd=spec.cwd,
                env={**TERMINAL_ENVIRONMENT, **(spec.env or {})},
                grace_s=spec.grace_s,
            ) as terminal:
                self._terminal, self._pid, self.view_id = terminal, terminal.pid, terminal.view_id
                async with anyio.create_task_group() as tasks:
                    self._tasks = tasks
                    tasks.start_soon(self._pump, terminal)
                    tasks.start_soon(self._type_answers)
                    self._opened.set()
                    await self._leave.wait()
                    await self._hang_up(terminal)
                    tasks.cancel_scope.cancel()
        except ExecworldError as error:
            self._fail(error)
        finally:
            self._tasks = None
            if self._status.running:
                self._status = TerminalStatus(running=False)
            self._answers.close()
            self._to_answer.close()
            self._opened.set()
            self._left.set()
            self._announce()

    async def opened(self) -> None:
        """Wait until the program was started.

        Raises:
            ExecworldError: why it was not.
        """
        await self._opened.wait()
        if self._failure is not None and self._terminal is None:
            raise self._failure

    async def start_up(self, timeout_s: float) -> SendResult:
        """Wait until the program can be talked to, as far as that can be told; a shell is made to mark its prompts."""
        shell = self._spec.shell
        first = "" if shell is None else shell.first_line
        operation = self._start(
            SendOperation(self, first, submit=shell is not None, timeout_s=timeout_s, starts=True)
        )
        result = await operation.wait()
        if shell is not None and self.prompt is not None:
            if shell.silent:
                self.begin_line()  # after the prompt from before
            self.emulator.forget()  # the line that made the prompt
            self._prompt_place = self.emulator.place
            return replace(result, viewport=self.read())
        return result

    def begin_line(self) -> None:
        """Have what is written next begin in a line of its own, whatever was written last."""
        at_prompt = self.at_prompt
        if self.emulator.cursor[1] > 1:
            self.emulator.feed(b"\r\n")
        if at_prompt:
            self._prompt_place = self.emulator.place

    def begin_send(
        self, text: str, *, submit: bool = True, timeout_s: float = 30.0, prompts: int = 1
    ) -> SendOperation:
        """Type *text*, and Enter with *submit*; the operation knows when it is answered.

        Raises:
            SendActive: another one is not answered yet.
        """
        return self._start(SendOperation(self, text, submit=submit, timeout_s=timeout_s, prompts=prompts))

    def _start(self, operation: SendOperation) -> SendOperation:
        if self._operation is not None:
            raise SendActive(f"terminal {self.id} is still at the last input", op="terminal.send")
        if self._tasks is None or self._closing or self.exited:
            raise NoSession(
                f"nothing runs on terminal {self.id} any more: it {self._status}",
                op="terminal.send",
                hint="its text can still be read",
            )
        self._operation = operation
        self._tasks.start_soon(operation.run)
        return operation

    def settled(self, operation: SendOperation) -> None:
        if self._operation is operation:
            self._operation = None

    @property
    def operation(self) -> SendOperation | None:
        """The send that is under way."""
        return self._operation

    def viewport(self, text: Text) -> Viewport:
        emulator = self.emulator
        return Viewport(
            text.lines,
            text.first,
            text.total,
            text.truncated,
            emulator.full_screen,
            emulator.cursor,
            emulator.size,
        )

    def read(self, offset: int = 0, count: int = 500) -> Viewport:
        """*count* lines, the last of which is the one before the newest *offset*; nothing is consumed.

        Raises:
            ValueError: a number is negative.
        """
        if offset < 0 or count < 0:
            raise ValueError(f"offset and count must not be negative, got {offset} and {count}")
        return self.viewport(self.emulator.page(offset, count))

    async def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal and of its screen."""
        if self._terminal is not None and not self.exited:
            await self._terminal.resize(rows, columns)
        at_prompt = self.at_prompt
        self.emulator.resize(rows, columns)
        if at_prompt:
            self._prompt_place = self.emulator.place

    async def signal(self, number: int) -> int:
        """Signal the foreground group, and say which that is.

        Raises:
            SignalRefused: there is none, or KILL would hit the program that the terminal was opened with.
        """
        if self._terminal is None or self.exited:
            raise SignalRefused(f"terminal {self.id} has {self._status}", op="terminal.signal")
        return await self._terminal.signal_foreground(number)

    async def foreground(self) -> Foreground | None:
        if self._terminal is None or self.exited:
            return None
        return await self._terminal.foreground()

    def keys(self, text: str, *, submit: bool, foreground: Foreground | None) -> bytes:
        """What is typed for *text*.

        To the shell's own line editor, lines and tabs within go as one paste, where it can take one: it then neither
        completes names nor runs half of the lines.
        """
        in_shell = foreground is not None and foreground.group_id == self.shell_group
        if in_shell and _PASTED.fullmatch(text) and self.emulator.takes_paste:
            text = f"{_PASTE_START}{text}{_PASTE_END}"
        return (text + "\r" * submit).encode("utf-8", "surrogateescape")

    async def type(self, data: bytes) -> bool:
        """Type bytes; False when there is nothing any more that they could go to."""
        if self._terminal is None:
            return False
        if data:
            try:
                async with self._typing:
                    await self._terminal.send(data)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                return False
            except ExecworldError as error:
                self._fail(error)
                return False
        return True

    async def close(self) -> bool:
        """End the program and all that it left; True when this call did it, False when it joined one that was at it.

        Raises:
            CleanupIncomplete: something could not be proven gone. The next call tries again.
        """
        if self._closing and not self._left.is_set():
            await self._left.wait()
            return False
        self._closing = True
        self._leave.set()
        retried = self._left.is_set() and isinstance(self._failure, CleanupIncomplete)
        await self._left.wait()
        if retried and self._terminal is not None:
            self._failure = None
            await self._terminal.aclose()
        if isinstance(self._failure, CleanupIncomplete):  # what else befell it is over with it
            self._closing = False
            raise self._failure
        return True

    @property
    def failure(self) -> ExecworldError | None:
        """What befell the world of the terminal, or kept it from being closed; None when nothing did."""
        return self._failure

    async def _hang_up(self, terminal: Terminal) -> None:
        """What closing the window of a terminal does first; an interactive shell ignores TERM, not this."""
        if not self.exited:
            try:
                await terminal.signal_foreground(_HANG_UP)
            except ExecworldError:
                pass  # what is left is ended by closing

    async def _pump(self, terminal: Terminal) -> None:
        try:
            while True:
                try:
                    data = await terminal.receive(_CHUNK_BYTES)
                except anyio.EndOfStream:
                    break
                self.received_bytes += len(data)
                self.last_output_at = anyio.current_time()
                self.emulator.feed(data)
                self._announce()
            result = await terminal.wait()
            self._status = TerminalStatus(running=False, exit_code=result.exit_code, signal=result.signal)
        except ExecworldError as error:
            self._fail(error)
        except anyio.ClosedResourceError:
            pass  # it is being closed
        self._announce()
        if self._operation is not None:
            await self._operation.over()
        self._leave.set()

    def _fail(self, error: ExecworldError) -> None:
        if self._failure is None:
            self._failure = error
        self._status = TerminalStatus(running=False)

    def _announce(self) -> None:
        changed, self.changed = self.changed, anyio.Event()
        changed.set()

    def _answer(self, text: str) -> None:
        try:
            self._to_answer.send_nowait(text.encode("ascii"))
        except anyio.WouldBlock:
            pass  # it asks without reading
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it ended

    async def _type_answers(self) -> None:
        async for data in self._answers:
            await self.type(data)

    def _command_string(self, kind: str, body: str) -> None:
        shell = self._spec.shell
        mark = None if shell is None else shell.prompt_mark(kind, body)
        if mark is None or shell is None:
            return
        # A line editor draws the same prompt again and again; without one it stands for an end all the same: after some
        # errors of syntax bash shows the last prompt as it was.
        self.prompt_repeated = self.prompt is not None and mark.count == self.prompt.count
        if not self.prompt_repeated or shell.silent:
            self.prompt_count += 1
        self.prompt = mark
        self._prompt_place = self.emulator.place_being_laid_out
