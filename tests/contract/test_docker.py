"""The contract, kept by worlds in a container that was made for them; `test_docker_shapes` has further containers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio.to_thread
import pytest
from tests.docker.engines import SHARED_SOCKET, Engine

from execworld.seams import SandboxPolicy
from execworld.seams.testing import (
    BreakableWorld,
    BrokenWorldMaker,
    FileSystemContract,
    LossContract,
    SandboxContract,
    ShellContract,
    SubprocessContract,
    TerminalContract,
    WorldContract,
)

from .docker_worlds import ContainerWorld, engine_of_this_host, open_container

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", autouse=True)
def engine() -> Engine:
    return engine_of_this_host()


class TestWorld(ContainerWorld, WorldContract):
    pass


class TestFileSystem(ContainerWorld, FileSystemContract):
    pass


class TestSubprocess(ContainerWorld, SubprocessContract):
    pass


class TestTerminal(ContainerWorld, TerminalContract):
    pass


class TestShell(ContainerWorld, ShellContract):
    pass


class TestSandbox(ContainerWorld, SandboxContract):
    pass


@asynccontextmanager
async def open_breakable() -> AsyncGenerator[BreakableWorld]:
    """A world whose container can be killed, as anybody may who has the engine."""
    async with open_container(SandboxPolicy.full_access()) as world:

        def kill() -> None:
            container = world.identity.instance.partition("@")[0]
            Engine(SHARED_SOCKET).docker("kill", container, check=False)  # it may have been killed before

        async def break_it() -> None:
            await anyio.to_thread.run_sync(kill)

        yield BreakableWorld(world, break_it)


class TestLoss(LossContract):
    """The container is killed by somebody else."""

    world_kind = "docker"

    @pytest.fixture(scope="class")
    @classmethod
    def broken_world_maker(cls) -> BrokenWorldMaker:
        return open_breakable
