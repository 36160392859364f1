"""The partial order of policies: what is not comparable counts as weaker."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from execworld.seams import (
    Dimension,
    NetworkMode,
    NetworkPolicy,
    Requirement,
    ResourceLimits,
    SandboxMode,
    SandboxPolicy,
)
from execworld.seams.containment import lies_within
from execworld.seams.policy_order import policy_losses

from .policies import ever_tighter, policies

BASE = SandboxPolicy(
    mode=SandboxMode.WORKSPACE_WRITE,
    workspace="/p",
    read_roots=("/r",),
    write_roots=("/w",),
    hidden=("/p/secret",),
    network=NetworkPolicy(NetworkMode.PORTS, (80, 443)),
    limits=ResourceLimits(processes=10),
    environment=("A",),
)


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"mode": SandboxMode.FULL_ACCESS, "write_roots": ()}, "policy.mode"),
        ({"workspace": "/other"}, "policy.write_roots"),
        ({"workspace": "/"}, "policy.write_roots"),
        ({"workspace": "/p2"}, "policy.write_roots"),
        ({"workspace": "/p/../etc"}, "policy.write_roots"),
        ({"write_roots": ("/w", "/x")}, "policy.write_roots"),
        ({"read_roots": ()}, "policy.read_roots"),
        ({"read_roots": ("/r", "/s")}, "policy.read_roots"),
        ({"hidden": ()}, "policy.hidden"),
        ({"hidden": ("/p/secret/inner",)}, "policy.hidden"),
        ({"network": NetworkPolicy()}, "policy.network"),
        ({"network": NetworkPolicy(NetworkMode.PORTS, (22, 80))}, "policy.network"),
        ({"limits": ResourceLimits()}, "policy.limits.processes"),
        ({"limits": ResourceLimits(processes=11)}, "policy.limits.processes"),
        ({"environment": ("A", "B")}, "policy.environment"),
        ({"require_dimensions": {Dimension.FS_WRITE: False}}, "policy.require"),
    ],
)
def test_what_is_wider_is_named(changes: dict[str, object], subject: str) -> None:
    lost = policy_losses(BASE, replace(BASE, **changes))  # type: ignore[arg-type]  # names and values are those of fields
    assert subject in {each.subject for each in lost}


@pytest.mark.parametrize(
    "changes",
    [
        {"mode": SandboxMode.READ_ONLY, "write_roots": ()},
        {"workspace": "/p/inner"},
        {"workspace": "/w/inner/", "write_roots": ("/p//x/.",)},
        {"write_roots": ()},
        {"read_roots": ("/r/inner",)},
        {"hidden": ("/p/secret", "/q")},
        {"hidden": ("/p",), "workspace": "/w"},
        {"network": NetworkPolicy(NetworkMode.NONE)},
        {"network": NetworkPolicy(NetworkMode.PORTS, (80,))},
        {"limits": ResourceLimits(processes=9, wall_s=1)},
        {"environment": ()},
        {"require": Requirement.STRICT},
    ],
)
def test_what_is_tighter_loses_nothing(changes: dict[str, object]) -> None:
    assert policy_losses(BASE, replace(BASE, **changes)) == ()  # type: ignore[arg-type]  # as above, of fields


@pytest.mark.parametrize(
    ("path", "root", "within"),
    [
        ("/a", "/a", True),
        ("/a/b", "/a", True),
        ("/a", "/", True),
        ("//a", "/a", True),
        ("/a/./b/", "/a//", True),
        ("/ab", "/a", False),
        ("/", "/a", False),
        ("/a/../a/b", "/a", False),
        ("/a/b", "/a/../a", False),
        ("/a/..b", "/a", True),
    ],
)
def test_a_path_within_another(path: str, root: str, within: bool) -> None:
    assert lies_within(path, root) is within


@pytest.mark.slow
@given(policies())
def test_nothing_is_lost_by_changing_nothing(policy: SandboxPolicy) -> None:
    assert policy_losses(policy, policy) == ()


@pytest.mark.slow
@given(ever_tighter())
def test_what_is_tightened_twice_loses_nothing(
    ever: tuple[SandboxPolicy, SandboxPolicy, SandboxPolicy],
) -> None:
    first, second, third = ever
    assert policy_losses(first, second) == ()
    assert policy_losses(second, third) == ()
    assert policy_losses(first, third) == ()
    assert first.required() <= second.required() <= third.required()


@pytest.mark.slow
@given(policies(), policies())
def test_two_policies_that_lose_nothing_to_each_other_restrict_the_same(
    a: SandboxPolicy, b: SandboxPolicy
) -> None:
    if not policy_losses(a, b) and not policy_losses(b, a):
        assert a.required() == b.required()
        assert (a.mode, a.network, a.limits, a.environment) == (b.mode, b.network, b.limits, b.environment)


@pytest.mark.slow
@given(policies())
def test_full_access_is_the_widest(policy: SandboxPolicy) -> None:
    assert policy_losses(replace(SandboxPolicy.full_access(), environment=("A", "B", "C")), policy) == ()
