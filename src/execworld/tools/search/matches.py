"""What a search found: the first matches in the order of paths, and how many there are."""

from __future__ import annotations

from bisect import insort
from typing import Final

from execworld.seams.values import record

PREVIEW_BYTES: Final = 2000
"""How much of a line is kept."""
LONG_LINE_BYTES: Final = 1024 * 1024
"""A matching line that is longer is counted and not shown."""
MAX_FILE_BYTES: Final = 256 * 1024 * 1024
"""A larger file is not searched."""


@record
class Match:
    """One line that matches. The text has no line end; it is None where the line is not UTF-8."""

    path: bytes
    line_number: int
    text: str | None
    cut: bool = False


@record
class Found:
    """All that is known after a search.

    Attributes:
        matches: The first ones, ordered by path and line.
        total: How many lines match.
        long_lines: How many of these are too long to be shown.
        unreadable: Files and directories that could not be read.
    """

    matches: tuple[Match, ...]
    total: int
    long_lines: int
    unreadable: int


class Collector:
    """Keeps the first *limit* matches whatever order files arrive in, in memory that does not grow with the rest."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: list[tuple[bytes, int, Match]] = []
        self.unreadable = 0
        self._total = self._long_lines = 0

    def add_file(self, found: FileMatches) -> None:
        self._total += found.total
        self._long_lines += found.long_lines
        for match in found.matches:
            place = (match.path, match.line_number, match)
            if len(self._kept) < self._limit or place[:2] < self._kept[-1][:2]:
                insort(self._kept, place, key=lambda kept: kept[:2])
                del self._kept[self._limit :]

    def found(self) -> Found:
        return Found(
            tuple(match for _, _, match in self._kept), self._total, self._long_lines, self.unreadable
        )


class FileMatches:
    """The matches of one file, which are thrown away when it turns out to be binary."""

    def __init__(self, path: bytes, limit: int) -> None:
        self._path = path
        self._limit = limit
        self.matches: list[Match] = []
        self.total = self.long_lines = 0

    @property
    def full(self) -> bool:
        return len(self.matches) >= self._limit

    def add(self, line_number: int, line: bytes) -> None:
        """Take in a matching line; a line end is removed."""
        self.total += 1
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > LONG_LINE_BYTES:
            self.long_lines += 1
        elif not self.full:
            self.matches.append(Match(self._path, line_number, *preview(line)))


def preview(line: bytes) -> tuple[str | None, bool]:
    """The text that is shown, and whether it was cut; cut between characters."""
    cut = len(line) > PREVIEW_BYTES
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return None, cut
    return (text.encode("utf-8")[:PREVIEW_BYTES].decode("utf-8", "ignore") if cut else text), cut
