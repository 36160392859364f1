"""What is swapped while it is used: every one of these hits its target unconfined, and none does in a view."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
import pytest

from execworld.seams import ExecworldError, SandboxPolicy, World
from execworld.world import open_world

from .places import world_python

RACE_S: Final = 0.6
CONTROL_S: Final = 20.0

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]

# In one step, so that there is no moment in which the name is free for somebody else.
SWAP_DIRECTORY: Final = """
import ctypes, os, sys
name, link = (os.fsencode(os.path.join(sys.argv[1], part)) for part in ("name", "link"))
exchange = ctypes.CDLL(None).renameat2
while exchange(-100, name, -100, link, 2) == 0:
    pass
"""
SWAP_FILE: Final = """
import os, sys
name, link = (os.path.join(sys.argv[1], part) for part in ("file", "link"))
while True:
    open(name + ".new", "w").write("text"); os.symlink(sys.argv[2], link + ".new")
    os.rename(link + ".new", name); os.rename(name + ".new", name)
"""


class Field:
    """A workspace, and an outside with a file in it."""

    def __init__(self, base: Path) -> None:
        self.workspace, self.outside = base / "workspace", base / "outside"
        self.workspace.mkdir()
        self.outside.mkdir()
        self.target = self.outside / "file"
        self.target.write_text("text")
        before = sorted(self.outside.iterdir())
        self._before = (before, self.target.stat().st_ino)

    @property
    def hit(self) -> bool:
        found = (sorted(self.outside.iterdir()), self.target.stat().st_ino)
        return found != self._before or self.target.read_text() != "text"


@pytest.fixture
def field(place: Path, request: pytest.FixtureRequest) -> Field:
    base = place / "".join(filter(str.isalnum, request.node.name))
    base.mkdir()
    return Field(base)


@asynccontextmanager
async def opened(kind: str, field: Field, *, write_roots: tuple[str, ...] = ()) -> AsyncGenerator[World]:
    if kind == "local":
        async with open_world("local") as world:
            yield world
    else:
        policy = SandboxPolicy.workspace_write(str(field.workspace), write_roots=write_roots)
        async with open_world("landlock", policy=policy) as world:
            yield world


async def race(
    world: World, field: Field, swapper: str, attempt: Callable[[], Awaitable[object]], until_hit: bool
) -> int:
    """How often *attempt* was made while *swapper* ran, until the time was over, or for a control until it hit."""
    attempts = 0
    end = time.monotonic() + (CONTROL_S if until_hit else RACE_S)
    program = [world_python(os.getuid()), "-c", swapper, str(field.workspace), str(field.target)]
    async with world.subprocess.start(program):
        while time.monotonic() < end and not (until_hit and field.hit):
            attempts += 1
            try:
                await attempt()
            except ExecworldError:
                continue
    return attempts


@pytest.mark.parametrize("kind", ["local", "landlock"])
async def test_a_file_operation_below_a_swapped_directory(field: Field, kind: str) -> None:
    (field.workspace / "name").mkdir()
    (field.workspace / "link").symlink_to(field.outside)
    async with opened(kind, field) as world:

        async def attempt() -> None:
            await world.fs.write_text(str(field.workspace / "name" / "new"), "written")

        attempts = await race(world, field, SWAP_DIRECTORY, attempt, until_hit=kind == "local")
    assert attempts > 5 or field.hit
    assert field.hit == (kind == "local")


@pytest.mark.parametrize("kind", ["local", "landlock"])
async def test_a_file_that_is_swapped_for_a_link_while_it_is_written(field: Field, kind: str) -> None:
    (field.workspace / "file").write_text("text")
    async with opened(kind, field) as world:

        async def attempt() -> None:
            await world.fs.write_text(str(field.workspace / "file"), "written")

        attempts = await race(world, field, SWAP_FILE, attempt, until_hit=kind == "local")
    assert attempts > 5 or field.hit
    assert field.hit == (kind == "local")


@pytest.mark.parametrize("way", ["command", "file operation"])
@pytest.mark.parametrize("kind", ["local", "landlock"])
async def test_a_workspace_that_is_replaced_between_two_commands(field: Field, kind: str, way: str) -> None:
    """The roots are pinned when the view is made: what has their name later is not looked at."""
    parent = field.workspace / "parent"
    root = parent / "root"
    root.mkdir(parents=True)
    async with opened(kind, field, write_roots=(str(root),)) as world:
        await world.shell.run(f"mv {root} {root}-old && ln -s {field.outside} {root}", check=True)
        if way == "command":
            await world.shell.run(f"echo written >{root}/new")
        else:
            try:
                await world.fs.write_text(str(root / "new"), "written")
            except ExecworldError:
                assert kind == "landlock"
    assert field.hit == (kind == "local")


async def test_many_at_once_do_not_open_a_gap(field: Field) -> None:
    """Commands and file operations of one view, side by side, while a name is swapped."""
    (field.workspace / "name").mkdir()
    (field.workspace / "link").symlink_to(field.outside)
    async with opened("landlock", field) as world:

        async def attempt() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(world.shell.run, f"echo x >{field.workspace}/name/new")
                for number in range(4):
                    tasks.start_soon(_write, world, str(field.workspace / "name" / str(number)))

        assert await race(world, field, SWAP_DIRECTORY, attempt, until_hit=False) > 2
    assert not field.hit


async def _write(world: World, path: str) -> None:
    try:
        await world.fs.write_text(path, "written")
    except ExecworldError:
        return
