"""Floors in documents: each layer may raise the floor, none may lower it, and a composition has to hold it."""

from __future__ import annotations

import pytest

from execworld.config import hold_floor, shortfalls
from execworld.config.nodes import plain_value
from execworld.seams import PolicyRefused
from execworld.seams.floor import Floor

from .documents import DEFAULTS, composed, refused

FULL = """
floor:
  boundary: container
  worlds: [box, plain]
  mode: workspace-write
  require: [fs.write]
  network: [80, 443]
  limits: {processes: 10, wall_s: 2.5}
  writable: [/project]
  hidden: [/secret]
  environment: [A]
  images: ["debian:*"]
  hosts: ["*.example.com"]
"""


def test_every_demand_arrives() -> None:
    floor = composed(DEFAULTS, FULL).floor
    assert str(floor.boundary) == "container"
    assert floor.worlds == ("box", "plain")
    assert str(floor.mode) == "workspace-write"
    assert list(map(str, floor.require)) == ["fs.write"]
    assert floor.network is not None
    assert floor.network.tcp_ports == (80, 443)
    assert (floor.limits.processes, floor.limits.wall_s) == (10, 2.5)
    assert (floor.writable, floor.hidden, floor.environment) == (("/project",), ("/secret",), ("A",))
    assert (floor.images, floor.hosts) == (("debian:*",), ("*.example.com",))
    assert composed(DEFAULTS).floor == Floor()


@pytest.mark.parametrize(
    ("text", "where", "difference"),
    [
        (
            "floor: {boundary: none}",
            "2.yml:1:9",
            "`floor.boundary` from container, stated at 1.yml:3:3, to none",
        ),
        ("floor: {boundary: other-host}", "2.yml:1:9", "to other-host"),
        (
            "floor: {worlds: [box, silent]}",
            "2.yml:1:9",
            "`floor.worlds` from box, plain, stated at 1.yml:4:3, to silent",
        ),
        (
            "floor: {mode: full-access}",
            "2.yml:1:9",
            "from workspace-write, stated at 1.yml:5:3, to full-access",
        ),
        ("floor: {network: all}", "2.yml:1:9", "from TCP to port 80, 443, stated at 1.yml:7:3, to all"),
        ("floor:\n  limits:\n    processes: 11", "2.yml:3:5", "from 10, stated at 1.yml:8:12, to 11"),
        ("floor: {writable: [/]}", "2.yml:1:9", "from /project, stated at 1.yml:9:3, to /"),
        ("floor: {images: ['*']}", "2.yml:1:9", "to *"),
    ],
)
def test_a_layer_that_would_loosen_it_is_refused_with_the_difference(
    text: str, where: str, difference: str
) -> None:
    base = FULL.lstrip() + DEFAULTS
    base = f"\n{base}"
    with pytest.raises(PolicyRefused) as caught:
        composed(base, text)
    assert caught.value.message.startswith(f"{where}: this would loosen ")
    assert difference in caught.value.message


def test_every_difference_is_told() -> None:
    with pytest.raises(PolicyRefused) as caught:
        composed(f"{DEFAULTS}{FULL}", "floor: {mode: full-access, boundary: none}")
    assert len(caught.value.message.splitlines()) == 2


def test_layers_raise_it_together() -> None:
    floor = composed(
        DEFAULTS,
        "floor: {require: [fs.write], hidden: [/a], limits: {processes: 10}}",
        "floor: {require: [net.tcp], hidden: [/b, /a], limits: {wall_s: 5}, mode: workspace-write}",
        "floor: {limits: {processes: 5}, mode: read-only}",
    )
    assert plain_value(floor.document.entries["floor"]) == {
        "require": ["fs.write", "net.tcp"],
        "hidden": ["/a", "/b"],
        "limits": {"processes": 5, "wall_s": 5},
        "mode": "read-only",
    }
    assert list(map(str, floor.floor.require)) == ["fs.write", "net.tcp"]
    assert floor.floor.hidden == ("/a", "/b")
    assert (floor.floor.limits.processes, floor.floor.limits.wall_s) == (5, 5)


def test_the_floor_of_the_machine_lies_below_all_layers() -> None:
    with pytest.raises(PolicyRefused, match=r"stated at floor\.yml:1:9"):
        composed(DEFAULTS, "floor: {mode: full-access}", system="floor: {mode: read-only}")
    composition = composed(DEFAULTS, system="floor: {mode: read-only}")
    assert str(composition.origin("floor.mode")) == "floor.yml:1:9"
    assert [each.subject for each in shortfalls(composition)] == ["policy.mode"]


def test_a_composition_that_does_not_hold_it_is_refused_with_every_difference_and_its_place() -> None:
    composition = composed(
        f"{DEFAULTS}\nfloor: {{mode: read-only, network: none, boundary: container}}",
        "policy: {mode: full-access}",
        "world: {use: box, config: {image: debian}}",
    )
    with pytest.raises(PolicyRefused) as caught:
        hold_floor(composition)
    assert caught.value.message.splitlines() == [
        "the composition does not hold its floor",
        "2.yml:1:10: policy.mode: read-only at the widest is wanted, and there is full-access",
        "2.yml:1:1: policy.network: none at the widest is wanted, and there is all",
    ]
    hold_floor(composed(f"{DEFAULTS}\nfloor: {{mode: workspace-write, boundary: kernel-policy}}"))


def test_a_world_that_says_nothing_of_itself_holds_no_boundary() -> None:
    composition = composed(
        "world: {use: silent}\nfloor: {boundary: kernel-policy, images: ['*'], hosts: ['*']}"
    )
    assert [each.subject for each in shortfalls(composition)] == [
        "world.boundary",
        "world.image",
        "world.host",
    ]


def test_what_a_reference_stands_for_is_not_in_a_difference() -> None:
    composition = composed(
        "world: {use: box, config: {image: !env IMAGE}}\nfloor: {images: ['debian:*']}",
        environment={"IMAGE": "ghcr.io/correct/horse"},
    )
    (lost,) = shortfalls(composition)
    assert lost.subject == "world.image"
    assert "horse" not in str(lost)
    held = composed(
        "world: {use: box, config: {image: !env IMAGE}}\nfloor: {images: ['debian:*']}",
        environment={"IMAGE": "debian:12"},
    )
    assert shortfalls(held) == ()


def test_a_floor_binds_where_the_policy_is_the_usual_one() -> None:
    composition = composed(f"{DEFAULTS}\nfloor: {{writable: [/elsewhere], require: [fs.write, net.tcp]}}")
    assert [each.subject for each in shortfalls(composition)] == ["policy.write_roots", "policy.require"]


def test_a_floor_is_no_row() -> None:
    assert "`floor` has no `use`" in refused(DEFAULTS, "floor: {use: box}").message
