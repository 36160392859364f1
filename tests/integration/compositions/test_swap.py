"""The same use of files, commands and a terminal, moved by a patch of three lines; and moved while it runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from tests.contract.docker_worlds import DEBIAN, engine_of_this_host

from execworld.assembly import open_composition
from execworld.config import Composition, Registry, Wanted, installed_registry, load, plugin_type
from execworld.config.plugins import SHIPPED
from execworld.kernel import FS, SHELL, SUBPROCESS, Context, Key, plugin
from execworld.seams import WorldClosed

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

RESULTS: Final = Key[dict[str, Any]]("results")


@plugin(inject=(FS, SUBPROCESS, SHELL), provides=(RESULTS,))
async def scripted_use(ctx: Context) -> AsyncGenerator[None]:
    """Knows seams, and no world."""
    place = await anyio.to_thread.run_sync(Path.cwd)
    directory = f"{place}/a"
    await ctx.fs.write_text(f"{directory}/notes.txt", "one\ntwo\n")
    listed = await ctx.subprocess.run(["/bin/ls", directory])
    piped = await ctx.shell.run("wc -l < notes.txt; exit 3", cwd=directory)
    chunks: list[bytes] = []
    async with ctx.subprocess.open_terminal(
        ["/bin/sh", "-c", "test -t 1 && echo terminal; cat notes.txt"], cwd=directory
    ) as terminal:
        with contextlib.suppress(anyio.EndOfStream):
            while True:
                chunks.append(await terminal.receive())
        ended = await terminal.wait()
    results: dict[str, Any] = {
        "read": (await ctx.fs.read_bytes(f"{directory}/notes.txt")),
        "listed": (listed.exit_code, listed.stdout.head),
        "shell": (piped.exit_code, piped.stdout.head),
        "terminal": (ended.exit_code, b"".join(chunks)),
    }
    ctx.provide(RESULTS, results)
    yield


EXPECTED: Final = {
    "read": b"one\ntwo\n",
    "listed": (0, b"notes.txt\n"),
    "shell": (3, b"2\n"),
    "terminal": (0, b"terminal\r\none\r\ntwo\r\n"),
}
PATCHES: Final = {
    "local": "world:\n  use: local\n",
    "landlock": "world:\n  use: landlock\n",
    "docker": f'world:\n  use: docker\n  config: {{image: "{DEBIAN}"}}\n',
}
ON_HOST: Final = {"local": True, "landlock": True, "docker": False}
WORLDS: Final = pytest.mark.parametrize(
    "world",
    [
        "local",
        pytest.param("landlock", marks=pytest.mark.landlock),
        pytest.param("docker", marks=pytest.mark.docker),
    ],
)


def registry() -> Registry:
    return installed_registry({**SHIPPED, "scripted_use": plugin_type(scripted_use)})


def composed(directory: Path, world: str) -> Composition:
    if world == "docker":
        engine_of_this_host()
    base, patch = directory / "base.yml", directory / f"{world}.patch.yml"
    base.write_text("use: {use: scripted_use}\n")
    patch.write_text(PATCHES[world])
    return load(Wanted(patches=(str(base), str(patch)), home=False), registry())


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    found = tmp_path / "project"
    found.mkdir()
    monkeypatch.chdir(found)
    return found


@WORLDS
async def test_three_lines_move_every_tool(world: str, place: Path, tmp_path: Path) -> None:
    async with open_composition(composed(tmp_path, world)) as running:
        assert running.world.identity.kind == world
        assert running.context.get(RESULTS) == EXPECTED
    on_host = await anyio.to_thread.run_sync(lambda: sorted(each.name for each in place.rglob("*")))
    assert on_host == (["a", "notes.txt"] if ON_HOST[world] else [])


@pytest.mark.docker
@pytest.mark.landlock
async def test_they_move_while_it_runs(place: Path, tmp_path: Path) -> None:
    """Each tool is started once on the new world; what was taken from the old one fails with a code."""
    async with open_composition(composed(tmp_path, "landlock")) as running:
        old = running.world
        files, commands = running.context.fs, running.context.subprocess
        await running.change_to(composed(tmp_path, "docker"))
        await running.context.settle()
        assert running.world.identity.kind == "docker"
        assert running.context.get(RESULTS) == EXPECTED
        assert old.closed
        with pytest.raises(WorldClosed):
            await files.read_bytes(f"{place}/a/notes.txt")
        with pytest.raises(WorldClosed):
            await commands.run(["/bin/true"])
