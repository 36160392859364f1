"""What a value without quotes means.

The rules are those of YAML 1.2, and ``yes``, ``no``, ``on``, ``off`` beside ``true`` and ``false``. A date, ``22:22``
and ``0755`` are text: read as a number or a date, they would be something that nobody wrote.
"""

from __future__ import annotations

import math
import re
from typing import Final

from execworld.config.nodes import PlainValue

_NOTHING: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTHS: Final = {
    spelling: truth
    for truth, words in ((True, ("true", "yes", "on")), (False, ("false", "no", "off")))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+", re.ASCII)
_FRACTION: Final = re.compile(
    r"[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)",
    re.ASCII,
)
_DIGITS: Final = 40


def plain_scalar(text: str) -> PlainValue:
    """The value of *text* as it stands in a document without quotes.

    Raises:
        ValueError: it is a number beyond all measure.
    """
    if text in _NOTHING:
        return None
    if text in _TRUTHS:
        return _TRUTHS[text]
    if _INTEGER.fullmatch(text):
        if len(text) > _DIGITS:
            raise ValueError("a number of more than 40 digits")
        return int(text, 0)
    if _FRACTION.fullmatch(text):
        number = float(text)
        if math.isinf(number):
            raise ValueError("a number beyond what can be calculated with")
        return number
    return text


def is_read_as_text(text: str) -> bool:
    """Whether *text* without quotes would be this text."""
    try:
        return isinstance(plain_scalar(text), str)
    except ValueError:
        return False
