"""What a container gives to a policy counts only where it was seen to hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from execworld.confinement.surroundings import Given
from execworld.providers.docker.boundary import ContainerBoundary
from execworld.providers.docker.surroundings import ContainerSurroundings, Observed
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.identity import Boundary
from execworld.seams.policy import NetworkMode, NetworkPolicy, ResourceLimits, SandboxPolicy

ENFORCED, PARTIAL = EnforcementState.ENFORCED, EnforcementState.PARTIAL
TIGHT = ContainerBoundary(
    boundary=Boundary.CONTAINER,
    crossings=(),
    no_network=True,
    processes=40,
    memory_bytes=1 << 20,
    own_processes=True,
    read_only_root=True,
    writable=("/dev", "/tmp"),
    administrator=False,
)
SEEN = Observed(no_network="", processes=40, memory_bytes=1 << 20)
POLICY = replace(
    SandboxPolicy.read_only(),
    network=NetworkPolicy(NetworkMode.NONE),
    limits=ResourceLimits(processes=50, memory_bytes=1 << 20),
)
NETWORK = (Dimension.NET_TCP, Dimension.NET_UDP)
PROVEN = {Dimension.LIMIT_PROCESSES, Dimension.LIMIT_MEMORY}


def given(
    boundary: ContainerBoundary = TIGHT, observed: Observed = SEEN, policy: SandboxPolicy = POLICY
) -> dict[Dimension, Given]:
    return dict(ContainerSurroundings(boundary, observed)(policy))


def enforced(found: dict[Dimension, Given]) -> set[Dimension]:
    assert all(bool(one.why_not) == (one.state is PARTIAL) for one in found.values())
    return {dimension for dimension, one in found.items() if one.state is ENFORCED}


def test_what_was_seen_to_hold_is_enforced() -> None:
    assert enforced(given()) == PROVEN


def test_what_holds_for_a_part_is_partial() -> None:
    found = given()
    assert found[Dimension.FS_WRITE].state is PARTIAL
    assert "/dev, /tmp" in found[Dimension.FS_WRITE].why_not
    assert {found[d].state for d in (Dimension.IPC_SIGNAL, Dimension.IPC_TRACE)} == {PARTIAL}


def test_no_network_is_partial_because_loopback_is_shared() -> None:
    """Whatever else runs in the container may listen there."""
    doubted = given(observed=replace(SEEN, no_network="there is an interface eth0"))
    for dimension in NETWORK:
        assert (given()[dimension].state, "loopback" in given()[dimension].why_not) == (PARTIAL, True)
        assert doubted[dimension].state is PARTIAL
        assert "could not be verified: there is an interface eth0" in doubted[dimension].why_not


@pytest.mark.parametrize(
    ("observed", "lost"),
    [
        (replace(SEEN, processes=None), {Dimension.LIMIT_PROCESSES}),
        (replace(SEEN, processes=51), {Dimension.LIMIT_PROCESSES}),
        (replace(SEEN, memory_bytes=1 << 40), {Dimension.LIMIT_MEMORY}),
    ],
)
def test_a_setting_that_was_not_seen_to_hold_is_not_enforced(
    observed: Observed, lost: set[Dimension]
) -> None:
    found = given(observed=observed)
    assert enforced(found) == PROVEN - lost
    assert all("could not be verified" in found[dimension].why_not for dimension in lost)


def test_what_was_seen_and_is_no_setting_counts_for_nothing() -> None:
    loose = replace(TIGHT, no_network=False, processes=None, memory_bytes=None)
    assert enforced(given(loose)) == set()
    assert not given(loose).keys() & set(NETWORK)


def test_a_limit_holds_what_asks_for_as_much_or_more() -> None:
    for asked, state in ((39, PARTIAL), (40, ENFORCED), (41, ENFORCED)):
        policy = replace(POLICY, limits=ResourceLimits(processes=asked))
        assert given(policy=policy)[Dimension.LIMIT_PROCESSES].state is state


def test_nothing_is_given_that_was_not_asked() -> None:
    assert set(given(policy=SandboxPolicy.full_access())) == set()


@pytest.mark.parametrize(
    "boundary",
    [
        replace(TIGHT, administrator=True),
        replace(TIGHT, boundary=Boundary.NONE),
        replace(TIGHT, boundary=Boundary.OTHER_HOST),
    ],
)
def test_a_container_that_is_no_boundary_gives_nothing_for_sure(boundary: ContainerBoundary) -> None:
    found = given(boundary)
    assert found.keys() >= PROVEN
    assert enforced(found) == set()
