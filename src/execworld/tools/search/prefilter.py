"""A quick test that finds every line that can match, and some others: a run of characters that each match has."""

from __future__ import annotations

import re
from typing import Final

from execworld.tools.search.syntax import Characters, Choice, Node, Ranges, Repeat, Sequence

_MAX_RUN: Final = 32


def prefilter(node: Node) -> tuple[re.Pattern[str], bool] | None:
    """An expression of fixed length for the standard library, and whether it says the same as *node*.

    None when there is no such run. What has a fixed length and no repetition cannot be made to backtrack.
    """
    branches = node.branches if isinstance(node, Choice) else (node,)
    runs = [_best_run(branch) for branch in branches]
    if not all(runs):
        return None
    exact = all(
        _is_fixed(branch) and len(run) == _length(branch) for branch, run in zip(branches, runs, strict=True)
    )
    return re.compile("|".join("".join(map(_as_set, run)) for run in runs)), exact


def _best_run(node: Node) -> list[Ranges]:
    runs: list[list[Ranges]] = [[]]
    _collect(node, runs)
    return max(runs, key=_weight)[:_MAX_RUN]


def _collect(node: Node, runs: list[list[Ranges]]) -> None:
    """Add what every match of *node* holds, one run after the other."""
    match node:
        case Characters(ranges):
            runs[-1].append(ranges)
        case Sequence(parts):
            for part in parts:
                _collect(part, runs)
        case Repeat(inner, least, most):
            for _ in range(min(least, _MAX_RUN)):
                _collect(inner, runs)
            if most != least or least > _MAX_RUN:
                runs.append([])
        case _:
            runs.append([])


def _weight(run: list[Ranges]) -> int:
    return sum(8 if _count(ranges) == 1 else 4 if _count(ranges) < 5 else 1 for ranges in run)


def _count(ranges: Ranges) -> int:
    return sum(high - low + 1 for low, high in ranges)


def _is_fixed(node: Node) -> bool:
    return isinstance(node, Characters) or (isinstance(node, Sequence) and all(map(_is_fixed, node.parts)))


def _length(node: Node) -> int:
    return sum(map(_length, node.parts)) if isinstance(node, Sequence) else 1


def _as_set(ranges: Ranges) -> str:
    if _count(ranges) == 1:
        return re.escape(chr(ranges[0][0]))
    return "[" + "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges) + "]"
