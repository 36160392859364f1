"""The control sequences of terminals (ECMA-48, xterm's ctlseqs), cut out of a stream of text.

Any split of the stream gives the same calls. What never ends, and what is malformed, is dropped after a bounded length,
so that no output can blind the reader or grow memory.
"""

from __future__ import annotations

import re
from typing import Final, Protocol

STRING_LIMIT_CHARS: Final = 4096
"""A command string that is longer is dropped, not kept."""

_SWALLOW_LIMIT_CHARS: Final = 1 << 20  # then it is taken for a string that nobody ends, and its rest for text
_SEQUENCE_LIMIT_CHARS: Final = 256

_TEXT: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_PARAMETERS: Final = re.compile(r"([0-?]*)([ -/]*)")
_STRING_BODY: Final = re.compile(r"[^\x07\x18\x1a\x1b\x9c]*")
_STRING_KINDS: Final = {"]": "OSC", "P": "DCS", "X": "SOS", "^": "PM", "_": "APC"}
_TAKES_ONE_MORE: Final = frozenset(" #%()*+-./")
_GREATEST_NUMBER: Final = 9999  # what xterm and the VT family take for the largest
_MOST_NUMBERS: Final = 32


class SequenceHandler(Protocol):
    """Who is told what the stream says."""

    def draw(self, text: str) -> None:
        """Characters to show; no control is among them."""

    def control(self, character: str) -> None:
        """A C0 control character, or DEL."""

    def escape(self, intermediate: str, final: str) -> None:
        """``ESC`` and a final character; *intermediate* is empty or one character between them."""

    def csi(self, private: str, numbers: tuple[int, ...], intermediate: str, final: str) -> None:
        """A control sequence. *private* is empty or the marker before the numbers; an absent number is 0."""

    def command_string(self, kind: str, body: str) -> None:
        """A whole command string, of kind ``OSC``, ``DCS``, ``SOS``, ``PM`` or ``APC``."""


class SequenceParser:
    """Feeds a handler."""

    def __init__(self, handler: SequenceHandler) -> None:
        self._handler = handler
        self._rest = ""  # the start of a sequence whose end has not come yet
        self._swallowed_chars = 0  # of a command string that is too long to be kept; 0 when in none

    @property
    def between_sequences(self) -> bool:
        return not self._rest and not self._swallowed_chars

    def feed(self, text: str) -> None:
        if self._rest:
            text = self._rest + text
            self._rest = ""
        position = self._swallow(text) if self._swallowed_chars else 0
        while position < len(text):
            match = _TEXT.match(text, position)
            if match:
                self._handler.draw(match.group())
                position = match.end()
            elif text[position] == "\x1b":
                position = self._escape(text, position)
            else:
                if text[position] <= "\x7f":  # the eight-bit controls mean nothing in UTF-8
                    self._handler.control(text[position])
                position += 1

    def _incomplete(self, text: str, start: int) -> int:
        self._rest = text[start:]
        return len(text)

    def _escape(self, text: str, start: int) -> int:
        """Take the sequence that starts at *start*; where to go on."""
        if start + 1 >= len(text):
            return self._incomplete(text, start)
        second = text[start + 1]
        if second == "[":
            return self._control_sequence(text, start)
        if second in _STRING_KINDS:
            return self._command_string(text, start)
        if second in _TAKES_ONE_MORE:
            if start + 2 >= len(text):
                return self._incomplete(text, start)
            if not "0" <= text[start + 2] <= "~":
                return start + 2
            self._handler.escape(second, text[start + 2])
            return start + 3
        if not "0" <= second <= "~":
            return start + 1  # a control character, or one that no sequence has: the escape meant nothing
        self._handler.escape("", second)
        return start + 2

    def _control_sequence(self, text: str, start: int) -> int:
        match = _PARAMETERS.match(text, start + 2, start + _SEQUENCE_LIMIT_CHARS)
        end = match.end() if match else start + 2
        if match is None or end - start >= _SEQUENCE_LIMIT_CHARS:
            return end
        if end >= len(text):
            return self._incomplete(text, start)
        if not "@" <= text[end] <= "~":
            return end  # cut off by a control character, which counts
        private, numbers = _numbers(match.group(1))
        self._handler.csi(private, numbers, match.group(2), text[end])
        return end + 1

    def _command_string(self, text: str, start: int) -> int:
        match = _STRING_BODY.match(text, start + 2)
        end = match.end() if match else start + 2
        if end - start > STRING_LIMIT_CHARS:
            self._swallowed_chars = 1
            return self._swallow(text, start + 2)
        after = _after_string(text, end)
        if after is None:
            return self._incomplete(text, start)
        if after > end:
            self._handler.command_string(_STRING_KINDS[text[start + 1]], text[start + 2 : end])
        return after

    def _swallow(self, text: str, start: int = 0) -> int:
        match = _STRING_BODY.match(text, start)
        end = min(match.end() if match else start, start + _SWALLOW_LIMIT_CHARS - self._swallowed_chars)
        self._swallowed_chars += end - start
        if self._swallowed_chars >= _SWALLOW_LIMIT_CHARS:
            self._swallowed_chars = 0
            return end
        after = _after_string(text, end)
        if after is not None:
            self._swallowed_chars = 0
            return after
        self._rest = text[end:]  # nothing, or an escape of which the rest has to come
        return len(text)


def _after_string(text: str, end: int) -> int | None:
    """Where to go on after a string that stops at *end*: there itself when something cut it off; None when unknown."""
    if end >= len(text):
        return None
    if text[end] != "\x1b":
        return end + 1 if text[end] in "\x07\x9c" else end
    if end + 1 >= len(text):
        return None
    return end + 2 if text[end + 1] == "\\" else end


def _numbers(parameters: str) -> tuple[str, tuple[int, ...]]:
    private = parameters[0] if parameters[:1] in ("<", "=", ">", "?") else ""
    found: list[int] = []
    for part in parameters[len(private) :].split(";", _MOST_NUMBERS)[:_MOST_NUMBERS]:
        digits = part.split(":", 1)[0]
        found.append(min(int(digits), _GREATEST_NUMBER) if digits.isascii() and digits.isdigit() else 0)
    return private, tuple(found)
