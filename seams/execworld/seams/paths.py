"""Paths of a world as text that keeps every byte.

A path inside a world is a byte string (path_resolution(7)). The seams take ``str``, ``bytes`` or a pure POSIX path and
hand back ``str`` in which bytes that are not UTF-8 are escaped as lone surrogates (PEP 383), whatever the locale of
the host is. `encode_path` undoes exactly that, so every name survives the way there and back, through JSON too.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import Final, TypeAlias

WorldPath: TypeAlias = "str | bytes | PurePosixPath"


def decode_path(path: bytes) -> str:
    """*path* as text; reversible for every byte string."""
    return path.decode("utf-8", "surrogateescape")


def encode_path(path: WorldPath) -> bytes:
    """The bytes of *path*.

    Raises:
        UnicodeEncodeError: it holds a surrogate that no byte string decodes to.
    """
    if isinstance(path, bytes):
        return path
    return os.fspath(path).encode("utf-8", "surrogateescape")


_MOST_CHARACTERS: Final = 4096
_SHOWN_CHARACTERS: Final = 200


def printable_path(path: WorldPath) -> str:
    """*path* for a person: control characters and undecodable bytes as backslash escapes, always printable.

    What is longer than any path can be (PATH_MAX) is shown by its beginning.
    """
    text = decode_path(encode_path(path))
    if len(text) > _MOST_CHARACTERS:
        return f"{printable_path(text[:_SHOWN_CHARACTERS])}... ({len(text)} characters)"
    return "".join(_printable_character(character) for character in text)


def _printable_character(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if character == "\\":
        return "\\\\"
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
