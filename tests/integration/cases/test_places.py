"""Working directories and names: gone, renamed, linked, and spelled in every way a kernel allows."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from execworld.seams import DirectoryEntry, StaleVersion, WorkingDirectoryMissing, World, encode_path
from execworld.world import open_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.anyio


async def test_c097_a_deleted_working_directory_is_survived_and_told(tmp_path: Path) -> None:
    """The world's own directory vanishes under it: commands go on in the nearest one above, and say so."""
    gone = tmp_path / "a" / "t"
    gone.mkdir(parents=True)
    async with open_world("local", cwd=str(gone)) as world:
        assert (await world.shell.run("rm -rf ../../a")).exit_code == 0
        result = await world.shell.run("pwd -P; echo alive")
        assert result.stdout.data == os.fsencode(tmp_path) + b"\nalive\n"
        assert [str(gone) in note and str(tmp_path) in note for note in result.notes] == [True]
        with pytest.raises(WorkingDirectoryMissing):
            await world.subprocess.run(["pwd"])
        gone.mkdir(parents=True)
        back = await world.shell.run("pwd -P")
        assert (back.stdout.data, back.notes) == (os.fsencode(gone) + b"\n", ())


async def test_c097_a_directory_that_was_asked_for_is_not_replaced_by_another(world: World) -> None:
    """Only the default is: a command must not run somewhere else than the caller named."""
    with pytest.raises(WorkingDirectoryMissing, match="nowhere"):
        await world.shell.run("pwd", cwd="nowhere")


async def test_c097_no_command_changes_the_directory_of_the_next(world: World) -> None:
    await world.shell.run("mkdir t; cd t; rm -rf ../t")
    result = await world.shell.run("pwd -P; echo alive")
    assert result.stdout.text.splitlines()[-1] == "alive"
    assert result.notes == ()


async def test_c099_an_edit_makes_no_twin(world: World) -> None:
    """A path that does not exist is an error that says so, and neither the file nor a folder above it appears."""
    await world.fs.write_text("old/f", "text\n")
    await world.fs.rename("old", "new")
    with pytest.raises(StaleVersion, match="does not exist") as caught:
        await world.fs.edit_text("old/f", "text", "other")
    assert "may have been moved" in caught.value.hint  # not: write it, which would make the twin
    assert [entry.name for entry in await world.fs.list_directory(".")] == ["new"]
    assert await world.fs.read_text("new/f") == "text\n"


async def test_c101_a_sibling_with_the_same_beginning_is_not_inside(world: World) -> None:
    """What lies inside is judged by components, after links and dots were resolved."""
    await world.fs.write_text("work/f", "x")
    await world.fs.write_text("work-secret/f", "x")
    root = await world.fs.resolve("work")
    for outside in ("work-secret/f", "work/../work-secret/f", "work-secret", "work/.."):
        assert not world.fs.contains(root, await world.fs.resolve(outside)), outside
    for inside in ("work/f", "work", "work-secret/../work/f", "work/new/deep"):
        assert world.fs.contains(root, await world.fs.resolve(inside)), inside


async def test_c103_a_linked_parent_is_seen_before_the_target_exists(world: World) -> None:
    """The identity of a path that is to be created is the place where it would be created."""
    await world.fs.make_directory("root")
    await world.fs.make_directory("outside")
    await world.fs.make_symlink("root/d", f"{world.facts.cwd}/outside")
    root = await world.fs.resolve("root")
    target = await world.fs.resolve("root/d/new/x.txt")
    assert not world.fs.contains(root, target)
    assert target.process_path.endswith("/outside/new/x.txt")
    assert await world.fs.list_directory("outside") == []


async def test_c105_a_link_that_stays_inside_works(world: World) -> None:
    await world.fs.write_text("lib/f", "text")
    await world.fs.make_directory("a")
    await world.fs.make_symlink("a/lib", "../lib")
    assert await world.fs.read_text("a/lib/f") == "text"
    await world.fs.write_text("a/lib/g", "new")
    assert await world.fs.read_text("lib/g") == "new"
    assert world.fs.contains(await world.fs.resolve("."), await world.fs.resolve("a/lib/f"))


HARD_NAMES = (
    "a\nb",
    " lead",
    "trail ",
    "-rf",
    "--",
    "*",
    "?",
    "[x]",
    "{a,b}",
    "$HOME",
    "`id`",
    "'",
    '"',
    "\\",
    "~",
    "a\tb",
    "...",
    "é",
)


async def test_c107_every_legal_name_goes_round(world: World) -> None:
    """Listed exactly, one entry each; read, edited, copied, renamed and removed by that name alone."""
    for number, name in enumerate(HARD_NAMES):
        await world.fs.write_text(f"d/{name}", f"{number}\n")
    listed = [entry.name for entry in await world.fs.list_directory("d")]
    assert listed == sorted(HARD_NAMES)
    walked = [entry async for entry in world.fs.walk("d")]
    assert sorted(entry.name for entry in walked if isinstance(entry, DirectoryEntry)) == sorted(HARD_NAMES)
    await world.fs.make_directory("copy")
    for number, name in enumerate(HARD_NAMES):
        assert await world.fs.read_text(f"d/{name}") == f"{number}\n"
        argument = await world.subprocess.run(["cat", "--", name], cwd="d")
        assert argument.stdout.data == f"{number}\n".encode()
        await world.fs.edit_text(f"d/{name}", str(number), f"<{number}>")
        await world.fs.copy(f"d/{name}", f"copy/{name}")
        await world.fs.rename(f"d/{name}", f"d/{name}x")
        assert await world.fs.read_text(f"d/{name}x") == f"<{number}>\n"
        await world.fs.remove(f"d/{name}x")
    assert await world.fs.list_directory("d") == []


async def test_c109_a_name_that_is_no_text_goes_round(world: World) -> None:
    """The name in a listing is text that leads back to the very bytes, in every operation and through JSON."""
    raw = b"file\xff.t"
    await world.fs.write_bytes(b"d/" + raw, b"content")
    (entry,) = await world.fs.list_directory("d")
    assert encode_path(entry.name) == raw
    assert await world.fs.read_bytes(f"d/{entry.name}") == b"content"
    assert await world.fs.read_bytes(json.loads(json.dumps(entry.path))) == b"content"
    inside = await world.subprocess.run(["sh", "-c", "cat d/file*"])
    assert inside.stdout.data == b"content"
    argument = await world.subprocess.run([b"cat", b"d/" + raw])
    assert argument.stdout.data == b"content"
    (found,) = await world.fs.glob("d/*.t")
    assert encode_path(found.name) == raw
    await world.fs.remove(entry.path)
    assert await world.fs.list_directory("d") == []


def test_c109_the_command_line_shows_and_takes_such_names(command_line: CommandLine, tmp_path: Path) -> None:
    """Listed for people and as JSON without a crash; the JSON name and the raw name both lead to the file."""
    raw = b"file\xff.t"
    (tmp_path / "d").mkdir()
    with open(os.fsencode(tmp_path) + b"/d/" + raw, "wb") as stream:
        stream.write(b"content")
    plain = command_line.run("fs", "ls", "-w", "local", "-q", "-0", "d")
    assert (plain.returncode, plain.stdout) == (0, raw + b"\0")
    assert command_line.run("fs", "ls", "-w", "local", "-q", "-l", "d").returncode == 0
    listed = json.loads(command_line.run("fs", "ls", "-w", "local", "-q", "--json", "d").stdout)
    assert base64.b64decode(listed[0]["name_base64"]) == raw
    read = command_line.run("fs", "cat", "-w", "local", "-q", b"d/" + raw)
    assert (read.returncode, read.stdout) == (0, b"content")


def test_c107_a_newline_in_a_name_is_one_entry_on_a_terminal_and_in_a_pipe(
    command_line: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "a\nb").touch()
    (tmp_path / "d" / "-rf").touch()
    result = command_line.run("fs", "ls", "-w", "local", "-q", "-0", "d")
    assert result.stdout == b"-rf\0a\nb\0"
    removed = command_line.run("fs", "rm", "-w", "local", "-q", "--", "d/-rf", "d/a\nb")
    assert removed.returncode == 0
    assert os.listdir(tmp_path / "d") == []
