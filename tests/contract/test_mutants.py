"""The contract bites: each world that is wrong on purpose is rejected by the clauses it names, and by no other.

Every clause of a mutant's list must fail (a strict expected failure), every other one must pass. By default the others
are a sample that touches each seam; with EXECWORLD_FULL=1 they are all.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar, cast

import pytest

from execworld.seams import World
from execworld.seams.testing import (
    SUITES,
    BreakableWorld,
    BrokenWorldMaker,
    ContractSuite,
    LossContract,
    WorldMaker,
    clauses_of,
)
from execworld.testing.mutants import MUTANTS, Mutant

FULL = os.environ.get("EXECWORLD_FULL") == "1"
# Quick ones, that touch each seam.
SAMPLE = frozenset({"W-2", "W-7", "F-4", "F-22", "F-28", "F-49", "P-13", "P-81", "T-20", "S-6"})


class MutantWorld:
    """Maker for the worlds of one mutant."""

    mutant: ClassVar[Mutant]

    @pytest.fixture(scope="class")
    @classmethod
    def anyio_backend(cls) -> str:
        return "asyncio"

    @pytest.fixture(scope="class")
    @classmethod
    def directory(cls, tmp_path_factory: pytest.TempPathFactory) -> Path:
        return tmp_path_factory.mktemp("mutant")

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, directory: Path) -> WorldMaker:
        def make() -> AbstractAsyncContextManager[World]:
            return cls.mutant.open(str(directory))

        return make

    @pytest.fixture(scope="class")
    @classmethod
    def broken_world_maker(cls, directory: Path) -> BrokenWorldMaker:
        def make() -> AbstractAsyncContextManager[BreakableWorld]:
            return cls.mutant.open_breakable(str(directory))

        return make


def classes() -> Iterator[type[ContractSuite]]:
    for mutant in MUTANTS:
        for suite in SUITES:
            if suite is LossContract and not mutant.breakable:
                continue
            everything = FULL or suite is LossContract
            wanted = SAMPLE | mutant.rejecting_clauses
            left_out = [c.test for c in clauses_of(suite) if not everything and c.id not in wanted]
            if len(left_out) == len(clauses_of(suite)):
                continue
            name = mutant.name.removeprefix("mutant ").title().replace("-", "")
            # What is no function is no test, so what is left out costs nothing.
            members = {"mutant": mutant, "__module__": __name__, **dict.fromkeys(left_out)}
            yield cast(
                "type[ContractSuite]", type(f"Test{name}{suite.__name__}", (MutantWorld, suite), members)
            )


for _cls in classes():
    globals()[_cls.__name__] = _cls


def test_mutants_have_names_and_clauses() -> None:
    """Names are distinct, each mutant names at least one clause, and each clause exists."""
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
    known = {clause.id for suite in SUITES for clause in clauses_of(suite)}
    for mutant in MUTANTS:
        assert mutant.rejecting_clauses
        assert mutant.rejecting_clauses <= known
        assert {clause.partition("[")[0] for clause in mutant.also_rejected_by} <= known
