"""A compiler that forgets a layer, a rule or a right is caught, by a canary of its cell or by this suite."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from .judging import violations
from .mutants import MUTANTS
from .plans import Plan

if TYPE_CHECKING:
    from tests.conftest import Note

    from .conftest import Session

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"

CONTRADICTED: Final = ("had its effect from within", "which the policy grants, failed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]


PLANS: Final = [
    replace(mutant.plan, mutant=name, probes=mutant.caught_by or ("run-child",))
    for name, mutant in MUTANTS.items()
]
UNMUTATED: Final = [replace(plan, mutant="") for plan in PLANS]


@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_a_mutant_is_caught(session: Session, note: Note, plan: Plan) -> None:
    outcome = session(plan)
    found = violations(plan, outcome)
    by = f"a canary: {outcome.refused.splitlines()[0]}" if outcome.refused else "; ".join(found)
    note(f"mutant {plan}: {by}")
    assert any(text in outcome.refused for text in CONTRADICTED) or found


@pytest.mark.skipif(not FULL, reason="the same plans run whole in the suite; set EXECWORLD_FULL=1 to run it")
@pytest.mark.parametrize("plan", UNMUTATED if FULL else UNMUTATED[:1], ids=str)
def test_without_the_mutation_nothing_is_found(session: Session, plan: Plan) -> None:
    outcome = session(plan)
    assert outcome.refused == ""
    assert violations(plan, outcome) == []
