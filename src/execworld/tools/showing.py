"""What an agent is shown: checked, of failures, and within its limit."""

from __future__ import annotations

from typing import cast

from execworld.tools.content import Content, Image, Keep, Text, cap_text, encode_text
from execworld.tools.decisions import Failure


def checked_content(content: object) -> Content:
    """*content*, if that is what it is.

    Raises:
        TypeError
    """
    if not isinstance(content, tuple):
        raise TypeError(f"no content, which is a tuple of text and images: {type(content).__name__}")
    parts = cast("tuple[object, ...]", content)
    shown = tuple(each for each in parts if isinstance(each, Text | Image))
    if len(shown) < len(parts):
        raise TypeError("no content: a part of it is neither text nor an image")
    return shown


def failure_content(failure: Failure) -> Content:
    """What an agent is shown of a failure."""
    return (Text(f"Error [{failure.code}]: {failure.message}"),)


def limited(content: Content, limit_bytes: int, keep: Keep) -> Content:
    """*content* with at most so many bytes of text, markers included; what is first has the right of way."""
    shown: list[Text | Image] = []
    left_bytes = limit_bytes
    for part in content:
        if isinstance(part, Text):
            part = Text(cap_text(part.text, left_bytes, keep))
            left_bytes -= len(encode_text(part.text))
        shown.append(part)
    return tuple(shown)
