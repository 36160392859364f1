"""What programs of a container that we made may do: what they could anyhow, and not what only cells need."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from execworld.seams import SandboxPolicy, World
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.policy import ResourceLimits
from execworld.world import open_world

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.anyio, pytest.mark.usefixtures("engine")]

DEBIAN: Final = "docker://debian:bookworm-slim"
BUSYBOX: Final = "docker://busybox:stable"
WORKSPACE: Final = "/work"
POLICY: Final = SandboxPolicy.workspace_write(WORKSPACE)
SETFCAP: Final = 1 << 31

SHAPES: Final[dict[str, dict[str, Any]]] = {
    "root": {},
    "root, all dropped": {"cap_drop": ["ALL"]},
    "root, SETFCAP dropped": {"cap_drop": ["setfcap"]},
    "user, all dropped": {"user": "1000", "cap_drop": ["ALL"]},
}


async def status_of(world: World) -> dict[str, str]:
    """Of a program, as proc(5) tells it."""
    text = (await world.subprocess.run(["cat", "/proc/self/status"])).stdout.text
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


@pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES.keys())
async def test_cells_have_namespaces_and_programs_make_none(options: dict[str, Any]) -> None:
    async with open_world(DEBIAN, policy=POLICY, **options) as view:
        writes = view.enforcement.entries[Dimension.FS_WRITE]
        assert writes.by.startswith("read-only mounts"), writes
        assert view.enforcement.state(Dimension.FS_METADATA) is EnforcementState.ENFORCED
        refused = await view.subprocess.run(["unshare", "--user", "true"])
        assert "Operation not permitted" in refused.stderr.text


@pytest.mark.parametrize(
    ("options", "has"),
    [
        ({}, True),
        ({"cap_drop": ["ALL"]}, False),
        ({"cap_drop": ["SETFCAP"]}, False),
        ({"cap_drop": ["ALL"], "cap_add": ["SETFCAP"]}, True),
        ({"cap_drop": ["ALL"], "cap_add": ["CAP_SETFCAP"]}, True),
    ],
    ids=str,
)
async def test_programs_have_setfcap_where_the_options_say_so(options: dict[str, Any], has: bool) -> None:
    """The warden has it in each of these, because root needs it to make cells.

    What stays in the bounding set can be had only by executing a file that gives it, which no_new_privs rules out.
    """
    async with open_world(BUSYBOX, **options) as world:
        status = await status_of(world)
    assert status["NoNewPrivs"] == "1"
    assert not int(status["CapInh"], 16) & SETFCAP
    for kind in ("CapPrm", "CapEff"):
        assert bool(int(status[kind], 16) & SETFCAP) is has, (kind, status[kind])


async def test_rights_may_be_gained_where_that_is_asked() -> None:
    """Then the engine's own profile is what programs are under, and the kernel of this host denies them namespaces."""
    async with open_world(DEBIAN, no_new_privileges=False) as world:
        status = await status_of(world)
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("0", "2")
        refused = await world.subprocess.run(["unshare", "--user", "true"])
        assert "Operation not permitted" in refused.stderr.text
        view = await world.sandbox.confine(SandboxPolicy.workspace_write("/tmp"))
        assert view.enforcement.missing() == ()
    async with open_world(DEBIAN) as world:
        assert (await status_of(world))["NoNewPrivs"] == "1"


async def test_the_container_s_own_limits_satisfy_a_policy() -> None:
    policy = replace(POLICY, limits=ResourceLimits(processes=100, memory_bytes=128 << 20))
    async with open_world(BUSYBOX, policy=policy, pids=90, memory_bytes=64 << 20) as view:
        assert view.enforcement.entries[Dimension.LIMIT_PROCESSES].by.startswith("container limited to 90")
        assert view.enforcement.state(Dimension.LIMIT_MEMORY) is EnforcementState.ENFORCED


ESCAPE: Final = """
marker=$1
kill -STOP 1
kill -KILL 1
( setsid sh -c "exec sleep $marker" & ) &
( setsid sh -c "( exec sleep $marker ) & ( exec sleep $marker )" & ) &
setsid sh -c "kill -STOP $PPID; kill -KILL $PPID; exec sleep $marker" &
sleep $marker
"""
"""A program that tries to end what would end it, and leaves its group and its session."""


async def sleepers(world: World, marker: str) -> Sequence[str]:
    text = (await world.shell.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout.text
    return re.findall(rf"sleep {marker}", text)


@pytest.mark.parametrize("user", ["", "1000"])
async def test_no_program_survives_the_end_of_its_command(user: str) -> None:
    """Neither root, nor one that killed its supervisor: what was that one's goes to the first process, the warden."""
    marker = f"3{os.getpid() % 100_000:05}"
    async with open_world(DEBIAN, user=user) as world:
        enforced = world.enforcement.entries[Dimension.KILL_TREE]
        assert enforced.state is EnforcementState.ENFORCED
        assert "pid namespace" in enforced.by
        async with world.subprocess.start(["sleep", marker]):
            assert len(await sleepers(world, marker)) == 1
        result = await world.subprocess.run(["bash", "-c", ESCAPE, "-", marker], timeout_s=1.0)
        assert result.signal == 9  # the supervisor is gone, and with it how the command itself ended
        assert await sleepers(world, marker) == []


async def test_a_container_that_is_no_boundary_ends_no_tree_for_sure() -> None:
    async with open_world(BUSYBOX, cap_add=["SYS_PTRACE"]) as world:
        assert world.enforcement.state(Dimension.KILL_TREE) is EnforcementState.PARTIAL
