"""Reading an engine's documents: what is missing or not of the expected kind is `ODD`, never a default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, Literal, TypeAlias, cast


class Odd(Enum):
    ODD = "odd"


ODD: Final = Odd.ODD
OddType: TypeAlias = Literal[Odd.ODD]


class Inspected:
    """One JSON object, at whatever depth.

    Null and the absence of a name count as *empty* where a caller says that the engine leaves the name out when it has
    nothing to say; everything else that is not of the wanted kind is `ODD`.
    """

    __slots__ = ("_values",)

    def __init__(self, values: object) -> None:
        self._values = _mapping(values)

    @property
    def is_odd(self) -> bool:
        return self._values is None

    def inner(self, name: str) -> Inspected:
        return Inspected(self._get(name))

    def text(self, name: str, empty: str | OddType = ODD) -> str | OddType:
        value = self._get(name)
        if value is None:
            return empty
        return value if isinstance(value, str) else ODD

    def flag(self, name: str) -> bool | OddType:
        value = self._get(name)
        return value if isinstance(value, bool) else ODD

    def number(self, name: str, empty: int | OddType = ODD) -> int | OddType:
        value = self._get(name)
        if value is None:
            return empty
        return value if isinstance(value, int) and not isinstance(value, bool) else ODD

    def texts(self, name: str) -> tuple[str, ...] | OddType:
        """Null is empty: so the engine writes empty lists."""
        value = self._get(name, missing=ODD)
        if value is None:
            return ()
        items = _sequence(value)
        if items is None:
            return ODD
        found = tuple(item for item in items if isinstance(item, str))
        return found if len(found) == len(items) else ODD

    def objects(self, name: str) -> tuple[Inspected, ...] | OddType:
        value = self._get(name, missing=ODD)
        if value is None:
            return ()
        items = _sequence(value)
        return ODD if items is None else tuple(Inspected(item) for item in items)

    def entries(self, name: str) -> Mapping[str, object] | OddType:
        value = self._get(name, missing=ODD)
        if value is None:
            return {}
        found = _mapping(value)
        return ODD if found is None else found

    def _get(self, name: str, missing: object = None) -> object:
        return missing if self._values is None else self._values.get(name, missing)


def _mapping(value: object) -> Mapping[str, object] | None:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else None


def _sequence(value: object) -> Sequence[object] | None:
    return cast("Sequence[object]", value) if isinstance(value, list) else None
