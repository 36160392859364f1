"""What surrounds a world enforces too, and how that adds up with what a cell does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState
from execworld.seams.policy import SandboxPolicy
from execworld.seams.values import record


@record
class Given:
    """What surrounds the world holds of one dimension, for every program in it.

    Attributes:
        state: `ENFORCED` only where it was seen to hold in the place itself: a setting alone is `PARTIAL`.
        by: What holds it.
        why_not: What is left open, or why it could not be verified; empty when it is enforced.
    """

    state: EnforcementState
    by: str
    why_not: str = ""


GivenDimensions: TypeAlias = Mapping[Dimension, Given]
Surroundings: TypeAlias = Callable[[SandboxPolicy], GivenDimensions]
"""What is given depends on the policy: a limit holds what asks for as much or more."""

NOTHING_GIVEN: Final[GivenDimensions] = MappingProxyType(dict[Dimension, Given]())

_ORDER: Final = (EnforcementState.ABSENT, EnforcementState.PARTIAL, EnforcementState.ENFORCED)


def add_up(cell: Enforcement, given: GivenDimensions) -> Enforcement:
    """Of each dimension of *cell* the stronger of the two. Nothing that is given makes a policy ask for more."""
    return Enforcement({dimension: _stronger(entry, given.get(dimension)) for dimension, entry in cell})


def enforced(given: GivenDimensions) -> frozenset[Dimension]:
    return frozenset(d for d, one in given.items() if one.state is EnforcementState.ENFORCED)


def _stronger(entry: DimensionEnforcement, one: Given | None) -> DimensionEnforcement:
    if one is None or one.state is EnforcementState.ABSENT:
        return entry
    own, other = _ORDER.index(entry.state), _ORDER.index(one.state)
    if own > other:
        return entry
    both = own == other
    partial = one.state is EnforcementState.PARTIAL
    reasons = (entry.why_not if both else "", one.why_not)
    return DimensionEnforcement(
        asked=entry.asked,
        required=entry.required,
        state=one.state,
        by=_joined(" and ", entry.by if both else "", one.by),
        why_not=_joined("; ", *reasons) if partial else "",
    )


def _joined(separator: str, *parts: str) -> str:
    return separator.join(dict.fromkeys(filter(None, parts)))
