"""What the terminal tools have in common: their configuration, and how they show text."""

from __future__ import annotations

from pydantic import BaseModel, Field

from execworld.tools.content import Content, Text
from execworld.tools.terminals import TerminalStatus, Viewport

READ_LIMIT_BYTES = 262_144


class TerminalTools(BaseModel, extra="forbid", frozen=True):
    """Configuration of the terminal tools."""

    rows: int = Field(
        default=40, ge=2, le=500, description="height of a screen, unless a call says otherwise"
    )
    columns: int = Field(
        default=160, ge=20, le=1000, description="width of a screen, unless a call says otherwise"
    )
    send_timeout_s: float = Field(
        default=30, gt=0, description="how long a send waits, unless it says otherwise"
    )
    max_send_timeout_s: float = Field(default=600, gt=0, description="the longest that a send may wait")
    limit_bytes: int = Field(default=READ_LIMIT_BYTES, ge=64, description="of all that one call shows")
    close_grace_s: float = Field(
        default=1.0, gt=0, description="between TERM and KILL when a terminal is closed"
    )


class TerminalText(BaseModel, frozen=True):
    """Text of a terminal."""

    text: str = Field(description="lines, joined by line feeds")
    first_line: int = Field(description="number of the first line, counted from 1; 0 when there is none")
    total_lines: int = Field(description="how many lines can be read in all")
    truncated: bool = Field(description="earlier lines belong to it that are not kept")
    full_screen: bool = Field(description="the rows of the screen of a full-screen program")
    cursor: tuple[int, int] = Field(description="row and column of the cursor on the screen, counted from 1")
    size: tuple[int, int] = Field(description="rows and columns of the screen")


class TerminalState(BaseModel, frozen=True):
    """Whether the program of a terminal runs, and how it ended."""

    running: bool
    exit_code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        return str(TerminalStatus(self.running, self.exit_code, self.signal))


def text_of(viewport: Viewport) -> TerminalText:
    return TerminalText(
        text=viewport.text,
        first_line=viewport.first,
        total_lines=viewport.total,
        truncated=viewport.truncated,
        full_screen=viewport.full_screen,
        cursor=viewport.cursor,
        size=viewport.size,
    )


def state_of(status: TerminalStatus) -> TerminalState:
    return TerminalState(running=status.running, exit_code=status.exit_code, signal=status.signal)


def shown(text: TerminalText, placeholder: str, *markers: str) -> Content:
    """The text, or a placeholder, and lines in square brackets that say what cannot be seen in it."""
    parts = [text.text if text.text.strip() else placeholder]
    if text.truncated:
        parts.insert(0, "[earlier lines were dropped]")
    if text.full_screen:
        (row, column), (rows, columns) = text.cursor, text.size
        parts.append(
            f"[full screen of {rows} rows and {columns} columns; cursor in row {row}, column {column}]"
        )
    return (Text("\n".join([*parts, *(f"[{marker}]" for marker in markers)])),)
