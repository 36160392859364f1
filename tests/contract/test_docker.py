"""The contract, kept by worlds in a container that was made for them: as root, and as a user of the image."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import ClassVar, Final

import anyio
import anyio.to_thread
import pytest

from execworld.seams import SandboxPolicy, World
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
    WorldMaker,
)
from execworld.world import open_world

docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")

pytestmark = pytest.mark.docker

SOCKET: Final = "/var/run/docker.sock"
IMAGE: Final = "debian:bookworm-slim"
WORKSPACE: Final = "/work"


@pytest.fixture(scope="module", autouse=True)
def engine() -> None:
    """There is an engine, and it has the image."""
    lacking = ""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(SOCKET)
    except OSError as error:
        lacking = f"no engine listens at {SOCKET}: {error}"
    else:
        client = docker.APIClient(f"unix://{SOCKET}")
        try:
            if not client.images(IMAGE):
                lacking = f"the engine has no image {IMAGE}: sh images/make-bases makes it"
        finally:
            client.close()
    if lacking and os.environ.get("CI") == "true":
        pytest.fail(lacking)
    if lacking:
        pytest.skip(lacking)


def open_container(policy: SandboxPolicy, user: str) -> AbstractAsyncContextManager[World]:
    # A volume without a name would be for root alone; a tmpfs is for everybody.
    mounts = [{"target": WORKSPACE, "kind": "tmpfs", "executable": True}]
    return open_world(f"docker://{IMAGE}", policy=policy, cwd=WORKSPACE, user=user, mounts=mounts)


class AsRoot:
    """Maker for worlds with full access, as root of the container."""

    world_kind = "docker"
    user: ClassVar[str] = "0:0"
    policy: ClassVar[SandboxPolicy] = SandboxPolicy.full_access()

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls) -> WorldMaker:
        return lambda: open_container(cls.policy, cls.user)


class AsUser(AsRoot):
    """The same as an ordinary user."""

    user = "1000:1000"


class ConfinedRoot(AsRoot):
    """Maker for worlds with workspace-write, as root of the container."""

    policy = SandboxPolicy.workspace_write(WORKSPACE)


class ConfinedUser(AsUser):
    """The same as an ordinary user."""

    policy = SandboxPolicy.workspace_write(WORKSPACE)


class TestWorld(AsRoot, WorldContract):
    pass


class TestFileSystem(AsRoot, FileSystemContract):
    pass


class TestSubprocess(AsRoot, SubprocessContract):
    pass


class TestTerminal(AsRoot, TerminalContract):
    pass


class TestShell(AsRoot, ShellContract):
    pass


class TestSandbox(AsRoot, SandboxContract):
    pass


class TestWorldOfUser(AsUser, WorldContract):
    pass


class TestFileSystemOfUser(AsUser, FileSystemContract):
    pass


class TestSubprocessOfUser(AsUser, SubprocessContract):
    pass


class TestTerminalOfUser(AsUser, TerminalContract):
    pass


class TestShellOfUser(AsUser, ShellContract):
    pass


class TestSandboxOfUser(AsUser, SandboxContract):
    pass


class TestConfinedFileSystem(ConfinedRoot, FileSystemContract):
    pass


class TestConfinedSubprocess(ConfinedRoot, SubprocessContract):
    pass


class TestConfinedSubprocessOfUser(ConfinedUser, SubprocessContract):
    pass


@asynccontextmanager
async def open_breakable() -> AsyncGenerator[BreakableWorld]:
    """A world whose container can be killed, as anybody may who has the engine."""
    async with open_container(SandboxPolicy.full_access(), AsRoot.user) as world:

        def kill() -> None:
            client = docker.APIClient(f"unix://{SOCKET}")
            try:
                client.kill(world.identity.instance.partition("@")[0])
            except docker.errors.NotFound:
                pass  # it was killed before
            finally:
                client.close()

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
