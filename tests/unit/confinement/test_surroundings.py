"""What a cell does and what surrounds it add up dimension by dimension, and never to less."""

from __future__ import annotations

import itertools

import pytest

from execworld.confinement.surroundings import Given, add_up, enforced
from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState

ABSENT, PARTIAL, ENFORCED = EnforcementState.ABSENT, EnforcementState.PARTIAL, EnforcementState.ENFORCED
ORDER = [ABSENT, PARTIAL, ENFORCED]
TCP = Dimension.NET_TCP


def entry(state: EnforcementState) -> DimensionEnforcement:
    return DimensionEnforcement(
        asked=True,
        required=True,
        state=state,
        by="" if state is ABSENT else "the cell",
        why_not="" if state is ENFORCED else "not all of it",
    )


def one(state: EnforcementState) -> Given:
    return Given(state, "the container", "" if state is ENFORCED else "a part of it")


@pytest.mark.parametrize(("own", "other"), list(itertools.product(ORDER, ORDER)))
def test_the_stronger_counts(own: EnforcementState, other: EnforcementState) -> None:
    found = add_up(Enforcement({TCP: entry(own)}), {TCP: one(other)}).entries[TCP]
    assert found.state is max(own, other, key=ORDER.index)
    assert (found.asked, found.required) == (True, True)
    assert bool(found.why_not) is (found.state is not ENFORCED)
    assert ("the cell" in found.by) is (own is found.state and own is not ABSENT)
    assert ("the container" in found.by) is (other is found.state and other is not ABSENT)


def test_nothing_given_changes_nothing() -> None:
    cell = Enforcement({dimension: entry(PARTIAL) for dimension in Dimension})
    assert add_up(cell, {}) == cell


def test_what_nobody_asked_for_is_not_reported() -> None:
    assert add_up(Enforcement(), {TCP: one(ENFORCED)}).entries == {}


def test_only_what_is_enforced_is_counted_on() -> None:
    given = dict(zip(Dimension, (one(state) for state in ORDER), strict=False))
    assert enforced(given) == {list(Dimension)[2]}
