"""File content: edits change what they name and nothing else, and no file type can block or deceive."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from execworld.seams import (
    EditNotFound,
    FileKind,
    HardLinked,
    NotRegularFile,
    NotText,
    StaleVersion,
    WalkError,
    World,
)
from execworld.seams.testing.probes import output_of
from execworld.world import open_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.anyio


async def test_c111_an_edit_keeps_crlf(world: World) -> None:
    await world.fs.write_bytes("f", b"a\r\nb\r\nc\r\n")
    await world.fs.edit_text("f", "b", "B")
    assert await world.fs.read_bytes("f") == b"a\r\nB\r\nc\r\n"
    await world.fs.edit_text("f", "a\nB", "a\nB\nnew")
    assert await world.fs.read_bytes("f") == b"a\r\nB\r\nnew\r\nc\r\n"


async def test_c113_a_lone_carriage_return_is_data(world: World) -> None:
    await world.fs.write_bytes("f", b"p1\rp2\rdone\nword\n")
    await world.fs.edit_text("f", "word", "WORD")
    assert await world.fs.read_bytes("f") == b"p1\rp2\rdone\nWORD\n"


async def test_c115_a_byte_order_mark_neither_hides_the_first_line_nor_is_lost(world: World) -> None:
    await world.fs.write_bytes("f", b"\xef\xbb\xbfkey: 1\n")
    await world.fs.edit_text("f", "key: 1\n", "key: 2\n")
    assert await world.fs.read_bytes("f") == b"\xef\xbb\xbfkey: 2\n"


LEGACY = {"gbk": "你好 word 世界\n".encode("gbk"), "latin-1": b"d\xe9j\xe0 word\n"}


@pytest.mark.parametrize("encoding", LEGACY)
async def test_c117_a_legacy_encoding_is_a_typed_answer(world: World, encoding: str) -> None:
    """Not UTF-8 is said; the bytes can be read; with the encoding named, an edit keeps every other byte."""
    content = LEGACY[encoding]
    await world.fs.write_bytes("f", content)
    with pytest.raises(NotText):
        await world.fs.read_text("f")
    with pytest.raises(NotText):
        await world.fs.edit_text("f", "word", "WORD")
    assert await world.fs.read_bytes("f") == content
    assert await world.fs.read_text("f", encoding=encoding) == content.decode(encoding)
    await world.fs.edit_text("f", "word", "WORD", encoding=encoding)
    assert await world.fs.read_bytes("f") == content.replace(b"word", b"WORD")


async def test_c119_mode_bits_survive(world: World) -> None:
    """A script stays executable, a private file private; a new file follows the umask of the world."""
    await world.fs.write_text("script", "#!/bin/sh\necho old\n")
    await world.fs.set_mode("script", 0o755)
    await world.fs.write_text("private", "a")
    await world.fs.set_mode("private", 0o640)
    await world.fs.edit_text("script", "old", "new")
    await world.fs.write_text("private", "b")
    assert await output_of(world, "stat -c %a script private") == "755\n640"
    assert await output_of(world, "./script") == "new"
    umask = int(await output_of(world, "umask"), 8)
    await world.fs.write_text("fresh", "x")
    assert int(await output_of(world, "stat -c %a fresh"), 8) == 0o666 & ~umask


def test_c119_a_new_file_follows_a_strict_umask(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("x")
    (tmp_path / "source").chmod(0o644)
    script = 'umask 077; exec "$@"'
    argv = [sys.executable, "-m", "execworld.cli", "run", "-w", "local", "-q", "--", "touch", "made"]
    subprocess.run(["sh", "-c", script, "sh", *argv], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "made").stat().st_mode & 0o777 == 0o600


async def test_c121_a_second_name_is_never_separated_in_silence(world: World) -> None:
    """An edit of a hard-linked file is refused. Breaking the link must be asked for; the other name keeps its text."""
    await world.fs.write_text("a", "old\n")
    await output_of(world, "ln a b")
    with pytest.raises(HardLinked):
        await world.fs.edit_text("a", "old", "new")
    with pytest.raises(HardLinked):
        await world.fs.write_text("a", "new\n")
    assert await output_of(world, "cat a b; stat -c %h a") == "old\nold\n2"
    await world.fs.write_text("a", "new\n", break_hard_links=True)
    assert await output_of(world, "cat a b") == "new\nold"


@pytest.fixture
def other_device(tmp_path: Path) -> Generator[Path]:
    if os.getuid() != 0:
        pytest.skip("mounts a file system, which needs root")
    directory = tmp_path / "mounted"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(directory)], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


@pytest.mark.root
async def test_c125_the_temporary_directory_may_be_on_another_device(
    other_device: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write works whatever TMPDIR is, and leaves nothing beside its target."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert os.stat(other_device).st_dev != os.stat(tmp_path).st_dev
    async with open_world("local", cwd=str(other_device)) as world:
        await world.fs.write_text("f", "one")
        await world.fs.write_text("f", "two")
        assert await world.fs.read_text("f") == "two"
        assert [entry.name for entry in await world.fs.list_directory(".")] == ["f"]


async def test_c127_a_write_from_a_stale_read_is_a_conflict(world: World) -> None:
    """The change that somebody else made in between survives, also one of the same size and time."""
    await world.fs.write_text("f", "one\n")
    seen = await world.fs.stat("f")
    assert seen is not None
    await output_of(world, "cp -p f keep; echo two > f; touch -r keep f")
    with pytest.raises(StaleVersion):
        await world.fs.write_text("f", "three\n", expected=seen.version)
    with pytest.raises(StaleVersion):
        await world.fs.edit_text("f", "two", "three", expected=seen.version)
    assert await world.fs.read_text("f") == "two\n"


async def test_c129_a_fifo_is_named_and_not_waited_for(world: World) -> None:
    await output_of(world, "mkfifo p")
    before = anyio.current_time()
    with pytest.raises(NotRegularFile, match="FIFO"):
        await world.fs.read_bytes("p")
    with pytest.raises(NotRegularFile):
        await world.fs.read_text("p")
    with pytest.raises(NotRegularFile):
        await world.fs.edit_text("p", "a", "b")
    with pytest.raises(NotRegularFile):
        await world.fs.write_text("p", "x")
    with pytest.raises(NotRegularFile):
        await _read_in_chunks(world, "p")
    info = await world.fs.stat("p")
    assert info is not None
    assert info.kind is FileKind.FIFO
    assert anyio.current_time() - before < 1


async def _read_in_chunks(world: World, path: str) -> None:
    async with world.fs.open_reader(path) as chunks:
        async for _ in chunks:
            pass


SPECIAL_TREE = """
mkdir -p tree/closed tree/plain
mkfifo tree/fifo
echo x > tree/plain/f
chmod 0 tree/closed
"""


async def test_c131_a_search_meets_special_files_and_ends(world: World) -> None:
    """A walk and a glob over a tree with a FIFO, a socket and a closed directory end, and say what was not entered."""
    await output_of(world, SPECIAL_TREE)
    # Made from here: a view may let its programs make none.
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(f"{world.facts.cwd}/tree/socket")
    listener.close()
    kinds: dict[str, FileKind] = {}
    errors: list[WalkError] = []
    with anyio.fail_after(10):
        async for entry in world.fs.walk("tree"):
            if isinstance(entry, WalkError):
                errors.append(entry)
            else:
                kinds[entry.name] = entry.kind
        found = await world.fs.glob("**/*", root="tree")
    assert kinds["fifo"] is FileKind.FIFO
    assert kinds["socket"] is FileKind.SOCKET
    assert kinds["f"] is FileKind.FILE
    assert {entry.name for entry in found} == set(kinds)
    assert [Path(error.path).name for error in errors] == ([] if world.facts.uid == 0 else ["closed"])


@pytest.mark.root
@pytest.mark.skipif(
    os.getuid() != 0, reason="acts as an unprivileged user, for whom a closed directory is closed"
)
async def test_c131_a_closed_directory_is_reported(tmp_path: Path) -> None:
    """What could not be entered is an entry of its own; as root, for whom nothing is closed, there is none."""
    open_for_traversal(tmp_path)
    async with open_world("local", cwd=str(tmp_path)) as world:
        await output_of(
            world, "mkdir -p tree/closed; echo x > tree/closed/f; echo x > tree/f; chmod 0 tree/closed"
        )
        assert sorted([entry.path.rpartition("/")[2] async for entry in world.fs.walk("tree")]) == [
            "closed",
            "f",
            "f",
        ]
        os.seteuid(54321)
        try:
            entries = [entry async for entry in world.fs.walk("tree")]
        finally:
            os.seteuid(0)
    errors = [entry for entry in entries if isinstance(entry, WalkError)]
    assert [(Path(error.path).name, error.code) for error in errors] == [("closed", "FS_PERMISSION_DENIED")]
    assert len(entries) == 3


def open_for_traversal(directory: Path) -> None:
    for parent in (directory, *directory.parents[:3]):
        parent.chmod(0o755)


async def test_c133_a_file_that_states_no_size_is_read_to_its_end(world: World) -> None:
    status = await world.fs.read_text("/proc/self/status")
    assert status.startswith("Name:")
    assert "\nPid:" in status
    name = await world.fs.read_bytes("/proc/sys/kernel/hostname")
    assert name.decode().strip() == await output_of(world, "cat /proc/sys/kernel/hostname")
    assert await world.fs.read_range("/proc/self/status", offset=0, size_bytes=5) == b"Name:"


async def test_c137_nothing_is_a_content(world: World) -> None:
    await world.fs.write_bytes("e", b"")
    assert await world.fs.read_bytes("e") == b""
    assert await world.fs.read_text("e") == ""
    assert await world.fs.read_range("e", offset=0, size_bytes=10) == b""
    async with world.fs.open_reader("e") as chunks:
        assert [chunk async for chunk in chunks] == []
    await world.fs.copy("e", "copy")
    assert await output_of(world, "stat -c %s e copy") == "0\n0"
    with pytest.raises(EditNotFound):
        await world.fs.edit_text("e", "", "x")


def test_c137_an_empty_file_goes_up_and_down(command_line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "e").touch()
    assert command_line.run("fs", "put", "-w", "local", "-q", "e", "up").returncode == 0
    assert command_line.run("fs", "get", "-w", "local", "-q", "up", "down").returncode == 0
    assert (tmp_path / "down").read_bytes() == b""
    assert command_line.run("fs", "cat", "-w", "local", "-q", "down").stdout == b""
