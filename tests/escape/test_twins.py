"""Every probe does what it says when nothing confines it: one that fails by itself would look like a denial."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from .plans import Plan, twins
from .probes import CONTROLS, PROBES

if TYPE_CHECKING:
    from tests.conftest import Note

    from .conftest import Session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not hasattr(os, "openpty") or os.uname().sysname != "Linux", reason="probes are of Linux"
    ),
]


def void_because(name: str, uid: int, outcome: str, detail: str) -> str:
    """Why a probe without an effect may be without one when nothing confines it; empty when it may not."""
    if outcome == "void":
        return detail
    if uid and PROBES[name].privileged:
        return "needs root"
    return PROBES[name].unprovable if name in PROBES else ""


@pytest.mark.parametrize(
    "plan",
    [
        Plan(uid=uid, world=world, policy="")
        for uid in (0, 1000)
        for world in ("local", "direct", "namespace")
    ],
    ids=str,
)
def test_a_probe_succeeds_unconfined(session: Session, note: Note, plan: Plan) -> None:
    outcome = session(plan)
    proves_nothing: list[str] = []
    void: list[str] = []
    for name, result in outcome.results.items():
        if result.effect:
            continue
        reason = void_because(name, plan.uid, result.outcome, result.detail)
        if not reason:
            proves_nothing.append(f"{name}: {result.outcome} {result.detail}")
        else:
            void.append(f"{name} ({reason}: {result.detail})")
    if void:
        note(f"{plan}: {len(void)} void: {', '.join(void)}")
    assert proves_nothing == []


def test_each_probe_has_a_twin(session: Session) -> None:
    """None is left out by all of the kinds of twin."""
    seen: set[str] = set()
    for twin in twins(os.getuid()):
        seen |= set(session(twin).results)
    assert seen == {*PROBES, *CONTROLS}
