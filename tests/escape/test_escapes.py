"""No probe has an effect that the report of its view rules out.

A probe counts only when its twin had the effect unconfined (`test_twins.py`); the others are printed as void.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from .judging import violations
from .plans import HIDDEN, NAMESPACES, NET_NONE, POLICIES, PORTS, READ_ONLY, READ_ROOTS, WORKSPACE_WRITE, Plan
from .probes import PROBES

if TYPE_CHECKING:
    from .conftest import Note, Session

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"
ROOT, USER = 0, 1000
ABIS: Final = range(8)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]

SHORT: Final = (
    *(Plan(ROOT, policy=policy) for policy in POLICIES),
    *(Plan(USER, policy=policy) for policy in (WORKSPACE_WRITE, NET_NONE, HIDDEN)),
    Plan(ROOT, policy=WORKSPACE_WRITE, without=(NAMESPACES,)),
    Plan(USER, policy=WORKSPACE_WRITE, without=(NAMESPACES,)),
    Plan(USER, policy=READ_ROOTS, without=(NAMESPACES,)),
    Plan(ROOT, policy=NET_NONE, without=(NAMESPACES,), landlock_abi=3),
    Plan(USER, policy=PORTS, landlock_abi=1),
)
LONG: Final = tuple(
    plan
    for uid in (ROOT, USER)
    for policy in POLICIES
    for without in ((), (NAMESPACES,))
    for abi in (None, *ABIS)
    if (plan := Plan(uid, policy=policy, without=without, landlock_abi=abi)) not in SHORT
)


def check(session: Session, note: Note, plan: Plan) -> None:
    outcome = session(plan)
    if outcome.refused:
        assert "SANDBOX_UNAVAILABLE" in outcome.refused
        note(f"{plan}: refused: {outcome.refused}")
        return
    twins = {
        name: result.effect
        for world in ("local", "direct", "namespace")
        for name, result in session(Plan(plan.uid, world=world, policy="")).results.items()
    }
    void = sum(not effect for effect in twins.values())
    effects = [name for name, result in outcome.results.items() if result.effect and name in PROBES]
    note(
        f"{plan}: {len(twins)} probes, {void} void, {len(effects)} with an allowed effect: {', '.join(effects)}"
    )
    assert violations(plan, outcome) == []


@pytest.mark.parametrize("plan", SHORT, ids=str)
def test_no_probe_escapes(session: Session, note: Note, plan: Plan) -> None:
    check(session, note, plan)


@pytest.mark.skipif(not FULL, reason="every combination takes some minutes; set EXECWORLD_FULL=1 to run it")
@pytest.mark.parametrize("plan", LONG, ids=str)
def test_no_probe_escapes_in_any_combination(session: Session, note: Note, plan: Plan) -> None:
    check(session, note, plan)


@pytest.mark.parametrize("policy", [WORKSPACE_WRITE, READ_ONLY])
@pytest.mark.parametrize("uid", [ROOT, USER], ids=["root", "user"])
def test_what_is_asked_for_is_had_here(session: Session, uid: int, policy: str) -> None:
    """The suite would pass in a world that claims nothing: this machine gives all that the policy requires."""
    outcome = session(Plan(uid, policy=policy))
    assert outcome.refused == ""
    assert outcome.enforcement
    lacking = {
        dimension: entry
        for dimension, entry in outcome.enforcement.items()
        if entry["required"] and entry["state"] != "enforced"
    }
    assert lacking == {}
