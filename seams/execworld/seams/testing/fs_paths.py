"""Clauses of paths and metadata."""

from __future__ import annotations

import json
import stat as modes
from dataclasses import replace
from pathlib import PurePosixPath

import pytest

from execworld.seams import (
    FileError,
    FileKind,
    FileMissing,
    FileVersion,
    InvalidPath,
    NotRegularFile,
    World,
    encode_path,
)
from execworld.seams.testing.probes import output_of, sh
from execworld.seams.testing.suite import ContractSuite
from execworld.seams.testing.world import AWKWARD_NAMES


class PathClauses(ContractSuite):
    """Spelling and identity."""

    @pytest.mark.parametrize("path", ["", " ", "\t\n"], ids=["empty", "space", "white"])
    async def test_F1_a_blank_path_names_nothing(self, world: World, path: str) -> None:
        """A blank path is FS_NOT_FOUND or FS_INVALID_PATH wherever it is given, never the working directory."""
        with pytest.raises(FileMissing):
            await world.fs.resolve(path)
        for call in (
            lambda: world.fs.read_bytes(path),
            lambda: world.fs.write_bytes(path, b""),
            lambda: world.fs.remove(path, recursive=True),
            lambda: world.fs.list_directory(path),
        ):
            with pytest.raises((FileMissing, InvalidPath)):
                await call()

    async def test_F2_relative_paths_have_one_start(self, world: World, scratch: str) -> None:
        """A relative path starts at the call's directory when one is given and else at that of the world; an
        absolute one ignores both."""
        name = scratch.rpartition("/")[2]
        assert (await world.fs.resolve(name)).process_path == scratch
        assert (await world.fs.resolve("f", cwd=scratch)).process_path == f"{scratch}/f"
        assert (await world.fs.resolve(f"{scratch}/f", cwd="/")).process_path == f"{scratch}/f"
        await world.fs.write_text(f"{name}/f", "x")
        assert await world.fs.read_text(f"{scratch}/f") == "x"

    async def test_F3_the_display_path_keeps_links(self, world: World, scratch: str) -> None:
        """The display path is absolute and lexically normalised with links unresolved; the process path is
        canonical."""
        await world.fs.make_directory(f"{scratch}/real/sub")
        await world.fs.make_symlink(f"{scratch}/link", "real")
        target = await world.fs.resolve(f"{scratch}/./link//x/../sub")
        assert target.display_path == f"{scratch}/link/sub"
        assert target.process_path == f"{scratch}/real/sub"

    async def test_F4_all_spellings_of_a_file_are_one(self, world: World, scratch: str) -> None:
        """Spellings that lead to one file (a link to it, a linked directory, ``..``) have equal keys and versions;
        different files have different keys."""
        await world.fs.write_text(f"{scratch}/d/f", "x")
        await world.fs.write_text(f"{scratch}/d/g", "x")
        await world.fs.make_symlink(f"{scratch}/to-file", "d/f")
        await world.fs.make_symlink(f"{scratch}/to-directory", "d")
        spellings = ["d/f", "to-file", "to-directory/f", "d/../d/f", "./d//f"]
        assert len({(await world.fs.resolve(f"{scratch}/{s}")).key for s in spellings}) == 1
        infos = [await world.fs.stat(f"{scratch}/{s}") for s in spellings]
        assert len({info.version for info in infos if info is not None}) == 1
        assert None not in infos
        other = await world.fs.resolve(f"{scratch}/d/g")
        assert other.key != (await world.fs.resolve(f"{scratch}/d/f")).key

    async def test_F5_a_key_outlives_creation(self, world: World, scratch: str) -> None:
        """The key of a file that does not exist yet is the one it has once it exists, also below missing
        directories and behind a link."""
        await world.fs.make_directory(f"{scratch}/real")
        await world.fs.make_symlink(f"{scratch}/link", "real")
        before = await world.fs.resolve(f"{scratch}/link/new/deep/f")
        assert before.process_path == f"{scratch}/real/new/deep/f"
        await world.fs.write_text(before, "x")
        after = await world.fs.resolve(f"{scratch}/link/new/deep/f")
        assert after == before
        assert (await world.fs.resolve(f"{scratch}/real/new/deep/f")).key == before.key

    async def test_F6_a_path_through_a_file_names_nothing(self, world: World, scratch: str) -> None:
        """Resolving a path that leads through a regular file is FS_NOT_FOUND; stat and lstat say that nothing is
        there."""
        await world.fs.write_text(f"{scratch}/file", "x")
        with pytest.raises(FileMissing):
            await world.fs.resolve(f"{scratch}/file/child")
        assert await world.fs.stat(f"{scratch}/file/child") is None
        assert await world.fs.lstat(f"{scratch}/file/child") is None

    async def test_F7_a_dangling_link_has_a_stable_identity(self, world: World, scratch: str) -> None:
        """A dangling link resolves to the place that it leads to, reading it is FS_NOT_FOUND, and the key is that
        of the file which is created there."""
        await world.fs.make_symlink(f"{scratch}/link", "later")
        before = await world.fs.resolve(f"{scratch}/link")
        with pytest.raises(FileMissing):
            await world.fs.read_text(f"{scratch}/link")
        await world.fs.write_text(f"{scratch}/later", "x")
        assert (await world.fs.resolve(f"{scratch}/link")).key == before.key
        assert (await world.fs.resolve(f"{scratch}/later")).key == before.key

    @pytest.mark.parametrize("name", AWKWARD_NAMES.values(), ids=AWKWARD_NAMES.keys())
    async def test_F9_every_name_survives(self, world: World, scratch: str, name: str) -> None:
        """Any byte but NUL and slash may occur in a name: it can be written, listed, resolved and read by what the
        listing gave, also after a journey through JSON, and nothing is taken for an option or a pattern."""
        await world.fs.write_bytes(f"{scratch}/{name}", b"content")
        [entry] = await world.fs.list_directory(scratch)
        assert entry.name == name
        assert encode_path(entry.path) == encode_path(f"{scratch}/{name}")
        path: str = json.loads(json.dumps(entry.path))
        assert await world.fs.read_bytes(path) == b"content"
        assert await world.fs.read_bytes(encode_path(path)) == b"content"
        await world.fs.remove(path)
        assert await world.fs.list_directory(scratch) == []

    async def test_F60_three_types_of_path_are_equal(self, world: World, scratch: str) -> None:
        """Text, bytes and pure POSIX paths name the same file, and a resolved target does too."""
        await world.fs.write_text(f"{scratch}/é", "x")
        spellings = (f"{scratch}/é", f"{scratch}/é".encode(), PurePosixPath(scratch, "é"))
        for path in (*spellings, await world.fs.resolve(f"{scratch}/é")):
            assert await world.fs.read_text(path) == "x"

    async def test_F61_impossible_paths_are_refused(self, world: World, scratch: str) -> None:
        """A NUL, or a name longer than the world allows, is FS_INVALID_PATH, and the next call works."""
        for path in (f"{scratch}/a\0b", f"{scratch}/{'n' * 300}", "/" + "d/" * 5000):
            with pytest.raises(InvalidPath):
                await world.fs.write_text(path, "x")
            with pytest.raises(InvalidPath):
                await world.fs.read_text(path)
        assert await world.fs.list_directory(scratch) == []

    async def test_F62_links_that_go_round_end(self, world: World, scratch: str) -> None:
        """A loop of links is a coded error everywhere, never a hang and never an error of the operating system."""
        await world.fs.make_symlink(f"{scratch}/a", "b")
        await world.fs.make_symlink(f"{scratch}/b", "a")
        with pytest.raises(FileError):
            await world.fs.read_text(f"{scratch}/a")
        with pytest.raises(FileError):
            await world.fs.write_text(f"{scratch}/a", "x")
        assert await world.fs.read_link(f"{scratch}/a") == "b"

    async def test_F63_a_link_that_stays_inside_works(self, world: World, scratch: str) -> None:
        """Relative links between directories of one tree are followed for reading and writing."""
        await world.fs.write_text(f"{scratch}/lib/f", "x")
        await world.fs.make_directory(f"{scratch}/a")
        await world.fs.make_symlink(f"{scratch}/a/lib", "../lib")
        assert await world.fs.read_text(f"{scratch}/a/lib/f") == "x"
        await world.fs.write_text(f"{scratch}/a/lib/f", "y")
        assert await world.fs.read_text(f"{scratch}/lib/f") == "y"


class MetadataClauses(ContractSuite):
    """What stat says."""

    async def test_F10_stat_follows_links(self, world: World, scratch: str) -> None:
        """stat gives nothing for what is absent, and else the type, size, permission bits, owner and number of
        names of what a link leads to."""
        assert await world.fs.stat(f"{scratch}/f") is None
        await world.fs.write_text(f"{scratch}/f", "four", mode=0o640)
        await world.fs.make_symlink(f"{scratch}/link", "f")
        info = await world.fs.stat(f"{scratch}/link")
        assert info is not None
        assert (info.path, info.kind, info.size_bytes) == (f"{scratch}/link", FileKind.FILE, 4)
        assert (info.mode, info.uid, info.links) == (0o640, world.facts.uid, 1)
        directory = await world.fs.stat(scratch)
        assert directory is not None
        assert directory.kind is FileKind.DIRECTORY

    async def test_F11_lstat_does_not_follow_the_last_link(self, world: World, scratch: str) -> None:
        """lstat describes a link itself, follows links in the components before it, and sees a dangling one."""
        await world.fs.write_text(f"{scratch}/d/f", "x")
        await world.fs.make_symlink(f"{scratch}/linked", "d")
        await world.fs.make_symlink(f"{scratch}/dangling", "nowhere")
        through = await world.fs.lstat(f"{scratch}/linked/f")
        assert through is not None
        assert through.kind is FileKind.FILE
        for name in ("linked", "dangling"):
            info = await world.fs.lstat(f"{scratch}/{name}")
            assert info is not None
            assert info.kind is FileKind.SYMLINK
        assert await world.fs.stat(f"{scratch}/dangling") is None

    async def test_F12_special_files_are_named(self, world: World, scratch: str) -> None:
        """stat tells a FIFO and a device from a file without opening them."""
        await output_of(world, 'mkfifo "$1"', f"{scratch}/fifo")
        fifo = await world.fs.stat(f"{scratch}/fifo")
        null = await world.fs.stat("/dev/null")
        assert fifo is not None
        assert null is not None
        assert (fifo.kind, null.kind) == (FileKind.FIFO, FileKind.CHARACTER_DEVICE)

    async def test_F13_a_version_changes_with_the_content(self, world: World, scratch: str) -> None:
        """A version stays while nothing changes, and changes with a rewrite of the same size, also when the old
        modification time is put back, whoever writes."""
        path = f"{scratch}/f"
        await world.fs.write_text(path, "one")
        first, again = await world.fs.stat(path), await world.fs.stat(path)
        assert first is not None
        assert again is not None
        assert first.version == again.version
        await output_of(
            world, 'touch -r "$1" "$1.t"; printf two >"$1"; touch -r "$1.t" "$1"; rm "$1.t"', path
        )
        second = await world.fs.stat(path)
        assert second is not None
        assert second.version != first.version
        outcome = await world.fs.write_text(path, "six")
        assert outcome.version != second.version

    async def test_F64_a_version_is_text_and_back(self, world: World, scratch: str) -> None:
        """A version that went through its text form guards like the original."""
        outcome = await world.fs.write_text(f"{scratch}/f", "one")
        version = FileVersion.parse(str(outcome.version))
        assert version == outcome.version
        await world.fs.write_text(f"{scratch}/f", "two", expected=version)
        with pytest.raises(FileError):
            await world.fs.write_text(f"{scratch}/f", "x", expected=replace(version, size_bytes=1))

    async def test_F65_read_link_gives_the_text(self, world: World, scratch: str) -> None:
        """read_link gives the text of a link byte for byte; absent is FS_NOT_FOUND, anything else
        FS_NOT_REGULAR_FILE."""
        await world.fs.write_text(f"{scratch}/f", "x")
        for number, text in enumerate(("../x", "/absolute", "with\nline", "fo\udcff", "f")):
            await world.fs.make_symlink(f"{scratch}/link{number}", text)
            assert await world.fs.read_link(f"{scratch}/link{number}") == text
        with pytest.raises(FileMissing):
            await world.fs.read_link(f"{scratch}/absent")
        with pytest.raises(NotRegularFile):
            await world.fs.read_link(f"{scratch}/f")

    async def test_F66_space_is_told(self, world: World, scratch: str) -> None:
        """The capacity of the file system is positive, and what is available of it is no more than that."""
        space = await world.fs.space(scratch)
        assert 0 <= space.available_bytes <= space.total_bytes
        assert space.total_bytes > 0

    async def test_F67_permission_bits_are_set(self, world: World, scratch: str) -> None:
        """set_mode sets the bits of a file and of a directory, and commands see them."""
        await world.fs.write_text(f"{scratch}/f", "x")
        await world.fs.make_directory(f"{scratch}/d")
        await world.fs.set_mode(f"{scratch}/f", 0o750)
        await world.fs.set_mode(f"{scratch}/d", 0o711)
        listing = await output_of(world, 'ls -ld "$1/d" "$1/f" | cut -c1-10', scratch)
        assert listing.split() == [modes.filemode(0o040711), modes.filemode(0o100750)]
        with pytest.raises(FileMissing):
            await world.fs.set_mode(f"{scratch}/absent", 0o600)

    async def test_F68_hard_links_are_counted(self, world: World, scratch: str) -> None:
        """stat tells how many names a file has."""
        await world.fs.write_text(f"{scratch}/f", "x")
        await sh(world, 'ln "$1/f" "$1/g"', scratch)
        info = await world.fs.stat(f"{scratch}/g")
        assert info is not None
        assert info.links == 2
