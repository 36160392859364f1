"""Deviations: what a kind of world is known not to keep, each with its reason.

There is one list. A clause in it must fail for that kind of world: one that passes has no place there.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias, cast

Deviations: TypeAlias = "Mapping[str, Mapping[str, str]]"
"""Kind of world -> clause id -> reason."""

DEVIATIONS_FILE: Final = Path(__file__).with_name("deviations.toml")


def read_deviations(path: Path = DEVIATIONS_FILE) -> Deviations:
    """Read a list of the form ``[kind]`` and lines ``"F-31" = "reason"``.

    Raises:
        ValueError: the file has another form, or a deviation has no reason.
    """
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    deviations: dict[str, Mapping[str, str]] = {}
    for kind, entries in document.items():
        if not isinstance(entries, dict):
            raise ValueError(f"{path}: {kind!r} is no table of a kind of world")
        reasons: dict[str, str] = {}
        for clause, reason in cast("dict[str, object]", entries).items():
            if not isinstance(reason, str) or not reason.strip():
                raise ValueError(f"{path}: deviation {clause!r} of {kind!r} gives no reason")
            reasons[clause] = reason.strip()
        deviations[kind] = MappingProxyType(reasons)
    return MappingProxyType(deviations)
