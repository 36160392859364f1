"""Measure in turn what is to be compared."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

Call: TypeAlias = Callable[[], Awaitable[object]]
"""One call; its time counts, or the `float` that it returns."""

OURS: Final = "ours"
_UNCOUNTED: Final = 2


class LeftOut(Exception):
    """A row that means nothing here; says why."""


@dataclass(frozen=True, slots=True)
class Case:
    """What is to be measured.

    Attributes:
        title: For people.
        unit: Of the values: ``ms``, ``s`` or ``MiB``.
        rounds: How often, at full scale.
        ours: Through the world.
        peers: The plain ways, by name.
    """

    title: str
    unit: str
    rounds: int
    ours: Call
    peers: Mapping[str, Call]


@dataclass(frozen=True, slots=True)
class Row:
    """One case, measured: medians."""

    name: str
    title: str
    unit: str
    rounds: int
    ours: float
    peers: Mapping[str, float]

    @property
    def ratios(self) -> dict[str, float]:
        """Ours to each peer's."""
        return {name: self.ours / value for name, value in self.peers.items() if value > 0}


@dataclass(frozen=True, slots=True)
class Measured:
    """Attributes:
    left_out: Why, by the names of the rows.
    """

    rows: tuple[Row, ...]
    left_out: Mapping[str, str]


_FACTORS: Final = {"ms": 1000.0, "s": 1.0, "MiB": 1.0}


async def measure(name: str, case: Case, scale: float) -> Row:
    """Time everything in turn, each round beginning with another one, after a few rounds that do not count."""
    rounds = max(1, round(case.rounds * scale))
    warm = _UNCOUNTED if rounds > _UNCOUNTED else 0
    calls = {OURS: case.ours, **case.peers}
    order = list(calls)
    values: dict[str, list[float]] = {which: [] for which in order}
    for number in range(-warm, rounds):
        for which in order:
            start = time.perf_counter()
            answer = await calls[which]()
            elapsed_s = time.perf_counter() - start
            if number >= 0:
                values[which].append(answer if isinstance(answer, float) else elapsed_s * _FACTORS[case.unit])
        order.append(order.pop(0))
    medians = {which: statistics.median(found) for which, found in values.items()}
    return Row(name, case.title, case.unit, rounds, medians.pop(OURS), medians)
