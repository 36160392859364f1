"""Floors: layers raise them and never lower them; whatever holds a raised floor holds the one below."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given

from execworld.seams import (
    Boundary,
    Dimension,
    NetworkMode,
    NetworkPolicy,
    ResourceLimits,
    SandboxMode,
    SandboxPolicy,
    WorldClaims,
)
from execworld.seams.floor import Floor

from .policies import claims, ever_higher, ever_tighter, floors, kinds, policies

POLICY = SandboxPolicy(
    mode=SandboxMode.WORKSPACE_WRITE,
    workspace="/p",
    hidden=("/s",),
    network=NetworkPolicy(NetworkMode.PORTS, (443,)),
    limits=ResourceLimits(processes=10),
    environment=("A",),
)
CLAIMS = WorldClaims(Boundary.CONTAINER, images=("debian:bookworm",), hosts=("a.example.com",))


@pytest.mark.parametrize(
    ("floor", "subject"),
    [
        (Floor(boundary=Boundary.VIRTUAL_MACHINE), "world.boundary"),
        (Floor(boundary=Boundary.OTHER_HOST), "world.boundary"),
        (Floor(worlds=("landlock",)), "world.use"),
        (Floor(worlds=()), "world.use"),
        (Floor(images=("alpine:*",)), "world.image"),
        (Floor(hosts=("b.example.com",)), "world.host"),
        (Floor(mode=SandboxMode.READ_ONLY), "policy.mode"),
        (Floor(network=NetworkPolicy(NetworkMode.NONE)), "policy.network"),
        (Floor(network=NetworkPolicy(NetworkMode.PORTS, (80,))), "policy.network"),
        (Floor(limits=ResourceLimits(processes=9)), "policy.limits.processes"),
        (Floor(limits=ResourceLimits(wall_s=9)), "policy.limits.wall_s"),
        (Floor(writable=("/q",)), "policy.write_roots"),
        (Floor(writable=()), "policy.write_roots"),
        (Floor(hidden=("/t",)), "policy.hidden"),
        (Floor(environment=()), "policy.environment"),
        (Floor(require=(Dimension.FS_METADATA,)), "policy.require"),
        (Floor(require=(Dimension.FS_READ, Dimension.LIMIT_WALL)), "policy.require"),
    ],
)
def test_what_is_demanded_and_not_there_is_named(floor: Floor, subject: str) -> None:
    assert {each.subject for each in floor.lacks("docker", CLAIMS, POLICY)} == {subject}


@pytest.mark.parametrize(
    "floor",
    [
        Floor(),
        Floor(boundary=Boundary.CONTAINER),
        Floor(boundary=Boundary.KERNEL_POLICY),
        Floor(boundary=Boundary.NONE),
        Floor(worlds=("docker", "landlock")),
        Floor(images=("debian:*",)),
        Floor(hosts=("*.example.com",)),
        Floor(mode=SandboxMode.FULL_ACCESS),
        Floor(network=NetworkPolicy()),
        Floor(network=NetworkPolicy(NetworkMode.PORTS, (443, 80))),
        Floor(limits=ResourceLimits(processes=10)),
        Floor(writable=("/p", "/q")),
        Floor(writable=("/",)),
        Floor(hidden=("/s/inner",)),
        Floor(environment=("A", "B")),
        Floor(require=(Dimension.FS_WRITE, Dimension.NET_TCP)),
    ],
)
def test_what_is_demanded_and_there_is_no_shortfall(floor: Floor) -> None:
    assert floor.lacks("docker", CLAIMS, POLICY) == ()


def test_what_is_not_known_is_not_taken_for_granted() -> None:
    floor = Floor(boundary=Boundary.CONTAINER, images=("*",), hosts=("*",))
    lacking = {each.subject for each in floor.lacks("docker", WorldClaims(), POLICY)}
    assert lacking == {"world.boundary", "world.image", "world.host"}


BELOW = Floor(
    boundary=Boundary.CONTAINER,
    worlds=("docker", "e2b"),
    mode=SandboxMode.WORKSPACE_WRITE,
    require=(Dimension.FS_WRITE,),
    network=NetworkPolicy(NetworkMode.PORTS, (80, 443)),
    limits=ResourceLimits(processes=10),
    writable=("/p",),
    hidden=("/s",),
    environment=("A",),
    images=("debian:*",),
    hosts=("*.example.com",),
    guards=("hold_floor",),
)


@pytest.mark.parametrize(
    ("stated", "subject"),
    [
        (Floor(boundary=Boundary.NONE), "floor.boundary"),
        (Floor(boundary=Boundary.OTHER_HOST), "floor.boundary"),
        (Floor(worlds=("docker", "local")), "floor.worlds"),
        (Floor(mode=SandboxMode.FULL_ACCESS), "floor.mode"),
        (Floor(network=NetworkPolicy()), "floor.network"),
        (Floor(network=NetworkPolicy(NetworkMode.PORTS, (22,))), "floor.network"),
        (Floor(limits=ResourceLimits(processes=11)), "floor.limits.processes"),
        (Floor(writable=("/p", "/q")), "floor.writable"),
        (Floor(environment=("A", "B")), "floor.environment"),
        (Floor(images=("debian*",)), "floor.images"),
        (Floor(images=("*",)), "floor.images"),
        (Floor(hosts=("example.com",)), "floor.hosts"),
        (Floor(hosts=("*",)), "floor.hosts"),
    ],
)
def test_a_layer_that_would_loosen_it_is_told(stated: Floor, subject: str) -> None:
    assert [each.subject for each in BELOW.loosened_by(stated)] == [subject]


@pytest.mark.parametrize(
    "stated",
    [
        Floor(),
        Floor(boundary=Boundary.VIRTUAL_MACHINE),
        Floor(worlds=("docker",)),
        Floor(worlds=()),
        Floor(mode=SandboxMode.READ_ONLY),
        Floor(require=(Dimension.NET_TCP,)),
        Floor(network=NetworkPolicy(NetworkMode.NONE)),
        Floor(limits=ResourceLimits(processes=9, wall_s=1)),
        Floor(writable=("/p/inner",)),
        Floor(hidden=("/t",)),
        Floor(guards=("keep_one_world",)),
        Floor(images=("debian:book*", "debian:12")),
        Floor(hosts=("*.a.example.com", "b.example.com")),
    ],
)
def test_a_layer_that_tightens_it_adds_to_it(stated: Floor) -> None:
    assert BELOW.loosened_by(stated) == ()
    both = BELOW.tightened_by(stated)
    assert set(BELOW.require) | set(stated.require) == set(both.require)
    assert set(BELOW.hidden) | set(stated.hidden) == set(both.hidden)
    assert BELOW.lost_in(both) == ()


@pytest.mark.parametrize("name", [item.name for item in fields(Floor)])
def test_a_demand_that_is_gone_is_lost(name: str) -> None:
    weaker = replace(BELOW, **{name: getattr(Floor(), name)})
    assert [each.subject for each in BELOW.lost_in(weaker)] == [f"floor.{name}"]
    assert weaker.lost_in(BELOW) == ()


@pytest.mark.slow
@given(floors)
def test_a_floor_does_not_loosen_itself(floor: Floor) -> None:
    assert floor.loosened_by(floor) == ()
    assert floor.tightened_by(floor) == floor
    assert floor.lost_in(floor) == ()


@pytest.mark.slow
@given(ever_higher(), kinds, claims, policies())
def test_what_holds_a_raised_floor_holds_the_one_below_and_what_was_added(
    stated: list[Floor], kind: str, claimed: WorldClaims, policy: SandboxPolicy
) -> None:
    below, above = stated
    assert below.loosened_by(above) == ()
    if not below.tightened_by(above).lacks(kind, claimed, policy):
        assert below.lacks(kind, claimed, policy) == ()
        assert above.lacks(kind, claimed, policy) == ()


@pytest.mark.slow
@given(ever_higher(3))
def test_nothing_is_lost_by_raising_it_again(stated: list[Floor]) -> None:
    first, second, third = stated
    twice = first.tightened_by(second).tightened_by(third)
    for each in (first, second, third):
        assert each.lost_in(twice) == ()


@pytest.mark.slow
@given(ever_tighter(), floors)
def test_a_tighter_policy_lacks_nothing_that_the_wider_one_has(
    ever: tuple[SandboxPolicy, SandboxPolicy, SandboxPolicy], floor: Floor
) -> None:
    wider, tighter, _ = ever
    subjects = {each.subject for each in floor.lacking_in_policy(wider)}
    assert {each.subject for each in floor.lacking_in_policy(tighter)} <= subjects
