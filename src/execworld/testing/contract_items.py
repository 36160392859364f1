"""Which collected tests are clauses of the contract, for which kind of world, and with which deviation."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from execworld.seams.testing import ContractSuite, Deviations
    from execworld.testing.mutants import Mutant

CLAUSE_LIMIT_S: Final = 30.0
"""A clause that takes longer has failed. Most take milliseconds."""

_BACKENDS: Final = ("asyncio", "trio")


@dataclass(frozen=True, slots=True)
class ContractItem:
    """A test of one clause.

    Attributes:
        clause: Its id, for example ``F-31``.
        world: Kind of world, or the name of a mutant.
        case: Id of its parameters without the event loop; empty when there are none.
        deviation: Why the clause must fail here; None when it must pass.
        mutant: Whether the world is wrong on purpose.
    """

    clause: str
    world: str
    case: str
    deviation: str | None
    mutant: bool


CONTRACT_ITEM: Final = pytest.StashKey[ContractItem]()


def suite_of(item: pytest.Item) -> type[ContractSuite] | None:
    """The contract suite that *item* is a test of; looks without importing anything."""
    module = sys.modules.get("execworld.seams.testing.suite")
    cls = getattr(item, "cls", None)
    if module is None or not isinstance(cls, type) or not issubclass(cls, module.ContractSuite):
        return None
    return cls


def world_kind(name: str) -> str:
    """The kind of world that a world name or URL means."""
    return name.partition("://")[0].partition("+")[0]


class ContractCollection:
    """Turns collected tests into contract items."""

    def __init__(self, config: pytest.Config) -> None:
        self._kind = world_kind(config.getoption("world_name") or "")
        self._selection = [part for part in (config.getoption("clauses") or "").split(",") if part]
        self._files: list[str] = config.getoption("deviation_files") or []
        self._deviations: list[Deviations] | None = None

    def mark(self, item: pytest.Item) -> bool:
        """Recognise a clause and attach what is known of it. False: the item was not selected."""
        from execworld.seams.testing import clause_id

        suite = suite_of(item)
        name = getattr(item, "originalname", None)
        clause = clause_id(name) if suite is not None and isinstance(name, str) else None
        if suite is None or clause is None:
            return True
        mutant: Mutant | None = getattr(suite, "mutant", None)
        world = mutant.name if mutant is not None else suite.world_kind or self._kind
        if not self._selected(clause):
            return False
        case = _case(item)
        deviation = self._deviation(mutant, world, clause, case)
        item.stash[CONTRACT_ITEM] = ContractItem(clause, world, case, deviation, mutant is not None)
        if deviation is not None:
            item.add_marker(pytest.mark.xfail(reason=f"{clause} {world}: {deviation}", strict=True))
        return True

    def _selected(self, clause: str) -> bool:
        return not self._selection or any(fnmatch.fnmatchcase(clause, part) for part in self._selection)

    def _deviation(self, mutant: Mutant | None, world: str, clause: str, case: str) -> str | None:
        if mutant is not None:
            return mutant.summary if mutant.rejects(clause, case) else None
        if self._deviations is None:
            from execworld.seams.testing import DEVIATIONS_FILE, read_deviations

            paths = [DEVIATIONS_FILE, *(Path(name) for name in self._files)]
            self._deviations = [read_deviations(path) for path in paths]
        for deviations in self._deviations:
            reasons: Mapping[str, str] = deviations.get(world, {})
            for key in (clause, f"{clause}[{case}]"):
                if key in reasons:
                    return reasons[key]
        return None


def _case(item: pytest.Item) -> str:
    callspec = getattr(item, "callspec", None)
    text = "" if callspec is None else str(callspec.id)
    for backend in _BACKENDS:
        if text == backend:
            return ""
        text = text.removeprefix(f"{backend}-").removesuffix(f"-{backend}")
    return text
