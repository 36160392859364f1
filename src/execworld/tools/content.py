"""What a result shows: text and images, and the one way in which text is made to fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from execworld.seams.values import value_class

Keep: TypeAlias = Literal["head", "tail", "both"]
"""Which part of a text stays when not all of it does."""
Marker: TypeAlias = Callable[[int], str]
"""Says how many bytes were left out."""

DEFAULT_LIMIT_BYTES: Final = 65_536


@value_class
class Text:
    text: str


@value_class
class Image:
    """An image file.

    Attributes:
        media_type: For example ``image/png``.
    """

    media_type: str
    data: bytes


Content: TypeAlias = tuple[Text | Image, ...]


def text_of(content: Content) -> str:
    """All text of *content*, one part after the other."""
    return "\n".join(part.text for part in content if isinstance(part, Text))


def omission(omitted_bytes: int) -> str:
    """The usual marker."""
    return f"[... {omitted_bytes} bytes omitted ...]"


def encode_text(text: str) -> bytes:
    """*text* in UTF-8; half of a surrogate pair, which is no character, becomes a question mark as in any terminal."""
    return text.encode("utf-8", "replace")


def cap_text(text: str, limit_bytes: int, keep: Keep = "head", *, marker: Marker = omission) -> str:
    """*text* in at most *limit_bytes* of UTF-8, marker included.

    What fits is returned as it is. Otherwise whole characters of the head, of the tail or of both (half each) stay, and
    a line of its own says how much was left out, exactly. If there is no room for that line, as much of it as fits is
    all that is left.

    Args:
        keep: Which part stays.
        marker: Makes the line. It may grow with the number by no more than the digits do.
    """
    encoded = encode_text(text)
    if len(encoded) <= limit_bytes:
        return encoded.decode()
    room = limit_bytes - len(encode_text(_framed(marker(len(encoded)), keep)))
    if room < 0:
        return _head(encode_text(marker(len(encoded))), limit_bytes)
    head_bytes = {"head": room, "tail": 0, "both": room - room // 2}[keep]
    head = _head(encoded, head_bytes)
    tail = _tail(encoded, room - head_bytes)
    omitted = len(encoded) - len(head.encode()) - len(tail.encode())
    return head + _framed(marker(omitted), keep) + tail


def _framed(line: str, keep: Keep) -> str:
    before = "" if keep == "tail" else "\n"
    after = "" if keep == "head" else "\n"
    return f"{before}{line}{after}"


def _head(encoded: bytes, size: int) -> str:
    """The first whole characters that fit; *encoded* is valid, so only the cut itself can break one."""
    return encoded[: max(size, 0)].decode("utf-8", "ignore")


def _tail(encoded: bytes, size: int) -> str:
    return encoded[len(encoded) - size :].decode("utf-8", "ignore") if size > 0 else ""
