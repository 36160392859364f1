"""An engine on another host, reached by SSH; the contract in a container of one is in `test_docker_shapes`."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import anyio
import pytest

from execworld.seams import OpenProgress, World, WorldUnavailable
from execworld.seams.identity import Boundary
from execworld.world import open_world

from .conftest import lacking
from .engines import Engine
from .ssh_server import SshServer, at_home, run_ssh_server, why_no_ssh_server

pytestmark = [pytest.mark.docker, pytest.mark.ssh, pytest.mark.slow, pytest.mark.anyio]


@pytest.fixture(scope="module")
def server(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Generator[SshServer]:
    """With as few sessions as one world needs: one for its stream, one for all that is asked of the engine."""
    if reason := why_no_ssh_server():
        lacking(reason)
    with run_ssh_server(tmp_path_factory.mktemp("ssh"), sessions=2) as found, at_home(found):
        yield found


def containers(engine: Engine) -> str:
    return engine.docker("ps", "--all", "--quiet", "--filter", f"label=io.execworld.owner.pid={os.getpid()}")


async def use(world: World) -> None:
    await world.fs.write_bytes("/f", b"x" * 3_000_000)
    assert (await world.shell.run("wc -c < /f")).stdout.text == "3000000\n"
    results: list[str] = []

    async def run(number: int) -> None:
        results.append((await world.shell.run(f"echo {number}")).stdout.text)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(run, number)
    assert sorted(map(int, results)) == list(range(20))


async def test_two_sessions_are_enough_for_a_world(server: SshServer, engine: Engine) -> None:
    for read_only in (False, True):
        async with open_world("docker://busybox:stable", host=server.address, read_only=read_only) as world:
            assert world.facts.boundary is Boundary.CONTAINER
            assert "kernel: shared with another host" in world.facts.crossings
            await world.fs.make_directory("/tmp", exist_ok=True)
            assert (await world.shell.run("echo hi > /tmp/f; cat /tmp/f")).stdout.text == "hi\n"
            if not read_only:
                await use(world)
        assert containers(engine) == ""


async def test_a_container_there_is_joined(server: SshServer, engine: Engine) -> None:
    container = engine.docker("run", "--detach", "--rm", "--network=none", "busybox:stable", "sleep", "1000")
    try:
        async with open_world(f"docker+attach://{container}", host=server.address) as world:
            await use(world)
        assert len(engine.docker("top", container).splitlines()) == 2
        assert ".execworld" not in engine.docker("diff", container)
    finally:
        engine.docker("rm", "--force", container)


async def test_an_image_is_built_there(server: SshServer, engine: Engine, tmp_path: Path) -> None:
    label = f"execworld-test={os.getpid()}"
    (tmp_path / "Dockerfile").write_text(f"FROM busybox:stable\nLABEL {label}\nRUN echo built > /made\n")
    seen: list[OpenProgress] = []
    options: dict[str, Any] = {"build": str(tmp_path), "host": server.address}
    try:
        async with open_world("docker", on_progress=seen.append, **options) as world:
            assert await world.fs.read_text("/made") == "built\n"
    finally:
        built = engine.docker("images", "--quiet", "--filter", f"label={label}").split()
        engine.docker("rmi", "--force", *built)
    assert any("RUN" in step.text for step in seen)


async def test_an_unknown_server_is_refused(server: SshServer) -> None:
    known = server.home / ".ssh" / "known_hosts"
    text = known.read_text()
    known.write_text("")
    try:
        with pytest.raises(WorldUnavailable, match="is not known") as caught:
            async with open_world("docker://busybox:stable", host=server.address):
                pass
        assert "ssh" in caught.value.hint
    finally:
        known.write_text(text)


async def test_whoever_has_no_key_is_refused(server: SshServer) -> None:
    key = server.home / ".ssh" / "id_ed25519"
    hidden = key.rename(key.with_name("hidden"))
    try:
        with pytest.raises(WorldUnavailable, match="SSH server") as caught:
            async with open_world("docker://busybox:stable", host=server.address):
                pass
        assert caught.value.hint
    finally:
        hidden.rename(key)
