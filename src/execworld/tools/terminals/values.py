"""What a reader of terminals gets."""

from __future__ import annotations

from execworld.seams.values import value_class
from execworld.tools.terminals.readiness import WaitReason


@value_class
class TerminalStatus:
    """Whether the program runs, and how it ended.

    Attributes:
        running: It has not ended.
        exit_code: Of a program that ended by itself.
        signal: Number of the signal that ended it.
    """

    running: bool
    exit_code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.running:
            return "running"
        if self.signal is not None:
            return f"ended by signal {self.signal}"
        return "ended" if self.exit_code is None else f"exited with code {self.exit_code}"


@value_class
class TerminalInfo:
    """One line of a list of terminals."""

    id: str
    name: str | None
    command: str
    status: TerminalStatus
    pid: int


@value_class
class Viewport:
    """Text of a terminal, and the place of the cursor.

    Attributes:
        lines: What there is to read.
        first: Number of the first line, from 1; 0 when there is none.
        total: How many lines can be read in all.
        truncated: Earlier lines belong to it that are not kept.
        full_screen: A program shows its own screen, and these are its rows.
        cursor: Row and column on the screen, counted from 1.
        size: Rows and columns of the screen.
    """

    lines: tuple[str, ...]
    first: int
    total: int
    truncated: bool
    full_screen: bool
    cursor: tuple[int, int]
    size: tuple[int, int]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


@value_class
class SendResult:
    """What became of an input.

    Attributes:
        viewport: What was written since, from the line of the cursor on.
        reason: Why there is a result now.
        status: The program of the terminal.
        last_exit_code: Exit status of the last command of the shell, if this send saw it end.
        typed: All of the input was taken by the terminal.
        interrupted: It was interrupted on request.
    """

    viewport: Viewport
    reason: WaitReason
    status: TerminalStatus
    last_exit_code: int | None = None
    typed: bool = True
    interrupted: bool = False
