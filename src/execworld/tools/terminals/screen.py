"""The screen of a terminal: pyte's, with what full-screen programs need beyond it."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from typing import Final

from pyte import modes
from pyte.charsets import LAT1_MAP
from pyte.screens import Char, Cursor, Margins, Savepoint, StaticDefaultDict, wcwidth
from pyte.screens import Screen as PyteScreen

from execworld.tools.terminals.scrollback import Scrollback

_MOST_COMBINED: Final = 8  # marks on one character
_BLANK: Final = Char(" ")


class _Row(StaticDefaultDict[int, Char]):
    """Cells of one row. *goes_on*: a line was broken at its end, and the next row is the rest of it."""

    def __init__(self) -> None:
        super().__init__(_BLANK)
        self.goes_on = False


class _Cells(dict[str, Char]):
    """The cell of each character; there are few, and making one is slow."""

    def __missing__(self, character: str) -> Char:
        cell = Char(character)
        if character.isascii():
            self[character] = cell
        return cell


class Screen(PyteScreen):
    """What a person would see, as text. Colours and other attributes are not kept.

    What leaves the top of the main screen goes to the scrollback; the alternate screen has none.
    """

    def __init__(self, rows: int, columns: int, scrollback: Scrollback) -> None:
        self.scrollback = scrollback
        self._cells = _Cells()
        self._main: tuple[dict[int, StaticDefaultDict[int, Char]], Cursor, Margins | None] | None = None
        self.first_touched_row = 0
        """The lowest row, counted as the scrollback counts, that was written to since somebody set this."""
        self.title = ""
        super().__init__(columns, rows)
        self.buffer = defaultdict(_Row)

    @property
    def alternate(self) -> bool:
        """A full-screen program shows its own screen and will bring the other one back."""
        return self._main is not None

    @property
    def plain(self) -> bool:
        """Nothing is set that would show plain lines in another way than one below the other."""
        return (
            self._main is None
            and self.margins is None
            and modes.IRM not in self.mode
            and modes.DECAWM in self.mode
            and self._charset is LAT1_MAP
        )

    @property
    def _charset(self) -> str:
        return self.g1_charset if self.charset else self.g0_charset

    def row_text(self, y: int) -> str:
        row = self.buffer.get(y)
        if not row:
            return ""
        # In the order of the columns; a cell that nobody wrote is blank, the second one of a wide character empty.
        return "".join([row[x].data for x in range(min(max(row) + 1, self.columns))])

    def text_lines(self) -> list[str]:
        """The rows from the first to the last that has text or the cursor, those of one line joined."""
        found: list[str] = []
        part = ""
        for y in range(self.lines_used):
            part += self.row_text(y)
            if self.goes_on(y) and y + 1 < self.lines_used:
                continue
            found.append(part.rstrip(" "))
            part = ""
        return found

    def goes_on(self, y: int) -> bool:
        row = self.buffer.get(y)
        return isinstance(row, _Row) and row.goes_on

    @property
    def lines_used(self) -> int:
        used = self.cursor.y
        for y, row in self.buffer.items():
            if used < y < self.lines and any(cell.data != " " for cell in row.values()):
                used = y
        return used + 1

    def draw(self, data: str) -> None:
        charset = self._charset
        if charset is not LAT1_MAP:
            data = data.translate(charset)
        self._touch(self.cursor.y)
        if data.isascii() and modes.IRM not in self.mode:
            self._draw_narrow(data)
            return
        for character in data:
            width = wcwidth(character)
            if width > 0:
                self._draw_one(character, min(width, 2))
            elif width == 0:
                self._combine(character)

    def _draw_narrow(self, data: str) -> None:
        cells = self._cells
        position = 0
        while position < len(data):
            self._wrap_if_needed(1)
            x = self.cursor.x
            part = data[position : position + self.columns - x]
            row = self.buffer[self.cursor.y]
            self._split_wide(row, x, x + len(part))
            row.update(zip(range(x, x + len(part)), map(cells.__getitem__, part), strict=True))
            self.cursor.x = x + len(part)
            position += len(part)

    def _draw_one(self, character: str, width: int) -> None:
        if width > self.columns:
            return
        self._wrap_if_needed(width)
        x = self.cursor.x
        if modes.IRM in self.mode:
            self.insert_characters(width)
        row = self.buffer[self.cursor.y]
        self._split_wide(row, x, x + width)
        row[x] = self._cells[character]
        if width == 2:
            row[x + 1] = self._cells[""]
        self.cursor.x = x + width

    def _wrap_if_needed(self, width: int) -> None:
        """Break the line where no cell is left for a character of that width."""
        if self.cursor.x + width <= self.columns:
            return
        if modes.DECAWM not in self.mode:
            self.cursor.x = self.columns - width
            return
        row = self.buffer[self.cursor.y]
        if isinstance(row, _Row):
            row.goes_on = True
        self.cursor.x = 0
        self.index()
        self._touch(self.cursor.y)

    def _split_wide(self, row: StaticDefaultDict[int, Char], start: int, end: int) -> None:
        """Blank the other half of a wide character of which one half is about to be written over."""
        if start > 0 and row[start].data == "":
            row[start - 1] = _BLANK
        if end < self.columns and row[end].data == "":
            row[end] = _BLANK

    def _combine(self, character: str) -> None:
        x, y = self.cursor.x - 1, self.cursor.y
        row = self.buffer[y]
        if x > 0 and row[x].data == "":
            x -= 1
        if x < 0 or len(row[x].data) > _MOST_COMBINED:
            return
        row[x] = Char(unicodedata.normalize("NFC", row[x].data + character))

    def index(self) -> None:
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y != bottom:
            if self.cursor.y < self.lines - 1:
                self.cursor.y += 1
            return
        if self._main is None and top == 0:
            self.scrollback.append_row(self.row_text(0), goes_on=self.goes_on(0))
        self._scroll_up(top, bottom)

    def _scroll_up(self, top: int, bottom: int) -> None:
        buffer = self.buffer
        for y in range(top, bottom):
            following = buffer.pop(y + 1, None)
            if following is None:
                buffer.pop(y, None)
            else:
                buffer[y] = following
        buffer.pop(bottom, None)

    def reverse_index(self) -> None:
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y == top:
            self._scroll_down(top, bottom)
        elif self.cursor.y > 0:
            self.cursor.y -= 1

    def _scroll_down(self, top: int, bottom: int) -> None:
        buffer = self.buffer
        for y in range(bottom, top, -1):
            preceding = buffer.pop(y - 1, None)
            if preceding is None:
                buffer.pop(y, None)
            else:
                buffer[y] = preceding
        buffer.pop(top, None)
        self._touch(top)

    def scroll_up(self, count: int) -> None:
        """Move the text up, not the cursor (SU)."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        for _ in range(min(count or 1, bottom - top + 1)):
            if self._main is None and top == 0:
                self.scrollback.append_row(self.row_text(0), goes_on=self.goes_on(0))
            self._scroll_up(top, bottom)
        self._touch(top)

    def scroll_down(self, count: int) -> None:
        """Move the text down, not the cursor (SD)."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        for _ in range(min(count or 1, bottom - top + 1)):
            self._scroll_down(top, bottom)

    def back_tab(self, count: int) -> None:
        """Move to an earlier tab stop (CBT)."""
        for _ in range(min(count or 1, self.columns)):
            self.cursor.x = max((stop for stop in self.tabstops if stop < self.cursor.x), default=0)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        del private
        self.ensure_hbounds()
        self._erase(self.cursor.y, *self._part_of_line(how))

    def _part_of_line(self, how: int) -> tuple[int, int]:
        if how == 0:
            return self.cursor.x, self.columns
        return (0, self.cursor.x + 1) if how == 1 else (0, self.columns)

    def _erase(self, y: int, start: int, end: int) -> None:
        self._touch(y)
        row = self.buffer.get(y)
        if row is None:
            return
        if start == 0 and end >= self.columns:
            self.buffer.pop(y)
            return
        self._split_wide(row, start, end)
        for x in range(start, end):
            row.pop(x, None)
        if end >= self.columns and isinstance(row, _Row):
            row.goes_on = False

    def erase_in_display(self, how: int = 0, *args: object, **kwargs: object) -> None:
        del args, kwargs
        if how == 3:
            if self._main is None:
                self.scrollback.clear()
            return
        count = self.lines
        whole = {0: range(self.cursor.y + 1, count), 1: range(self.cursor.y)}.get(how, range(count))
        for y in whole:
            self._erase(y, 0, self.columns)
        if how in (0, 1):
            self.erase_in_line(how)

    def erase_characters(self, count: int | None = None) -> None:
        self.ensure_hbounds()
        self._erase(self.cursor.y, self.cursor.x, min(self.cursor.x + (count or 1), self.columns))

    def save_cursor(self) -> None:
        self.savepoints.clear()  # a terminal has one, however often a program saves
        super().save_cursor()

    def restore_cursor(self) -> None:
        saved: list[Savepoint] = list(self.savepoints)
        super().restore_cursor()
        if saved:
            point = saved[-1]
            kept = Cursor(point.cursor.x, point.cursor.y, point.cursor.attrs)
            self.savepoints[:] = [point._replace(cursor=kept)]

    def enter_alternate(self, *, clear: bool) -> None:
        if self._main is None:
            self._main = (self.buffer, Cursor(self.cursor.x, self.cursor.y), self.margins)
            self.buffer = defaultdict(_Row)
        elif clear:
            self.buffer.clear()

    def leave_alternate(self, *, restore_cursor: bool) -> None:
        if self._main is None:
            return
        self.buffer, cursor, self.margins = self._main
        self._main = None
        if restore_cursor:
            self.cursor.x, self.cursor.y = cursor.x, cursor.y
        self.ensure_hbounds()
        self.ensure_vbounds()

    def reset(self) -> None:
        """Begin anew, as after switching the terminal on; the scrollback stays."""
        self._main = None
        super().reset()

    def start_over(self) -> None:
        """Let go of all that is on the main screen, for lines that are known to fill it."""
        for y in range(self.cursor.y):
            self.scrollback.append_row(self.row_text(y), goes_on=self.goes_on(y))
        self.buffer.clear()
        self.cursor.x = self.cursor.y = 0

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        """Change the size. Rows that no longer fit leave at the top, as long as the cursor stays on the screen."""
        rows = lines or self.lines
        width = columns or self.columns
        cursors = [self.cursor]
        if self._main is not None:
            cursors.append(self._main[1])
            self._main = (self._main[0], self._main[1], None)
        buffers = [self.buffer] if self._main is None else [self.buffer, self._main[0]]
        for number, (buffer, cursor) in enumerate(zip(buffers, cursors, strict=True)):
            is_main = number == len(buffers) - 1
            self._fit(buffer, cursor, rows, is_main=is_main)
            if width < self.columns:
                for row in buffer.values():
                    for x in [x for x in row if x >= width]:
                        row.pop(x)
            cursor.x = min(cursor.x, width - 1)
        self.margins = None
        if width != self.columns:
            self.tabstops: set[int] = {*(stop for stop in self.tabstops if stop < width), *range(8, width, 8)}
        self.lines, self.columns = rows, width

    def _fit(
        self,
        buffer: dict[int, StaticDefaultDict[int, Char]],
        cursor: Cursor,
        rows: int,
        *,
        is_main: bool,
    ) -> None:
        shown = self.buffer
        self.buffer = buffer  # whose rows are asked for below
        for _ in range(max(0, cursor.y - rows + 1)):
            if is_main:
                self.scrollback.append_row(self.row_text(0), goes_on=self.goes_on(0))
            self._scroll_up(0, self.lines - 1)
            cursor.y -= 1
        for y in [y for y in buffer if y >= rows]:
            buffer.pop(y)
        self.buffer = shown

    def _touch(self, y: int) -> None:
        if self._main is not None:
            return  # what is drawn there does not stay
        row = self.scrollback.rows + y
        if row < self.first_touched_row:
            self.first_touched_row = row

    def everything(self) -> list[str]:
        """What is on the screen, row by row, without blank rows at the end."""
        return [self.row_text(y).rstrip(" ") for y in range(self.lines_used)]
