"""A terminal emulator without a window: bytes of a program in, text for a reader out."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Final

from execworld.seams.values import value_class
from execworld.tools.terminals.interpreter import Interpreter
from execworld.tools.terminals.screen import Screen
from execworld.tools.terminals.scrollback import Scrollback
from execworld.tools.terminals.sequences import SequenceParser

_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_PLAIN: Final = _PRINTABLE + b"\r\n"
_BATCH_BYTES: Final = 256 * 1024
_FEW_BYTES: Final = 64


@value_class
class Text:
    """Lines for a reader.

    Attributes:
        lines: What there is; of a full-screen program the rows of its screen.
        first: Number of the first of them, counted from 1; 0 when there is none.
        total: How many lines there are to read.
        truncated: Earlier lines were asked for, or existed, and are not kept.
    """

    lines: tuple[str, ...]
    first: int
    total: int
    truncated: bool


class Emulator:
    """Keeps a screen and the lines that left it at the top.

    Output of plain lines is only laid out when somebody looks, or a batch has come together; what would be far above
    the screen then goes by without being drawn. Nobody can tell but by the time that it takes.
    """

    def __init__(
        self,
        rows: int,
        columns: int,
        *,
        scrollback_lines: int = 10_000,
        scrollback_chars: int = 4 * 1024 * 1024,
        answer: Callable[[str], None] = lambda _: None,
        command_string: Callable[[str, str], None] = lambda _kind, _body: None,
    ) -> None:
        self._scrollback = Scrollback(scrollback_lines, scrollback_chars)
        self._screen = Screen(rows, columns, self._scrollback)
        self._interpreter = Interpreter(self._screen, answer, command_string)
        self._parser = SequenceParser(self._interpreter)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._undecoded = False
        self._pending = bytearray()

    @property
    def size(self) -> tuple[int, int]:
        return self._screen.lines, self._screen.columns

    @property
    def full_screen(self) -> bool:
        """A program shows the alternate screen."""
        self.flush()
        return self._screen.alternate

    @property
    def takes_paste(self) -> bool:
        """The program asked for pasted text to be marked as such (bracketed paste)."""
        self.flush()
        return self._interpreter.bracketed_paste

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column on the screen, counted from 1."""
        self.flush()
        return self._screen.cursor.y + 1, min(self._screen.cursor.x, self._screen.columns - 1) + 1

    @property
    def place(self) -> tuple[int, int]:
        """Where the next character goes, in a way that tells two places apart for good."""
        self.flush()
        return self.place_being_laid_out

    @property
    def place_being_laid_out(self) -> tuple[int, int]:
        """The same for a listener, which is called in the middle of the output."""
        return self._scrollback.rows + self._screen.cursor.y, self._screen.cursor.x

    def is_at(self, place: tuple[int, int]) -> bool:
        """Whether nothing was drawn since *place* was asked for; costs little amid a flood."""
        if len(self._pending) > _FEW_BYTES:
            return False
        return self.place == place

    @property
    def title(self) -> str:
        self.flush()
        return self._screen.title

    def feed(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) >= _BATCH_BYTES or data.translate(None, _PLAIN):
            self.flush()

    def flush(self) -> None:
        """Lay out what came."""
        if not self._pending:
            return
        data = bytes(self._pending)
        self._pending.clear()
        if not self._pass_by(data):
            self._lay_out(data)

    def _lay_out(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        self._undecoded = bool(self._decoder.getstate()[0])
        self._parser.feed(text)

    def _pass_by(self, data: bytes) -> bool:
        """Take many plain lines, drawing only those that end up on the screen, if that is what they are."""
        rows = self._screen.lines
        if data.count(b"\n") < 4 * rows or data.translate(None, _PLAIN):
            return False
        if self._undecoded or not self._parser.between_sequences or not self._screen.plain:
            return False
        start, end = data.index(b"\n") + 1, data.rindex(b"\n") + 1
        lines = data[start : end - 2].decode("ascii").split("\r\n")
        if data[end - 2] != 0x0D or any("\r" in line or "\n" in line for line in lines):
            return False
        # The first ones take the cursor to the bottom, the last ones fill the screen anew.
        self._lay_out(data[:start])
        self._lay_out_lines(lines[:rows])
        self._screen.start_over()
        first_shown = max(rows, len(lines) - rows + 1)
        self._scrollback.extend(lines[rows:first_shown], self._screen.columns)
        self._lay_out_lines(lines[first_shown:])
        self._lay_out(data[end:])
        return True

    def _lay_out_lines(self, lines: list[str]) -> None:
        self._parser.feed("".join([f"{line}\r\n" for line in lines]))

    def resize(self, rows: int, columns: int) -> None:
        self.flush()
        self._screen.resize(rows, columns)

    def forget(self) -> None:
        """Let go of every line above the one that the cursor is in."""
        self.flush()
        self._screen.scroll_up(self._screen.cursor.y)
        self._screen.cursor.y = 0
        self._scrollback.clear()
        self._scrollback.dropped_lines = 0

    def mark(self) -> int:
        """The row that the cursor is in, from which on `text_since` gives the text; at most one mark is kept."""
        self.flush()
        row = self._scrollback.rows + self._screen.cursor.y
        while self._screen.cursor.y > 0 and row > 0 and self._row_goes_on(row - 1):
            row -= 1
        self._screen.first_touched_row = row
        return row

    def _row_goes_on(self, row: int) -> bool:
        y = row - self._scrollback.rows
        return y >= 0 and self._screen.goes_on(y)

    def text_since(self, mark: int) -> Text:
        """Lines from *mark* on, or from the first one before it that was written to since."""
        self.flush()
        if self._screen.alternate:
            return self._screen_text()
        row = min(mark, self._screen.first_touched_row)
        lines = self._document_lines()
        total = len(self._scrollback) + len(lines)
        if row < self._scrollback.open_row:
            start = self._scrollback.index_of_row(row)
            found = self._scrollback.lines(start, len(self._scrollback)) + lines
        else:
            found = self._lines_of_screen(row)
            start = total - len(found)
        truncated = row < self._scrollback.first_kept_row
        return Text(tuple(found), start + 1 if found else 0, total, truncated)

    def _document_lines(self) -> list[str]:
        """The lines of the screen, the first of them whole."""
        lines = self._screen.text_lines()
        opening = self._scrollback.open_text
        if opening is not None:
            lines[0] = (opening + lines[0]).rstrip(" ")
        return lines

    def _lines_of_screen(self, row: int) -> list[str]:
        """Those of the lines of the screen that begin in *row* or later, or that *row* is part of."""
        begins = self._scrollback.open_row
        found: list[str] = []
        lines = self._document_lines()
        y, number = 0, 0
        while number < len(lines):
            end = y
            while self._screen.goes_on(end) and end + 1 < self._screen.lines_used:
                end += 1
            if self._scrollback.rows + end >= row:
                found.append(lines[number])
            number, y = number + 1, end + 1
        return found if row > begins else lines

    def page(self, offset: int = 0, count: int = 500) -> Text:
        """*count* lines, of which the last is the one before the newest *offset* ones.

        Of a full-screen program these are the rows of its screen.
        """
        self.flush()
        if self._screen.alternate:
            rows: list[str] = self._screen.everything()
            return _page(rows, offset, count, truncated=False)
        lines = self._document_lines()
        kept = len(self._scrollback)
        total = kept + len(lines)
        end = max(0, total - offset)
        start = max(0, end - count)
        found = (
            self._scrollback.lines(start, min(end, kept)) + lines[max(0, start - kept) : max(0, end - kept)]
        )
        truncated = start == 0 and self._scrollback.dropped_lines > 0
        return Text(tuple(found), start + 1 if found else 0, total, truncated)

    def screen(self) -> tuple[str, ...]:
        """The rows of the screen as a person would see them, without blank ones at the end."""
        self.flush()
        return tuple(self._screen.everything())

    def _screen_text(self) -> Text:
        return _page(self._screen.everything(), 0, self._screen.lines, truncated=False)


def _page(rows: list[str], offset: int, count: int, *, truncated: bool) -> Text:
    end = max(0, len(rows) - offset)
    start = max(0, end - count)
    found = tuple(rows[start:end])
    return Text(found, start + 1 if found else 0, len(rows), truncated)
