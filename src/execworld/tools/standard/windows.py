"""A window of lines out of a file that is streamed, in memory that does not grow with the file."""

from __future__ import annotations

from execworld.seams.values import record


@record
class WindowLine:
    """A line as it is shown. The line end is not part of it, nor is a CR before the LF."""

    number: int
    text: str
    cut: bool


class LineWindow:
    """Takes the bytes of a file in chunks and keeps the lines from *first* on.

    Args:
        first: Number of the first line, from 1.
        count: How many lines at most.
        line_characters: How much of each line.
        limit_bytes: How much text in all.
    """

    def __init__(self, first: int, count: int, line_characters: int, limit_bytes: int) -> None:
        self._first = first
        self._count = count
        self._line_characters = line_characters
        self._line_bytes = 4 * line_characters + 8  # no character takes more than four bytes
        self._room_bytes = limit_bytes
        self._line = bytearray()
        self._line_cut = False
        self._pending = False
        self._number = 1
        self.lines: list[WindowLine] = []
        self.invalid_lines = 0
        self.byte_capped = False

    @property
    def complete(self) -> bool:
        """Nothing more is wanted."""
        return self.byte_capped or len(self.lines) >= self._count

    @property
    def line_count(self) -> int:
        """How many lines came so far, the last one also without its end."""
        return self._number - 1 + self._pending

    def feed(self, chunk: bytes) -> None:
        if self.complete or self._number + chunk.count(b"\n") < self._first:
            self._count_only(chunk)
            return
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._add(chunk[start:end])
            self._finish()
            start = end + 1
            if self.complete:
                self._count_only(chunk[start:])
                return
        if start < len(chunk):
            self._add(chunk[start:])
            self._pending = True

    def end(self) -> None:
        if self._pending:
            self._finish()
            self._pending = False

    def _count_only(self, chunk: bytes) -> None:
        if not chunk:
            return
        self._number += chunk.count(b"\n")
        self._pending = not chunk.endswith(b"\n")
        self._line = bytearray()
        self._line_cut = False

    def _add(self, data: bytes) -> None:
        room = self._line_bytes - len(self._line)
        self._line += data[:room]
        self._line_cut = self._line_cut or len(data) > room

    def _finish(self) -> None:
        if self._number >= self._first and not self.complete:
            self._keep()
        self._number += 1
        self._line = bytearray()
        self._line_cut = self._pending = False

    def _keep(self) -> None:
        data = bytes(self._line) if self._line_cut else bytes(self._line).removesuffix(b"\r")
        if self._number == 1:
            data = data.removeprefix(b"\xef\xbb\xbf")
        text = data.decode("utf-8", "replace")
        cut = self._line_cut or len(text) > self._line_characters
        if "\ufffd" in text and not _is_valid(data, whole=not self._line_cut):
            self.invalid_lines += 1
        text = text[: self._line_characters]
        size = len(text.encode()) + 1
        if size > self._room_bytes and self.lines:
            self.byte_capped = True
            return
        self._room_bytes -= size
        self.lines.append(WindowLine(self._number, text, cut))


def _is_valid(data: bytes, *, whole: bool) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return not whole and error.reason == "unexpected end of data"
    return True
