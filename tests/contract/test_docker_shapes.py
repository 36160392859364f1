"""The contract in containers of further shapes: a smoke of each by default, every clause with EXECWORLD_FULL=1."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.docker.conftest import lacking
from tests.docker.engines import Engine
from tests.docker.ssh_server import at_home, run_ssh_server, why_no_ssh_server

from execworld.seams.testing import (
    FileSystemContract,
    SandboxContract,
    ShellContract,
    SubprocessContract,
    TerminalContract,
    WorldContract,
    WorldMaker,
)
from execworld.world import open_world

from .docker_worlds import (
    BUSYBOX,
    CONFINED,
    DEBIAN,
    WORKSPACE,
    ContainerWorld,
    engine_of_this_host,
    open_container,
)

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def engine() -> Engine:
    return engine_of_this_host()


class _Programs(FileSystemContract, SubprocessContract, TerminalContract, ShellContract):
    """In one container: what needs programs in it."""


class TestShapeUser(ContainerWorld, _Programs, WorldContract, SandboxContract):
    """An ordinary user, whom the image does not know."""

    options: ClassVar[Mapping[str, Any]] = {"user": "1000:1000"}


class TestShapeConfined(ContainerWorld, _Programs):
    world_kind = "docker-view"
    policy = CONFINED


class TestShapeConfinedUser(ContainerWorld, _Programs):
    world_kind = "docker-view"
    policy = CONFINED
    options: ClassVar[Mapping[str, Any]] = {"user": "1000:1000"}


class TestShapeBusyBox(ContainerWorld, _Programs):
    image = BUSYBOX


class TestShapeReadOnly(ContainerWorld, _Programs):
    """Nothing can be written but what is mounted."""

    options: ClassVar[Mapping[str, Any]] = {"read_only": True, "user": "1000:1000", "cap_drop": ["ALL"]}


@pytest.mark.ssh
class TestShapeBehindSsh(ContainerWorld, _Programs):
    """Of an engine that is reached by SSH."""

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Generator[WorldMaker]:
        if reason := why_no_ssh_server():
            lacking(reason)
        with run_ssh_server(tmp_path_factory.mktemp("ssh")) as server, at_home(server):
            yield lambda: open_container(cls.policy, cls.image, {"host": server.address})


class TestShapeJoined(_Programs, WorldContract, SandboxContract):
    """A container that runs already, under the engine's own profile: every world is one more program in it."""

    world_kind = "docker"
    user: ClassVar[str] = ""

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, engine: Engine) -> Generator[WorldMaker]:
        options = ("--network=none", f"--tmpfs={WORKSPACE}:exec,mode=1777", f"--user={cls.user}")
        container = engine.docker("run", "--detach", "--rm", *options, DEBIAN, "sleep", "infinity")
        try:
            yield lambda: open_world(f"docker+attach://{container}", cwd=WORKSPACE)
            # Whatever was done in it, it runs on, and nothing else does.
            processes = engine.docker("top", container, "-eo", "pid,args").splitlines()
            assert [line.split(maxsplit=1)[1] for line in processes[1:]] == ["sleep infinity"]
        finally:
            engine.docker("rm", "--force", container)


class TestShapeJoinedUser(TestShapeJoined):
    user = "1000:1000"


class TestEmptyImage(FileSystemContract):
    """An image without any file: a smoke of what needs no program, always."""

    world_kind = "docker"

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, engine: Engine) -> Generator[WorldMaker]:
        name = f"execworld-test-scratch-{os.getpid()}"
        context = Path(__file__).parents[2] / "images" / "world-scratch"
        engine.docker("build", "--quiet", "--tag", name, os.fspath(context))
        try:
            yield lambda: open_container(ContainerWorld.policy, name)
        finally:
            engine.docker("rmi", "--force", name)
