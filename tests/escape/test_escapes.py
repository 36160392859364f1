"""No probe has an effect that the report of its view rules out.

A probe counts only when its twin had the effect unconfined (`test_twins.py`); the others are printed as void.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from .judging import about, violations
from .plans import HIDDEN, NAMESPACES, NET_NONE, POLICIES, PORTS, READ_ONLY, READ_ROOTS, Plan, twins
from .probes import PROBES

if TYPE_CHECKING:
    from tests.conftest import Note

    from .conftest import Session

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"
IN_CI: Final = os.environ.get("CI") == "true"
ROOT, USER = 0, 1000
ABIS: Final = range(7)
"""Below that of this machine, if it is not older."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]

FILES: Final = about("fs.write", "fs.read", "fs.metadata")
NETWORK: Final = about("net.tcp", "net.udp", "net.other", None)
SHORT: Final = (
    Plan(ROOT),
    Plan(USER),
    Plan(ROOT, policy=READ_ONLY, probes=FILES),
    Plan(ROOT, policy=HIDDEN, probes=FILES),
    Plan(USER, policy=HIDDEN, probes=FILES),
    Plan(ROOT, policy=READ_ROOTS, probes=FILES),
    Plan(ROOT, policy=NET_NONE, probes=NETWORK),
    Plan(USER, policy=NET_NONE, probes=NETWORK),
    Plan(USER, policy=PORTS, probes=NETWORK),
    Plan(ROOT, without=(NAMESPACES,)),
    Plan(USER, without=(NAMESPACES,)),
    Plan(USER, policy=READ_ROOTS, without=(NAMESPACES,), probes=FILES),
    Plan(ROOT, policy=NET_NONE, without=(NAMESPACES,), probes=NETWORK),
    Plan(USER, policy=PORTS, without=(NAMESPACES,), probes=NETWORK),
    Plan(USER, landlock_abi=1, probes=FILES),
    Plan(USER, without=(NAMESPACES,), landlock_abi=3, probes=FILES),
)
LONG: Final = tuple(
    plan
    for uid in (ROOT, USER)
    for policy in POLICIES
    for without in ((), (NAMESPACES,))
    for abi in (None, *ABIS)
    for plan in [Plan(uid, policy=policy, without=without, landlock_abi=abi)]
    if plan not in SHORT
)


def check(session: Session, note: Note, plan: Plan) -> None:
    outcome = session(plan)
    if outcome.refused:
        assert "SANDBOX_UNAVAILABLE" in outcome.refused
        note(f"{plan}: refused: {outcome.refused}")
        return
    proven = {
        name for twin in twins(plan.uid) for name, result in session(twin).results.items() if result.effect
    }
    tried = [name for name in outcome.results if name in PROBES]
    void = sum(name not in proven for name in tried)
    effects = [name for name, result in outcome.results.items() if result.effect and name in PROBES]
    note(
        f"{plan}: {len(tried)} probes, {void} void, {len(effects)} with an allowed effect: {', '.join(effects)}"
    )
    assert violations(plan, outcome) == []


@pytest.mark.parametrize("plan", SHORT, ids=str)
def test_no_probe_escapes(session: Session, note: Note, plan: Plan) -> None:
    check(session, note, plan)


@pytest.mark.skipif(
    not FULL, reason="every combination takes a quarter of an hour; set EXECWORLD_FULL=1 to run it"
)
@pytest.mark.parametrize("plan", LONG if FULL else LONG[:1], ids=str)
def test_no_probe_escapes_in_any_combination(session: Session, note: Note, plan: Plan) -> None:
    check(session, note, plan)


@pytest.mark.parametrize("plan", SHORT[:9], ids=str)
def test_what_is_asked_for_is_had_here(session: Session, plan: Plan) -> None:
    """The suite would pass in a world that refuses, or claims nothing: where all layers are, so is what is required."""
    outcome = session(plan)
    if outcome.refused and not IN_CI:
        pytest.skip(outcome.refused)
    assert outcome.refused == ""
    assert outcome.enforcement
    lacking = {
        dimension: entry
        for dimension, entry in outcome.enforcement.items()
        if entry["required"] and entry["state"] != "enforced"
    }
    assert lacking == {}
