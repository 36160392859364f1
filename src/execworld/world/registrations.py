"""Which distributions register providers: the entry points of one group.

`importlib.metadata` answers this too, but importing it (with the parsers of mail, archives and CSV that it needs) takes
longer than all else that finding a world does. So directories are read here, where nothing else can hold distributions.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from typing import Final

from execworld.seams import ENTRY_POINT_GROUP
from execworld.seams.values import record

_ENTRY_POINTS: Final = "entry_points.txt"
_SUFFIXES: Final = (".dist-info", ".egg-info")
_REFERENCE: Final = re.compile(
    r"(?P<module>[\w.]+)\s*(?::\s*(?P<attributes>[\w.]+))?\s*(?:\[.*\])?\s*", re.ASCII
)


@record
class Registration:
    """One entry point of the group.

    Attributes:
        name: Name of the provider.
        value: ``module:object``, as registered.
        distribution: Name of the distribution that registers it; empty when that is not known.
    """

    name: str
    value: str
    distribution: str

    @property
    def module(self) -> str:
        return self.value.partition(":")[0].strip()

    def load(self) -> object:
        """Import the module and find the object in it.

        Raises:
            AttributeError: the module has no such object, or *value* names none.
        """
        match = _REFERENCE.fullmatch(self.value)
        if match is None:
            message = f"{self.value!r} is not of the form module:object"
            raise AttributeError(message)
        found: object = importlib.import_module(match["module"])
        for attribute in (match["attributes"] or "").split("."):
            found = getattr(found, attribute) if attribute else found
        return found


def read_registrations() -> tuple[Registration, ...]:
    """Every registration, in the order of the path. Imports nothing that is registered."""
    if not _only_directories():
        return _by_metadata()
    seen: set[str] = set()
    found: list[Registration] = []
    for directory in dict.fromkeys(sys.path):
        for information in _informations(directory or "."):
            key = _normalised(os.path.basename(information))
            if key not in seen:  # the first on the path hides others of its name
                seen.add(key)
                found += _registrations_in(information)
    return tuple(found)


def provided_extras(distribution: str) -> tuple[str, ...]:
    """Names of the extras of an installed distribution."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        return tuple(metadata(distribution).get_all("Provides-Extra") or ())
    except PackageNotFoundError:
        return ()


def _only_directories() -> bool:
    """Whether distributions can be found in directories alone, not in archives nor by a finder of somebody else."""
    finders = [finder for finder in sys.meta_path if hasattr(finder, "find_distributions")]
    return finders == [PathFinder] and not any(
        os.path.isfile(entry) or entry.endswith(".egg") for entry in sys.path
    )


def _informations(directory: str) -> Iterator[str]:
    try:
        names = sorted(os.listdir(directory))
    except OSError:
        return
    for name in names:
        if name.endswith(_SUFFIXES):
            yield os.path.join(directory, name)


def _normalised(name: str) -> str:
    stem = name.rpartition(".")[0].partition("-")[0]
    return re.sub(r"[-_.]+", "-", stem).lower()


def _registrations_in(information: str) -> Iterator[Registration]:
    try:
        with open(os.path.join(information, _ENTRY_POINTS), encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return
    if ENTRY_POINT_GROUP not in text:
        return
    section = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
        elif section == ENTRY_POINT_GROUP and line and not line.startswith(("#", ";")):
            name, separator, value = line.partition("=")
            if separator:
                yield Registration(name.strip(), value.strip(), _distribution_name(information))


def _distribution_name(information: str) -> str:
    for file_name in ("METADATA", "PKG-INFO"):
        try:
            with open(os.path.join(information, file_name), encoding="utf-8", errors="replace") as file:
                for line in file:
                    name, _, value = line.partition(":")
                    if name.lower() == "name":
                        return value.strip()
                    if not line.strip():
                        break
        except OSError:
            continue
    return ""


def _by_metadata() -> tuple[Registration, ...]:
    from importlib.metadata import entry_points

    return tuple(
        Registration(point.name, point.value, point.dist.name if point.dist is not None else "")
        for point in entry_points(group=ENTRY_POINT_GROUP)
    )
