"""Paths as an agent reads and writes them: plain text from which every name can be reached, whatever bytes it has."""

from __future__ import annotations

import re
from typing import Final

from execworld.seams.paths import WorldPath, decode_path, encode_path

_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|([\\nrt]))")
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_MEANT: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\"}


def shown_path(path: WorldPath) -> str:
    """*path* in one line: bytes that are no UTF-8 as ``\\xff``, what has no shape as ``\\u0085``, a backslash twice."""
    return "".join(map(_shown, decode_path(encode_path(path))))


def _shown(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if character in _NAMED:
        return _NAMED[character]
    if character.isprintable() or code > 0xFFFF:
        return character
    return f"\\u{code:04x}"


def meant_path(text: str) -> str:
    """The path that `shown_path` shows as *text*. A backslash that begins no such escape stands for itself."""
    return decode_path(_ESCAPE.sub(_meant, encode_path(text)))


def _meant(match: re.Match[bytes]) -> bytes:
    byte, code, name = match.groups()
    if byte is not None:
        return bytes([int(byte, 16)])
    if code is not None:
        return chr(int(code, 16)).encode("utf-8", "surrogatepass")
    return _MEANT[name]
