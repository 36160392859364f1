"""JSON values that nobody can change, made without loss or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, TypeAlias, cast

Json: TypeAlias = "str | int | float | bool | tuple[Json, ...] | Mapping[str, Json] | None"
"""Frozen: arrays are tuples, and objects cannot be written to."""

_MAX_DEPTH: Final = 64


class LossyJson(ValueError):
    """The value would not be the same after a way through JSON."""


def freeze(value: object) -> Json:
    """A copy of *value* that shares nothing with it that could change.

    Raises:
        LossyJson: it holds something that JSON has not, or more than 64 levels.
    """
    return _frozen(value, 0)


def _frozen(value: object, depth: int) -> Json:
    kind = type(value)
    if value is None or kind is bool or kind is int:
        return cast("Json", value)
    if kind is str:
        return _text(cast("str", value))
    if kind is float:
        number = cast("float", value)
        if not math.isfinite(number):
            raise LossyJson(f"{number} is no number of JSON")
        return number
    if depth == _MAX_DEPTH:
        raise LossyJson(f"more than {_MAX_DEPTH} levels")
    if kind is list or kind is tuple:
        return tuple([_frozen(each, depth + 1) for each in cast("list[object]", value)])
    if kind is dict or kind is MappingProxyType:
        items = cast("Mapping[object, object]", value).items()
        return MappingProxyType({_name(name): _frozen(each, depth + 1) for name, each in items})
    raise LossyJson(f"a value of type `{kind.__name__}`")


def _name(name: object) -> str:
    if type(name) is not str:
        raise LossyJson(f"a name of type `{type(name).__name__}`")
    return _text(name)


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LossyJson("text with half of a surrogate pair") from None
    return text


def thaw(value: Json) -> object:
    """A copy of *value* in lists and dictionaries, for whoever may change it."""
    if isinstance(value, Mapping):
        return {name: thaw(each) for name, each in value.items()}
    if isinstance(value, tuple):
        return [thaw(each) for each in value]
    return value
