"""The image's own program: not run unless that is asked for, and then as a command of the world."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread
import pytest

from execworld.seams import ConfigurationError, SandboxPolicy, World
from execworld.seams.errors import CommandNotFound
from execworld.world import open_world

from .engines import Engine

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.anyio]

SAY: Final = "echo $COLOUR $PWD $(id -u) $0 > /srv/said; exec sleep 1000"
ImageMaker = Callable[[str], str]


@pytest.fixture(scope="module")
def make_image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Generator[ImageMaker]:
    """Makes an image of BusyBox with the given lines of a Dockerfile at its end."""
    made: list[str] = []

    def make(lines: str) -> str:
        folder = tmp_path_factory.mktemp("image")
        first = "FROM busybox:stable\nENV COLOUR=green\nRUN mkdir -m 777 /srv\nWORKDIR /srv\nUSER 1234\n"
        Path(folder, "Dockerfile").write_text(f"{first}{lines}\n")
        name = f"execworld-test-entrypoint-{os.getpid()}:{len(made)}"
        engine.docker("build", "--quiet", "--tag", name, os.fspath(folder))
        made.append(name)
        return name

    try:
        yield make
    finally:
        engine.docker("rmi", "--force", *made)


@pytest.fixture(scope="module")
def image(make_image: ImageMaker) -> str:
    return make_image(f'ENTRYPOINT ["sh", "-c", "{SAY}"]\nCMD ["first"]')


async def said(world: World) -> str:
    """What the program has written, once it is there."""
    found = await world.shell.run("until [ -s /srv/said ]; do sleep 0.01; done; cat /srv/said")
    return found.stdout.text


async def test_it_is_not_run_unasked(image: str) -> None:
    async with open_world(f"docker://{image}") as world:
        assert "sleep" not in (await world.shell.run("cat /proc/[0-9]*/comm")).stdout.text
        assert not (await world.shell.run("test -e /srv/said")).ok


async def test_it_runs_as_the_image_says(image: str) -> None:
    """With its environment, directory, user and arguments; under a policy too, and until the world is closed."""
    with anyio.fail_after(20):
        async with open_world(f"docker://{image}", start_entrypoint=True) as world:
            assert await said(world) == "green /srv 1234 first\n"
            running = await world.shell.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")
            assert "sleep 1000" in running.stdout.text
        policy = SandboxPolicy.workspace_write("/srv")
        async with open_world(f"docker://{image}", start_entrypoint=True, policy=policy) as world:
            assert await said(world) == "green /srv 1234 first\n"


async def test_its_end_is_not_that_of_the_world(make_image: ImageMaker) -> None:
    name = await anyio.to_thread.run_sync(make_image, 'CMD ["sh", "-c", "echo x > /srv/said; exit 3"]')
    with anyio.fail_after(20):
        async with open_world(f"docker://{name}", start_entrypoint=True) as world:
            await said(world)
            assert (await world.shell.run("sleep 0.2; echo ok")).stdout.text == "ok\n"


async def test_what_cannot_be_started_opens_no_world(make_image: ImageMaker) -> None:
    name = await anyio.to_thread.run_sync(make_image, 'ENTRYPOINT ["/no/such/program"]')
    with pytest.raises(CommandNotFound, match="/no/such/program"):
        async with open_world(f"docker://{name}", start_entrypoint=True):
            pass
    bare = await anyio.to_thread.run_sync(make_image, "ENTRYPOINT []\nCMD []")
    with pytest.raises(ConfigurationError, match="no entrypoint and no command"):
        async with open_world(f"docker://{bare}", start_entrypoint=True):
            pass


async def test_a_command_that_ignores_signals_ends_with_the_world(
    make_image: ImageMaker, engine: Engine
) -> None:
    lines = """CMD ["sh", "-c", "trap '' TERM INT HUP; echo x > /srv/said; while :; do sleep 1000; done"]"""
    name = await anyio.to_thread.run_sync(make_image, lines)
    with anyio.fail_after(20):
        async with open_world(f"docker://{name}", start_entrypoint=True) as world:
            await said(world)
    assert engine.docker("ps", "--all", "--quiet", "--filter", f"ancestor={name}") == ""
