"""Clauses of guarded writes: what a demand on the target is worth."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from execworld.seams import (
    ExecworldError,
    FileKind,
    FileVersion,
    NotObserved,
    NotRegularFile,
    StaleVersion,
    World,
)
from execworld.seams.testing.fs_writes import names_in
from execworld.seams.testing.probes import output_of
from execworld.seams.testing.suite import ContractSuite

# What another writer does to the path while a guarded creation is under way, and what the caller is told.
COMPETITORS: dict[str, tuple[str, type[ExecworldError]]] = {
    "file": ('printf other >"$1"', NotObserved),
    "directory": ('mkdir "$1"', NotRegularFile),
    "fifo": ('mkfifo "$1"', NotRegularFile),
    "dangling-link": ('ln -s nowhere "$1"', NotRegularFile),
}


async def _try_write(world: World, path: str, text: str, version: FileVersion, won: list[str]) -> None:
    try:
        await world.fs.write_text(path, text, expected=version)
    except StaleVersion:
        return
    won.append(text)


async def _try_edit(world: World, path: str, text: str, version: FileVersion, won: list[str]) -> None:
    try:
        await world.fs.edit_text(path, "base", text, expected=version)
    except StaleVersion:
        return
    won.append(text)


class GuardClauses(ContractSuite):
    """``expected``: absent, or a version."""

    async def test_F28_absent_means_absent(self, world: World, scratch: str) -> None:
        """With ``absent`` a missing file is created; an existing one is FS_NOT_OBSERVED, a directory
        FS_NOT_REGULAR_FILE, and both stay as they were."""
        await world.fs.make_directory(f"{scratch}/d")
        outcome = await world.fs.write_text(f"{scratch}/f", "one", expected="absent")
        assert outcome.created
        with pytest.raises(NotObserved):
            await world.fs.write_text(f"{scratch}/f", "two", expected="absent")
        with pytest.raises(NotRegularFile):
            await world.fs.write_text(f"{scratch}/d", "two", expected="absent")
        assert await world.fs.read_text(f"{scratch}/f") == "one"
        assert await names_in(world, scratch) == ["d", "f"]

    @pytest.mark.parametrize("competitor", COMPETITORS.keys())
    async def test_F29_absence_is_judged_at_publication(
        self, world: World, scratch: str, competitor: str
    ) -> None:
        """What appears at the path while the content is still on its way stays untouched, and the caller is
        told."""
        path = f"{scratch}/f"
        script, error = COMPETITORS[competitor]

        async def source() -> AsyncIterator[bytes]:
            yield b"mine"
            await output_of(world, script, path)
            yield b"more"

        with pytest.raises(error):
            await world.fs.write_stream(path, source(), expected="absent")
        assert await names_in(world, scratch) == ["f"]
        if competitor == "file":
            assert await world.fs.read_text(path) == "other"
        if competitor == "dangling-link":
            assert await world.fs.read_link(path) == "nowhere"

    async def test_F31_replacing_a_version_needs_that_version(self, world: World, scratch: str) -> None:
        """With a version an absent file is FS_STALE_VERSION and not created, another version is FS_STALE_VERSION
        and not changed, and the right one is replaced."""
        path = f"{scratch}/f"
        first = await world.fs.write_text(path, "one")
        await output_of(world, 'printf two >"$1"', path)
        with pytest.raises(StaleVersion):
            await world.fs.write_text(path, "three", expected=first.version)
        assert await world.fs.read_text(path) == "two"
        info = await world.fs.stat(path)
        assert info is not None
        outcome = await world.fs.write_text(path, "three", expected=info.version)
        assert not outcome.created
        await world.fs.remove(path)
        with pytest.raises(StaleVersion):
            await world.fs.write_text(path, "four", expected=outcome.version)
        assert await names_in(world, scratch) == []

    @pytest.mark.parametrize("how", ["in-place", "by-rename"])
    async def test_F100_a_version_is_judged_at_publication(
        self, world: World, scratch: str, how: str
    ) -> None:
        """A change by another writer while the content is on its way is FS_STALE_VERSION, and the other's content
        stands."""
        path = f"{scratch}/f"
        version = (await world.fs.write_text(path, "old")).version
        script = {"in-place": 'printf other >"$1"', "by-rename": 'printf other >"$1.n"; mv "$1.n" "$1"'}[how]

        async def source() -> AsyncIterator[bytes]:
            yield b"mine"
            await output_of(world, script, path)
            yield b"more"

        with pytest.raises(StaleVersion):
            await world.fs.write_stream(path, source(), expected=version)
        assert await world.fs.read_text(path) == "other"
        assert await names_in(world, scratch) == ["f"]

    async def test_F101_a_removal_meanwhile_is_stale(self, world: World, scratch: str) -> None:
        """A file that is removed while its replacement is on its way is FS_STALE_VERSION and stays removed."""
        path = f"{scratch}/f"
        version = (await world.fs.write_text(path, "old")).version

        async def source() -> AsyncIterator[bytes]:
            yield b"mine"
            await output_of(world, 'rm "$1"', path)

        with pytest.raises(StaleVersion):
            await world.fs.write_stream(path, source(), expected=version)
        assert await names_in(world, scratch) == []

    async def test_F42_a_failed_write_does_not_block_the_next(self, world: World, scratch: str) -> None:
        """A change that fails, or is cancelled while another one of the same file is under way, lets the next one
        through; changes of other files are not held up."""
        path = f"{scratch}/f"
        version = (await world.fs.write_text(path, "old")).version
        released = anyio.Event()

        async def slow() -> AsyncIterator[bytes]:
            yield b"slow"
            await released.wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(world.fs.write_stream, path, slow())
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(5):
                await world.fs.write_text(f"{scratch}/other", "another file")
            with anyio.move_on_after(0.02):
                await world.fs.edit_text(path, "old", "edited")
            released.set()
        with pytest.raises(StaleVersion):
            await world.fs.write_text(path, "stale", expected=version)
        with anyio.fail_after(5):
            await world.fs.write_text(path, "last")
        assert await world.fs.read_text(path) == "last"
        assert await names_in(world, scratch) == ["f", "other"]

    async def test_F43_one_of_two_guarded_writes_wins(self, world: World, scratch: str) -> None:
        """Of concurrent writes and edits that demand the same version exactly one succeeds, the others are
        FS_STALE_VERSION, and the file holds what the winner wrote."""
        path = f"{scratch}/f"
        for _ in range(5):
            version = (await world.fs.write_text(path, "base")).version
            won: list[str] = []
            async with anyio.create_task_group() as tasks:
                for number in range(3):
                    tasks.start_soon(_try_write, world, path, f"write {number}", version, won)
                    tasks.start_soon(_try_edit, world, path, f"edit {number}", version, won)
            assert len(won) == 1
            assert await world.fs.read_text(path) == won[0]

    async def test_F45_creation_does_not_follow_a_dangling_link(self, world: World, scratch: str) -> None:
        """A guarded creation on a dangling link fails; neither the link nor what it would lead to changes."""
        await world.fs.make_symlink(f"{scratch}/link", "target")
        with pytest.raises(NotRegularFile):
            await world.fs.write_text(f"{scratch}/link", "x", expected="absent")
        info = await world.fs.lstat(f"{scratch}/link")
        assert info is not None
        assert info.kind is FileKind.SYMLINK
        assert await names_in(world, scratch) == ["link"]

    async def test_F102_the_version_of_a_write_is_its_own(self, world: World, scratch: str) -> None:
        """A chain of guarded writes works on the versions that the writes return, without a stat in between."""
        path = f"{scratch}/f"
        outcome = await world.fs.write_text(path, "0", expected="absent")
        for number in range(1, 6):
            outcome = await world.fs.write_text(path, str(number), expected=outcome.version)
            edited = await world.fs.edit_text(path, str(number), f"{number}!", expected=outcome.version)
            outcome = await world.fs.write_text(path, f"{number}?", expected=edited.version)
        assert await world.fs.read_text(path) == "5?"

    async def test_F103_removal_can_be_guarded(self, world: World, scratch: str) -> None:
        """Removing with a version that is not the file's is FS_STALE_VERSION, and the file stays."""
        path = f"{scratch}/f"
        first = await world.fs.write_text(path, "one")
        second = await world.fs.write_text(path, "two")
        with pytest.raises(StaleVersion):
            await world.fs.remove(path, expected=first.version)
        assert await world.fs.read_text(path) == "two"
        await world.fs.remove(path, expected=second.version)
        assert await world.fs.stat(path) is None
