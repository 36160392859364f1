"""JSON that this program prints, for readers in any language."""

from __future__ import annotations

import base64
import json
from typing import Any, cast


def encode_document(value: object, *, indent: int | None = None) -> bytes:
    """*value* as one line, or several with *indent*, in ASCII.

    A path or argument of a world is a byte string, which need not be UTF-8, while text in JSON has to be. Where
    ``NAME`` is not, its value is shown with ``\\xNN`` for each byte that is not, and ``NAME_base64`` beside it has the
    exact bytes; without such a field the text is exact. Lone surrogates, which stand for such bytes in Python and which
    many readers refuse, never occur.
    """
    return json.dumps(_portable(value), indent=indent).encode("ascii") + b"\n"


def _portable(value: object) -> object:
    if isinstance(value, str):
        return _shown(value)
    if isinstance(value, list | tuple):
        return [_portable(item) for item in cast("list[object] | tuple[object, ...]", value)]
    if not isinstance(value, dict):
        return value
    fields: dict[str, object] = {}
    for name, item in cast("dict[Any, object]", value).items():
        key = _shown(str(name))
        fields[key] = _portable(item)
        if isinstance(item, str) and (exact := _exact_bytes(item)) is not None:
            fields[f"{key}_base64"] = base64.b64encode(exact).decode("ascii")
    return fields


def _shown(text: str) -> str:
    """*text* with bytes that are not UTF-8 as ``\\xNN``, other lone surrogates as ``\\uNNNN``."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _exact_bytes(text: str) -> bytes | None:
    """The bytes that *text* stands for, where it cannot hold them itself."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        pass
    else:
        return None
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return None
