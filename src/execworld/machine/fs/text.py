"""What is text, and how it is decoded and encoded without losing a byte."""

from __future__ import annotations

import codecs
from typing import Final

BINARY_WINDOW_BYTES: Final = 8192
"""A NUL among so many first bytes makes content binary."""

_MARKS: Final = {
    "utf-16": ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be")),
    "utf-32": ((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be")),
}


class TextError(ValueError):
    """The content is not text in that encoding, or the text cannot be encoded in it. The message says why."""


def exact_encoding(encoding: str, beginning: bytes) -> str:
    """The variant of *encoding* that keeps a byte order mark as U+FEFF, chosen by the *beginning* of the
    content.

    Raises:
        ValueError: there is no such encoding.
    """
    name = _codec_name(encoding)
    if name == "utf-8-sig":
        return "utf-8"
    for mark, variant in _MARKS.get(name, ()):
        if beginning.startswith(mark):
            return variant
    return f"{name}-le" if name in _MARKS else name


def check_binary(beginning: bytes, encoding: str) -> None:
    """Refuse content with a NUL in its *beginning*, except in an encoding whose characters hold NUL bytes.

    Raises:
        TextError
    """
    if not encoding.startswith(("utf-16", "utf-32")):
        position = beginning.find(b"\0", 0, BINARY_WINDOW_BYTES)
        if position >= 0:
            message = f"it is binary: there is a NUL at byte {position}"
            raise TextError(message)


def decode_text(data: bytes, encoding: str) -> str:
    """Strictly, every line end and a byte order mark kept.

    Raises:
        TextError
        ValueError: there is no such encoding.
    """
    exact = exact_encoding(encoding, data[:4])
    check_binary(data, exact)
    try:
        return data.decode(exact)
    except UnicodeError as error:
        raise undecodable(error, exact) from error


def encode_text(text: str, encoding: str) -> bytes:
    """Strictly. A text that begins with U+FEFF brings its byte order mark along.

    Raises:
        TextError
        ValueError: there is no such encoding.
    """
    name = _codec_name(encoding)
    if text.startswith("\ufeff"):
        name = {"utf-8-sig": "utf-8", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}.get(name, name)
    try:
        return text.encode(name)
    except UnicodeError as error:
        position = f" (at character {error.start})" if isinstance(error, UnicodeEncodeError) else ""
        message = f"the text cannot be written in {name}{position}"
        raise TextError(message) from error


def undecodable(error: UnicodeError, encoding: str) -> TextError:
    position = f" at byte {error.start}" if isinstance(error, UnicodeDecodeError) else ""
    return TextError(f"it is not valid {encoding}{position}")


def with_line_feeds(text: str) -> str:
    """*text* with every CRLF as LF; a lone CR is data."""
    return text.replace("\r\n", "\n")


def _codec_name(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        "".encode(name)  # refuses codecs that are not between text and bytes
    except LookupError as error:
        message = f"there is no text encoding {encoding!r}"
        raise ValueError(message) from error
    return name
