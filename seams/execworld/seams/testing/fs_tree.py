"""Clauses of making, removing, renaming and copying."""

from __future__ import annotations

import anyio
import pytest

from execworld.seams import (
    DirectoryNotEmpty,
    FileAlreadyExists,
    FileKind,
    FileMissing,
    NotRegularFile,
    World,
)
from execworld.seams.testing.fs_writes import names_in
from execworld.seams.testing.probes import output_of, pattern_bytes
from execworld.seams.testing.suite import ContractSuite


class TreeChangeClauses(ContractSuite):
    """Names and directories."""

    async def test_F120_directories_are_made(self, world: World, scratch: str) -> None:
        """Parents are made, and an existing directory is no error, unless told otherwise; a file in the way is
        FS_EXISTS."""
        await world.fs.make_directory(f"{scratch}/a/b/c")
        await world.fs.make_directory(f"{scratch}/a/b/c")
        with pytest.raises(FileAlreadyExists):
            await world.fs.make_directory(f"{scratch}/a", exist_ok=False)
        with pytest.raises(FileMissing):
            await world.fs.make_directory(f"{scratch}/x/y", parents=False)
        await world.fs.write_text(f"{scratch}/f", "")
        with pytest.raises(FileAlreadyExists):
            await world.fs.make_directory(f"{scratch}/f")
        await world.fs.make_directory(f"{scratch}/private", mode=0o700)
        info = await world.fs.stat(f"{scratch}/private")
        assert info is not None
        assert (info.kind, info.mode) == (FileKind.DIRECTORY, 0o700)
        assert await names_in(world, scratch) == ["a", "f", "private"]

    async def test_F121_a_file_or_an_empty_directory_is_removed(self, world: World, scratch: str) -> None:
        """A file, a FIFO and an empty directory are removed; a directory with content is FS_NOT_EMPTY without
        recursion; what is absent is FS_NOT_FOUND unless that is fine."""
        await world.fs.write_text(f"{scratch}/d/f", "")
        await world.fs.make_directory(f"{scratch}/e")
        await output_of(world, 'mkfifo "$1"', f"{scratch}/p")
        with pytest.raises(DirectoryNotEmpty):
            await world.fs.remove(f"{scratch}/d")
        for name in ("d/f", "d", "e", "p"):
            await world.fs.remove(f"{scratch}/{name}")
        with pytest.raises(FileMissing):
            await world.fs.remove(f"{scratch}/d")
        await world.fs.remove(f"{scratch}/d", missing_ok=True)
        await world.fs.remove(f"{scratch}/d", missing_ok=True, recursive=True)
        assert await names_in(world, scratch) == []

    async def test_F122_removal_does_not_follow_links(self, world: World, scratch: str) -> None:
        """Removing a link, or a tree with links in it, never touches what they lead to."""
        await world.fs.write_text(f"{scratch}/kept/f", "x")
        await world.fs.make_directory(f"{scratch}/tree/deep")
        await world.fs.make_symlink(f"{scratch}/tree/deep/link", "../../kept")
        await world.fs.make_symlink(f"{scratch}/link", "kept")
        await world.fs.remove(f"{scratch}/link")
        await world.fs.make_symlink(f"{scratch}/link", "kept")
        await world.fs.remove(f"{scratch}/link", recursive=True)
        await world.fs.remove(f"{scratch}/tree", recursive=True)
        assert await names_in(world, scratch) == ["kept"]
        assert await world.fs.read_text(f"{scratch}/kept/f") == "x"

    async def test_F123_a_deep_tree_is_removed(self, world: World, scratch: str) -> None:
        """Recursion removes a tree of any depth and width, whatever its names."""
        script = 'mkdir "$1/t" && cd "$1/t"; i=0; while [ $i -lt 60 ]; do mkdir d; : >"-f$i"; cd d; i=$((i+1)); done'
        await output_of(world, script, scratch)
        await world.fs.write_text(f"{scratch}/t/fo\udcff\n", "")
        await world.fs.remove(f"{scratch}/t", recursive=True)
        assert await names_in(world, scratch) == []

    async def test_F124_a_rename_does_not_replace_silently(self, world: World, scratch: str) -> None:
        """A rename keeps content and version; an existing target is FS_EXISTS unless it may be replaced; a link is
        renamed itself."""
        await world.fs.write_text(f"{scratch}/a", "a")
        await world.fs.write_text(f"{scratch}/b", "b")
        with pytest.raises(FileAlreadyExists):
            await world.fs.rename(f"{scratch}/a", f"{scratch}/b")
        assert await world.fs.read_text(f"{scratch}/b") == "b"
        await world.fs.rename(f"{scratch}/a", f"{scratch}/b", replace=True)
        assert await world.fs.read_text(f"{scratch}/b") == "a"
        await world.fs.make_symlink(f"{scratch}/link", "b")
        await world.fs.rename(f"{scratch}/link", f"{scratch}/moved")
        assert await world.fs.read_link(f"{scratch}/moved") == "b"
        with pytest.raises(FileMissing):
            await world.fs.rename(f"{scratch}/absent", f"{scratch}/x")
        assert await names_in(world, scratch) == ["b", "moved"]

    async def test_F125_one_of_many_renames_wins(self, world: World, scratch: str) -> None:
        """Of many renames to one absent name exactly one succeeds; the others are FS_EXISTS and keep their file."""
        for number in range(6):
            await world.fs.write_text(f"{scratch}/{number}", str(number))
        won: list[int] = []

        async def rename(number: int) -> None:
            try:
                await world.fs.rename(f"{scratch}/{number}", f"{scratch}/target")
            except FileAlreadyExists:
                return
            won.append(number)

        async with anyio.create_task_group() as tasks:
            for number in range(6):
                tasks.start_soon(rename, number)
        assert len(won) == 1
        assert await world.fs.read_text(f"{scratch}/target") == str(won[0])
        assert len(await names_in(world, scratch)) == 6

    async def test_F126_a_directory_is_renamed(self, world: World, scratch: str) -> None:
        """A directory is renamed with all that it holds."""
        await world.fs.write_text(f"{scratch}/d/e/f", "x")
        await world.fs.rename(f"{scratch}/d", f"{scratch}/g")
        assert await world.fs.read_text(f"{scratch}/g/e/f") == "x"
        assert await names_in(world, scratch) == ["g"]

    async def test_F127_a_copy_is_equal(self, world: World, scratch: str) -> None:
        """A copy has the content, permission bits and modification time of its source, and is another file."""
        data = pattern_bytes(2_500_000)
        await world.fs.write_bytes(f"{scratch}/a", data, mode=0o750)
        await output_of(world, 'touch -t 202001020304 "$1"', f"{scratch}/a")
        await world.fs.copy(f"{scratch}/a", f"{scratch}/b")
        a, b = await world.fs.stat(f"{scratch}/a"), await world.fs.stat(f"{scratch}/b")
        assert a is not None
        assert b is not None
        assert await world.fs.read_bytes(f"{scratch}/b") == data
        assert (a.mode, a.modified_ns) == (b.mode, b.modified_ns)
        assert a.version != b.version

    async def test_F128_a_copy_does_not_replace_silently(self, world: World, scratch: str) -> None:
        """An existing target is FS_EXISTS unless it may be replaced; a directory needs recursion; a FIFO is not
        copied; nothing is left beside the target."""
        await world.fs.write_text(f"{scratch}/a", "a")
        await world.fs.write_text(f"{scratch}/b", "b")
        await world.fs.make_directory(f"{scratch}/d")
        await output_of(world, 'mkfifo "$1"', f"{scratch}/p")
        with pytest.raises(FileAlreadyExists):
            await world.fs.copy(f"{scratch}/a", f"{scratch}/b")
        assert await world.fs.read_text(f"{scratch}/b") == "b"
        await world.fs.copy(f"{scratch}/a", f"{scratch}/b", replace=True)
        assert await world.fs.read_text(f"{scratch}/b") == "a"
        with pytest.raises(NotRegularFile):
            await world.fs.copy(f"{scratch}/d", f"{scratch}/e")
        with anyio.fail_after(5), pytest.raises(NotRegularFile):
            await world.fs.copy(f"{scratch}/p", f"{scratch}/q")
        with pytest.raises(FileMissing):
            await world.fs.copy(f"{scratch}/absent", f"{scratch}/x")
        assert await names_in(world, scratch) == ["a", "b", "d", "p"]

    async def test_F129_a_tree_is_copied(self, world: World, scratch: str) -> None:
        """A recursive copy keeps files, permission bits and links as links; an existing target is FS_EXISTS."""
        await world.fs.write_text(f"{scratch}/d/e/f", "x", mode=0o755)
        await world.fs.make_symlink(f"{scratch}/d/link", "e/f")
        await world.fs.make_symlink(f"{scratch}/d/dangling", "/nowhere/at/all")
        await world.fs.copy(f"{scratch}/d", f"{scratch}/g", recursive=True)
        info = await world.fs.stat(f"{scratch}/g/e/f")
        assert info is not None
        assert info.mode == 0o755
        assert await world.fs.read_text(f"{scratch}/g/e/f") == "x"
        assert await world.fs.read_link(f"{scratch}/g/link") == "e/f"
        assert await world.fs.read_link(f"{scratch}/g/dangling") == "/nowhere/at/all"
        with pytest.raises(FileAlreadyExists):
            await world.fs.copy(f"{scratch}/d", f"{scratch}/g", recursive=True)

    async def test_F130_links_are_made(self, world: World, scratch: str) -> None:
        """A link gets the text that was given, whether or not it leads anywhere; an existing name is FS_EXISTS and
        stays."""
        await world.fs.make_symlink(f"{scratch}/link", "some where")
        assert await output_of(world, 'readlink "$1"', f"{scratch}/link") == "some where"
        with pytest.raises(FileAlreadyExists):
            await world.fs.make_symlink(f"{scratch}/link", "other")
        assert await world.fs.read_link(f"{scratch}/link") == "some where"

    async def test_F131_the_target_may_lie_on_another_file_system(self, world: World, scratch: str) -> None:
        """A write does not depend on where temporary files lie: it works on every file system that can be written,
        for example ``/dev/shm``."""
        if await world.fs.stat("/dev/shm") is None or world.policy.confines:
            return  # there is no second file system that may be written
        await world.fs.write_text(f"{scratch}/f", "x")
        path = f"/dev/shm/contract-{scratch.rpartition('-')[2]}"
        try:
            await world.fs.write_text(path, "one")
            await world.fs.edit_text(path, "one", "two")
            await world.fs.copy(path, f"{scratch}/f", replace=True)
            assert await world.fs.read_text(f"{scratch}/f") == "two"
        finally:
            await world.fs.remove(path, missing_ok=True)
