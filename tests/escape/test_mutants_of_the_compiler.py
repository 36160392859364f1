"""A compiler that forgets a layer, a rule or a right is caught, by a canary of its cell or by this suite."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from .judging import violations
from .mutants import MUTANTS

if TYPE_CHECKING:
    from .conftest import Note, Session

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"

CONTRADICTED: Final = "had its effect from within"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(session: Session, note: Note, name: str) -> None:
    mutant = MUTANTS[name]
    outcome = session(replace(mutant.plan, mutant=name, probes=mutant.caught_by))
    found = violations(mutant.plan, outcome)
    by = f"a canary: {outcome.refused.splitlines()[0]}" if outcome.refused else "; ".join(found)
    note(f"mutant {name}: {by}")
    assert CONTRADICTED in outcome.refused or found


@pytest.mark.skipif(not FULL, reason="the same plans run whole in the suite; set EXECWORLD_FULL=1 to run it")
@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_mutation_nothing_is_found(session: Session, name: str) -> None:
    mutant = MUTANTS[name]
    outcome = session(replace(mutant.plan, probes=mutant.caught_by))
    assert outcome.refused == ""
    assert violations(mutant.plan, outcome) == []
