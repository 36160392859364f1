"""Whether one path of a world lies within another, as far as their names tell."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable


def lies_within(path: str, root: str) -> bool:
    """Whether *path* is *root* or below it. One with ``..`` in it is within nothing: links may be on its way."""
    if ".." in path.split("/") or ".." in root.split("/"):
        return False
    inner, outer = _parts(path), _parts(root)
    return inner[: len(outer)] == outer


def lies_within_any(path: str, roots: Iterable[str]) -> bool:
    return any(lies_within(path, root) for root in roots)


def _parts(path: str) -> list[str]:
    return [part for part in posixpath.normpath(path).split("/") if part]
