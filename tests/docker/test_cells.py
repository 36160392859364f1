"""Cells in a real container: which layers stand in it, with our profile and with the engine's default."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from execworld.confinement.capabilities import mask
from execworld.confinement.confiner import CellConfiner
from execworld.machine.warden.machine import ALL_CAPABILITIES
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.providers.docker.boundary import boundary_of
from execworld.providers.docker.seccomp import program_filter
from execworld.providers.docker.surroundings import ContainerSurroundings, observe
from execworld.seams import SandboxPolicy, World
from execworld.seams.enforcement import Dimension, Enforcement, EnforcementState
from execworld.seams.errors import SandboxDenied, SandboxUnavailable
from execworld.seams.identity import Boundary, WorldIdentity
from execworld.seams.policy import NetworkMode, NetworkPolicy, ResourceLimits

from .contained import make_image, open_contained
from .engines import Engine

pytestmark = [pytest.mark.docker, pytest.mark.landlock, pytest.mark.slow, pytest.mark.anyio]

SETFCAP = 31
WORKSPACE = SandboxPolicy.workspace_write("/workspace")
MOUNTS, LANDLOCK = "read-only mounts and landlock", "landlock"


@dataclass(frozen=True)
class Shape:
    """Attributes:
    writes: By what `fs.write` is enforced.
    metadata: Whether `fs.metadata` is.
    """

    options: tuple[str, ...]
    own_profile: bool
    writes: str
    metadata: bool


SHAPES: Mapping[str, Shape] = {
    "root": Shape((), True, MOUNTS, True),
    "root-setfcap": Shape(("--cap-drop=ALL", "--cap-add=SETFCAP"), True, MOUNTS, True),
    "root-dropped": Shape(("--cap-drop=ALL",), True, LANDLOCK, False),
    "user": Shape(("--user=1000:1000", "--cap-drop=ALL"), True, MOUNTS, True),
    "root-default": Shape((), False, LANDLOCK, False),
    "user-default": Shape(("--user=1000:1000", "--cap-drop=ALL"), False, LANDLOCK, False),
}


@pytest.fixture(scope="module")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    with make_image(engine, tmp_path_factory.mktemp("image")) as name:
        yield name


@asynccontextmanager
async def open_world(
    engine: Engine, image: str, options: tuple[str, ...], folder: Path, *, own_profile: bool = True
) -> AsyncGenerator[World]:
    identity_file = folder / "id"
    options = (*options, f"--cidfile={identity_file}")
    async with open_contained(engine, image, options, folder, own_profile=own_profile) as machine:
        keeps = ALL_CAPABILITIES & ~mask(SETFCAP)
        await machine.restrict_programs(
            program_filter(machine.facts.arch, administrator=False), capabilities=keeps
        )
        container = json.loads(engine.docker("inspect", identity_file.read_text()))[0]
        about = json.loads(engine.docker("info", "--format={{json .}}"))
        surroundings = ContainerSurroundings(boundary_of(container, about), await observe(machine))
        settings = WorldSettings(
            identity=WorldIdentity("docker", "test"),
            policy=SandboxPolicy.full_access(),
            enforcement=Enforcement(),
            boundary=Boundary.CONTAINER,
            confiner=CellConfiner(machine.warden_facts, surroundings),
        )
        async with open_machine_world(machine, settings) as world:
            yield world


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_a_workspace_is_confined_in_every_shape(
    engine: Engine, image: str, shape: Shape, tmp_path: Path
) -> None:
    async with open_world(engine, image, shape.options, tmp_path, own_profile=shape.own_profile) as world:
        await world.fs.write_text("/tmp/outside", "the twin: unconfined it is written")
        view = await world.sandbox.confine(WORKSPACE)
        assert view.enforcement.missing() == ()
        assert view.enforcement.entries[Dimension.FS_WRITE].by.startswith(shape.writes)
        metadata = view.enforcement.state(Dimension.FS_METADATA)
        assert (metadata is EnforcementState.ENFORCED) is shape.metadata
        # /proc is masked in a container, so no new one may be mounted, and there are no new process numbers.
        assert view.enforcement.state(Dimension.PROC_VISIBILITY) is not EnforcementState.ENFORCED
        await view.fs.write_text("/workspace/inside", "written")
        with pytest.raises(SandboxDenied):
            await view.fs.write_text("/tmp/outside", "changed")


async def test_the_container_s_own_limits_satisfy_a_policy(
    engine: Engine, image: str, tmp_path: Path
) -> None:
    policy = replace(WORKSPACE, limits=ResourceLimits(processes=100, memory_bytes=128 << 20))
    less = replace(policy, limits=ResourceLimits(processes=100, memory_bytes=32 << 20))
    options = ("--pids-limit=90", "--memory=64m")
    async with open_world(engine, image, options, tmp_path) as world:
        view = await world.sandbox.confine(policy)
        for dimension in (Dimension.LIMIT_PROCESSES, Dimension.LIMIT_MEMORY):
            assert view.enforcement.state(dimension) is EnforcementState.ENFORCED
        with pytest.raises(SandboxUnavailable, match=r"limit\.memory"):
            await world.sandbox.confine(less)


async def test_no_network_is_enforced_by_the_cell_alone(engine: Engine, image: str, tmp_path: Path) -> None:
    async with open_world(engine, image, (), tmp_path) as world:
        view = await world.sandbox.confine(replace(WORKSPACE, network=NetworkPolicy(NetworkMode.NONE)))
        # Of the container's own loopback interface the view would see what its other programs listen on.
        assert view.enforcement.entries[Dimension.NET_TCP].by == "network namespace"
