"""Output of commands as a reader without a screen sees it."""

from __future__ import annotations

import re
from typing import Final

# ECMA-48 control sequences; strings that end in BEL or ST (titles, links); other escapes of two or three characters.
_SEQUENCE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_](?:[^\x07\x1b\n]*(?:\x07|\x1b\\))?|[ -/]*[0-~])|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROL: Final = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]")


def plain_text(text: str) -> str:
    """*text* without control sequences, and of each line that was redrawn only what stayed."""
    if "\x1b" in text or "\x9b" in text:
        text = _SEQUENCE.sub("", text)
    if "\r" in text or "\b" in text:
        text = "\n".join(map(_settled, text.split("\n")))
    return _CONTROL.sub("", text)


def _settled(line: str) -> str:
    """What is left of a line behind its carriage returns and backspaces."""
    line = line.removesuffix("\r")
    if "\r" not in line and "\b" not in line:
        return line
    if "\ufffd" in line:
        return line.replace("\r", "").replace(
            "\b", ""
        )  # no text, so nobody redrew it; nothing may cover the rest
    shown: list[str] = []
    column = 0
    for part in re.split(r"([\r\b])", line):
        if part == "\r":
            column = 0
        elif part == "\b":
            column = max(column - 1, 0)
        else:
            shown[column : column + len(part)] = part
            column += len(part)
    return "".join(shown)
