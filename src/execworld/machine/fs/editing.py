"""Replace text in place, so that nothing changes but what was replaced.

Old text and content are compared with CRLF read as LF; positions are then mapped back to the original text.
Of each occurrence only the part in which old and new text differ is replaced, so that lines given as context
keep their ends.
"""

from __future__ import annotations

from bisect import bisect_left

from execworld.machine.fs.text import with_line_feeds
from execworld.seams.values import record


class NoOccurrence(ValueError):
    """The old text is empty or does not occur."""


class SeveralOccurrences(ValueError):
    """The old text occurs more than once."""

    def __init__(self, count: int) -> None:
        super().__init__(f"{count} occurrences")
        self.count = count


@record
class EditedText:
    """Content after an edit: *raw* with its own line ends, *before* and *after* with line feeds only."""

    raw: str
    before: str
    after: str
    replacements: int


class _Offsets:
    """From positions in the text with line feeds to positions in the original."""

    def __init__(self, raw: str) -> None:
        self._pairs: list[int] = []  # where a line feed stands for CRLF, in the text with line feeds
        position = raw.find("\r\n")
        while position >= 0:
            self._pairs.append(position - len(self._pairs))
            position = raw.find("\r\n", position + 2)

    def raw(self, position: int) -> int:
        return position + bisect_left(self._pairs, position)


def edit(raw: str, old: str, new: str, *, replace_all: bool) -> EditedText:
    """Replace *old* by *new* in *raw*.

    Raises:
        NoOccurrence, SeveralOccurrences
    """
    before = with_line_feeds(raw)
    old_lines, new_lines = with_line_feeds(old), with_line_feeds(new)
    count = before.count(old_lines) if old_lines else 0
    if count == 0:
        raise NoOccurrence
    if count > 1 and not replace_all:
        raise SeveralOccurrences(count)
    head, tail = _shared(old_lines, new_lines)
    core = new_lines[head : len(new_lines) - tail]
    offsets = _Offsets(raw)
    file_end = _line_end(raw)
    parts: list[str] = []
    done, position = 0, before.find(old_lines)
    for _ in range(count):
        end = position + len(old_lines)
        whole = raw[offsets.raw(position) : offsets.raw(end)]
        start, stop = offsets.raw(position + head), offsets.raw(end - tail)
        line_end = _line_end(raw[start:stop]) or _line_end(whole) or file_end
        parts += (raw[done:start], _with_line_end(core, line_end, new))
        done = stop
        position = before.find(old_lines, end)
    parts.append(raw[done:])
    return EditedText("".join(parts), before, before.replace(old_lines, new_lines), count)


def _shared(old: str, new: str) -> tuple[int, int]:
    """How many first and last characters two texts have in common, without overlap."""
    limit = min(len(old), len(new))
    head = 0
    while head < limit and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < limit - head and old[-tail - 1] == new[-tail - 1]:
        tail += 1
    return head, tail


def _line_end(raw: str) -> str:
    """The line end that most lines have; empty without any."""
    pairs = raw.count("\r\n")
    feeds = raw.count("\n") - pairs
    if not pairs and not feeds:
        return ""
    return "\r\n" if pairs > feeds else "\n"


def _with_line_end(core: str, line_end: str, given: str) -> str:
    if not line_end:
        line_end = _line_end(given)  # the content has no line ends to go by
    return core.replace("\n", "\r\n") if line_end == "\r\n" else core
