"""What one composition guarantees and another does not: boundary, policy, floor, guards."""

from __future__ import annotations

import pytest

from execworld.config import losses

from .documents import DEFAULTS, composed

GUARDED = f"""\
{DEFAULTS}
hold: {{use: hold, config: {{level: 2}}}}
audit: {{use: audit}}
policy: {{network: none}}
floor: {{mode: workspace-write}}"""


@pytest.mark.parametrize(
    ("patch", "subjects"),
    [
        ("world: {use: silent}\npolicy: {workspace: /project}", ["world.boundary"]),
        ("policy: {network: all}", ["policy.network", "policy.require", "policy.require", "policy.require"]),
        ("policy: {network: [443]}", ["policy.network"]),
        ("policy: {workspace: /}", ["policy.write_roots"]),
        ("policy: {require: {fs.write: no}}", ["policy.require"]),
        ("hold: {disabled: yes}", ["hold"]),
        ("hold: ~", ["hold"]),
        ("hold: {use: audit}", ["hold"]),
        ("hold: {config: {level: 3}}", ["hold"]),
        ("hold: {config: ~}", ["hold"]),
    ],
)
def test_what_is_lost_is_named(patch: str, subjects: list[str]) -> None:
    lost = losses(composed(GUARDED), composed(GUARDED, patch))
    assert [each.subject for each in lost] == subjects


@pytest.mark.parametrize(
    "patch",
    [
        "",
        "world: {use: box, config: {image: debian}}\npolicy: {workspace: /project/inner}",
        "policy: {mode: read-only, workspace: ~}",
        "policy: {hidden: [/secret], limits: {processes: 5}}",
        "audit: {disabled: yes}",
        "audit: ~",
        "new: {use: audit}",
        "floor: {mode: read-only, network: none}",
        "hold: {config: {level: 2}}",
    ],
)
def test_what_is_as_tight_loses_nothing(patch: str) -> None:
    assert losses(composed(GUARDED), composed(GUARDED, patch)) == ()


def test_a_floor_that_is_gone_is_a_loss() -> None:
    bare = GUARDED.rpartition("\n")[0]
    assert [each.subject for each in losses(composed(GUARDED), composed(bare))] == ["floor.mode"]


def test_three_lines_that_move_everything_into_a_container_are_told_what_they_lose() -> None:
    """The policy of the container is another one, since the usual one there is none at all."""
    lost = losses(composed(DEFAULTS), composed(DEFAULTS, "world: {use: box, config: {image: debian}}"))
    assert "policy.mode" in {each.subject for each in lost}
    assert "world.boundary" not in {each.subject for each in lost}
