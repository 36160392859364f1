"""No probe has an effect that the report of its view rules out, in a container and on what it shares with its host.

Each container runs all probes without a view first: what has no effect then is either stopped by the container, which
`contained.STOPS` says, or says nothing here.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import anyio
import pytest

from .conftest import plans_of
from .contained import stops
from .containers import JOINED, MADE, OF_HOST, open_container, perform
from .judging import about, one_of_each_kind, violations
from .plans import (
    HIDDEN,
    NAMESPACES,
    NET_NONE,
    POLICIES,
    PORTS,
    PORTS_ALONE,
    READ_ONLY,
    READ_ROOTS,
    Outcome,
    Plan,
)
from .probes import PROBES
from .test_twins import void_because

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Note
    from tests.docker.engines import Engine

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"
ROOT, USER = 0, 1000

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(300)]

FILES: Final = about("fs.write", "fs.read", "fs.metadata")
NETWORK: Final = about("net.tcp", "net.udp", "net.other", None)
KINDS: Final = one_of_each_kind()
TWINS: Final = tuple(Plan(uid, world, "") for world in (MADE, JOINED, OF_HOST) for uid in (ROOT, USER))
SHORT: Final = (
    Plan(ROOT, MADE),
    Plan(ROOT, MADE, READ_ONLY, probes=FILES),
    Plan(ROOT, MADE, HIDDEN, probes=FILES),
    Plan(ROOT, MADE, NET_NONE, probes=NETWORK),
    Plan(USER, MADE),
    Plan(USER, MADE, READ_ROOTS, probes=FILES),
    Plan(USER, MADE, PORTS, probes=NETWORK),
    Plan(ROOT, JOINED),
    Plan(ROOT, JOINED, READ_ROOTS, probes=FILES),
    Plan(ROOT, JOINED, PORTS, probes=NETWORK),
    Plan(USER, JOINED),
    Plan(USER, JOINED, READ_ONLY, probes=FILES),
    Plan(USER, JOINED, NET_NONE, probes=NETWORK),
    Plan(ROOT, OF_HOST),
    Plan(ROOT, OF_HOST, READ_ROOTS, probes=FILES),
    Plan(ROOT, OF_HOST, NET_NONE, probes=NETWORK),
    Plan(USER, OF_HOST, probes=KINDS),
)
OLD_KERNEL: Final = (Plan(ROOT, JOINED, PORTS_ALONE, landlock_abi=3, probes=NETWORK),)
"""Where a container without network was once said to be enough."""
LONG: Final = tuple(
    plan
    for twin in TWINS
    for policy in POLICIES
    for without in ((), (NAMESPACES,))
    for abi in (None, 0, 3, 5)
    for plan in [Plan(twin.uid, twin.world, policy, without=without, landlock_abi=abi)]
    if plan not in SHORT and (twin.world == MADE or not without)
)


class Containers:
    """What became of plans: those of one container run in it, one after the other, when one of them is asked for."""

    def __init__(self, engine: Engine, place: Path, selected: list[Plan]) -> None:
        self._engine, self._place, self._selected = engine, place, selected
        self._outcomes: dict[Plan, Outcome] = {}

    def __call__(self, plan: Plan) -> Outcome:
        if plan not in self._outcomes:
            plans = [other for other in self._selected if _container(other) == _container(plan)]
            anyio.run(self._run, list(dict.fromkeys([*plans, plan])))
        return self._outcomes[plan]

    async def _run(self, plans: list[Plan]) -> None:
        base = self._place / f"{len(self._outcomes)}"
        base.mkdir()
        base.chmod(0o755)
        async with open_container(self._engine, plans[0], base) as place:
            for number, plan in enumerate(plans):
                self._outcomes[plan] = await perform(place, plan, number)


def _container(plan: Plan) -> object:
    return plan.world, plan.uid, plan.without, plan.landlock_abi


@pytest.fixture(scope="module")
def contained(request: pytest.FixtureRequest, engine: Engine, place: Path) -> Containers:
    return Containers(engine, place, [*TWINS, *plans_of(request)])


def twin(plan: Plan) -> Plan:
    """The session in the same container in which every probe runs without a view."""
    return Plan(plan.uid, plan.world, "")


@pytest.mark.parametrize("plan", TWINS, ids=str)
def test_a_probe_succeeds_in_a_container_without_a_view(
    contained: Containers, note: Note, plan: Plan
) -> None:
    """Or the container stops it by itself: then it never has an effect there."""
    proves_nothing: list[str] = []
    void: list[str] = []
    for name, result in contained(plan).results.items():
        found = stops(name, plan)
        always = [stop.by for stop in found if stop.always]
        told = f"{name}: {result.outcome} {result.detail}"
        if result.effect and always:
            proves_nothing.append(f"{told} (said to be stopped by {', '.join(always)})")
        elif not result.effect:
            reasons = [stop.by for stop in found]
            reason = ", ".join(reasons) or void_because(name, plan.uid, result.outcome, result.detail)
            (void if reason else proves_nothing).append(f"{told} ({reason})")
    note(f"{plan}: {len(void)} void: {', '.join(void)}")
    assert proves_nothing == []


def check(contained: Containers, note: Note, plan: Plan) -> None:
    outcome = contained(plan)
    if outcome.refused:
        assert "SANDBOX_UNAVAILABLE" in outcome.refused
        note(f"{plan}: refused: {outcome.refused.splitlines()[0]}")
        return
    proven = {name for name, result in contained(twin(plan)).results.items() if result.effect}
    tried = [name for name in outcome.results if name in PROBES]
    effects = [name for name in tried if outcome.results[name].effect]
    void = sum(name not in proven for name in tried)
    note(
        f"{plan}: {len(tried)} probes, {void} void, {len(effects)} with an allowed effect: {', '.join(effects)}"
    )
    assert violations(plan, outcome) == []


@pytest.mark.parametrize("plan", [*SHORT, *OLD_KERNEL], ids=str)
def test_no_probe_escapes(contained: Containers, note: Note, plan: Plan) -> None:
    check(contained, note, plan)


@pytest.mark.skipif(not FULL, reason="every combination takes some minutes; set EXECWORLD_FULL=1 to run it")
@pytest.mark.parametrize("plan", LONG if FULL else LONG[:1], ids=str)
def test_no_probe_escapes_in_any_combination(contained: Containers, note: Note, plan: Plan) -> None:
    check(contained, note, plan)


@pytest.mark.parametrize("plan", SHORT, ids=str)
def test_what_is_asked_for_is_had_here(contained: Containers, plan: Plan) -> None:
    """The suite would pass in a world that refuses, or claims nothing."""
    outcome = contained(plan)
    assert outcome.refused == ""
    required = {name: entry["state"] for name, entry in outcome.enforcement.items() if entry["required"]}
    assert required
    assert set(required.values()) == {"enforced"}
