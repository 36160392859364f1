"""Policies, floors and claims of all kinds, for properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from hypothesis import strategies as st

from execworld.seams import (
    Boundary,
    Dimension,
    NetworkMode,
    NetworkPolicy,
    Requirement,
    ResourceLimits,
    SandboxMode,
    SandboxPolicy,
    WorldClaims,
)
from execworld.seams.floor import Floor

ItemT = TypeVar("ItemT")

PATHS = ("/", "/a", "/a/b", "/a/b/c", "/ab", "/d")
NAMES = ("A", "B", "C")
KINDS = ("local", "landlock", "docker")
IMAGES = ("debian", "debian:bookworm", "debian:*", "alpine", "ghcr.io/a/*", "*")
HOSTS = ("a.example.com", "*.example.com", "b.test", "*")


def some(items: Sequence[ItemT]) -> st.SearchStrategy[tuple[ItemT, ...]]:
    return st.lists(st.sampled_from(items), max_size=3, unique=True).map(tuple)


def some_or_any(items: Sequence[ItemT]) -> st.SearchStrategy[tuple[ItemT, ...] | None]:
    return st.none() | some(items)


networks = st.one_of(
    st.sampled_from([NetworkPolicy(NetworkMode.NONE), NetworkPolicy()]),
    st.lists(st.sampled_from([22, 80, 443]), min_size=1, unique=True).map(
        lambda ports: NetworkPolicy(NetworkMode.PORTS, tuple(ports))
    ),
)
limits = st.builds(
    ResourceLimits,
    processes=st.none() | st.integers(1, 3),
    memory_bytes=st.none() | st.integers(1, 3),
    wall_s=st.none() | st.floats(0.5, 3),
)


@st.composite
def policies(draw: st.DrawFn) -> SandboxPolicy:
    mode = draw(st.sampled_from(SandboxMode))
    writes = mode is SandboxMode.WORKSPACE_WRITE
    return SandboxPolicy(
        mode=mode,
        workspace=draw(st.sampled_from(PATHS)) if writes else None,
        read_roots=draw(some(PATHS)),
        write_roots=draw(some(PATHS)) if writes else (),
        hidden=draw(some(PATHS)),
        network=draw(networks),
        limits=draw(limits),
        environment=draw(some(NAMES)),
        require=draw(st.sampled_from(Requirement)),
        require_dimensions=draw(st.dictionaries(st.sampled_from(Dimension), st.booleans(), max_size=3)),
    )


@st.composite
def tighter_than(draw: st.DrawFn, policy: SandboxPolicy) -> SandboxPolicy:
    """*policy* with some of its parts tightened."""
    if policy.mode is SandboxMode.FULL_ACCESS and draw(st.booleans()):
        # What may be written may be read, so it has to be among what may be read already.
        workspace = draw(st.sampled_from(policy.read_roots or PATHS))
        policy = replace(policy, mode=SandboxMode.WORKSPACE_WRITE, workspace=workspace)
    elif policy.mode is SandboxMode.WORKSPACE_WRITE and draw(st.booleans()):
        policy = replace(policy, write_roots=policy.write_roots[:1])
    if not policy.read_roots and draw(st.booleans()):
        policy = replace(policy, read_roots=draw(some(PATHS)))
    return replace(
        policy,
        hidden=(*policy.hidden, *draw(some(PATHS))),
        network=draw(st.sampled_from([policy.network, NetworkPolicy(NetworkMode.NONE)])),
        limits=replace(policy.limits, cpu_s=policy.limits.cpu_s or draw(st.none() | st.just(1.0))),
        environment=policy.environment[: draw(st.integers(0, 3))],
        require=draw(st.sampled_from([policy.require, Requirement.STRICT])),
    )


@st.composite
def ever_tighter(draw: st.DrawFn) -> tuple[SandboxPolicy, SandboxPolicy, SandboxPolicy]:
    first = draw(policies())
    second = draw(tighter_than(first))
    return first, second, draw(tighter_than(second))


floors = st.builds(
    Floor,
    boundary=st.none() | st.sampled_from(Boundary),
    worlds=some_or_any(KINDS),
    mode=st.none() | st.sampled_from(SandboxMode),
    require=some(list(Dimension)[:3]),
    network=st.none() | networks,
    limits=limits,
    writable=some_or_any(PATHS),
    hidden=some(PATHS[3:]),
    environment=some_or_any(NAMES),
    images=some_or_any(IMAGES),
    hosts=some_or_any(HOSTS),
)
claims = st.builds(
    WorldClaims,
    boundary=st.sampled_from(Boundary),
    images=some_or_any(("debian", "debian:bookworm", "debian:12", "alpine", "ghcr.io/a/b")),
    hosts=some_or_any(("a.example.com", "b.test", "example.com")),
)


@st.composite
def ever_higher(draw: st.DrawFn, count: int = 2) -> list[Floor]:
    """Floors of which none loosens what those before it amount to."""
    stated = [draw(floors)]
    below = stated[0]
    for _ in range(count - 1):
        above = draw(floors)
        for lost in below.loosened_by(above):
            name = lost.subject.split(".")[1]
            above = replace(above, **{name: getattr(Floor(), name)})
        stated.append(above)
        below = below.tightened_by(above)
    return stated


kinds = st.sampled_from(KINDS)
