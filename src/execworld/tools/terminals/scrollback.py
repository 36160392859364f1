"""The lines that left the top of a screen."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import islice

_OPEN_LIMIT_CHARS = 64 * 1024


class _OpenLine:
    """A line of which the screen still shows the end."""

    __slots__ = ("first_row", "text")

    def __init__(self, first_row: int, text: str) -> None:
        self.first_row = first_row
        self.text = text


class Scrollback:
    """A bounded window of lines, as they were written: the rows of a line that the screen broke are joined.

    Rows are counted since the terminal was opened; each line knows its first.
    """

    def __init__(self, max_lines: int, limit_chars: int) -> None:
        self._max_lines = max_lines
        self._limit_chars = limit_chars
        self._texts: deque[str] = deque()
        self._first_rows: deque[int] = deque()
        self._chars = 0
        self._open: _OpenLine | None = None
        self.rows = 0
        """How many rows left the screen so far: the number of the screen's first row."""
        self.dropped_lines = 0

    @property
    def first_kept_row(self) -> int:
        return self._first_rows[0] if self._first_rows else self.open_row

    @property
    def open_text(self) -> str | None:
        """The start of a line that goes on in the screen's first row; None when there is none."""
        return None if self._open is None else self._open.text

    @property
    def open_row(self) -> int:
        """First row of the line that the screen's first row belongs to."""
        return self.rows if self._open is None else self._open.first_row

    def __len__(self) -> int:
        return len(self._texts)

    def lines(self, start: int, stop: int) -> list[str]:
        return list(islice(self._texts, start, stop))

    def index_of_row(self, row: int) -> int:
        """Index of the line that *row* belongs to; that of the first kept one for an earlier row."""
        return max(0, bisect_right(self._first_rows, row) - 1)

    def append_row(self, text: str, *, goes_on: bool) -> None:
        """Take a row. *goes_on*: the screen broke its line there, and the next row is the rest of it."""
        if self._open is not None:
            self._open.text += text
        elif goes_on:
            self._open = _OpenLine(self.rows, text)
        else:
            self._append([text.rstrip(" ")], [self.rows])
        self.rows += 1
        # A line that never ends is cut, at a place that does not depend on how the output came in.
        if self._open is not None and (not goes_on or len(self._open.text) >= _OPEN_LIMIT_CHARS):
            line, self._open = self._open, None
            self._append([line.text.rstrip(" ")], [line.first_row])

    def extend(self, lines: Sequence[str], columns: int) -> None:
        """Take whole lines of narrow characters, as if each had been drawn on a screen of that width.

        The first one starts in a row of its own.
        """
        first, self.rows = self.rows, self.rows + len(lines)
        if max(map(len, lines), default=0) <= columns:
            kept = lines[-self._max_lines :]
            self.dropped_lines += len(lines) - len(kept)
            if len(kept) < len(lines):
                self._drop(len(self._texts))
            self._append([line.rstrip(" ") for line in kept], range(self.rows - len(kept), self.rows))
            return
        self.rows = first
        piece = -(-_OPEN_LIMIT_CHARS // columns) * columns
        for line in lines:
            for start in range(0, len(line) or 1, piece):
                part = line[start : start + piece]
                self._append([part.rstrip(" ")], [self.rows])
                self.rows += -(-len(part) // columns) or 1

    def clear(self) -> None:
        """Forget every line; the count of rows goes on."""
        self._open = None
        self._drop(len(self._texts))

    def _append(self, texts: Sequence[str], first_rows: Sequence[int]) -> None:
        self._texts.extend(texts)
        self._first_rows.extend(first_rows)
        self._chars += sum(map(len, texts))
        self._drop(max(0, len(self._texts) - self._max_lines))
        while self._chars > self._limit_chars:
            self._drop(1)

    def _drop(self, count: int) -> None:
        self.dropped_lines += count
        for _ in range(count):
            self._chars -= len(self._texts.popleft())
            self._first_rows.popleft()
