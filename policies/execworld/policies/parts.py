"""The services that belong to one world."""

from __future__ import annotations

from typing import Any, Final

from execworld.kernel import FS, SANDBOX, SHELL, SUBPROCESS, WORLD, Key

PARTS: Final[tuple[Key[Any], ...]] = (WORLD, FS, SUBPROCESS, SHELL, SANDBOX)
PART_NAMES: Final = frozenset(key.name for key in PARTS)


def world_id_of(part: object) -> str | None:
    """Which world *part* is of; None when it does not say."""
    found = getattr(part, "world_id", None)
    return found if isinstance(found, str) and found else None


def view_id_of(part: object) -> str | None:
    """Which view *part* is of; None when it does not say."""
    found = getattr(part, "view_id", None)
    return found if isinstance(found, str) and found else None
