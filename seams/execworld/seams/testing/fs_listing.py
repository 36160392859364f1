"""Clauses of listing, walking, globbing and watching."""

from __future__ import annotations

from collections.abc import AsyncIterator

import anyio
import pytest

from execworld.seams import (
    DirectoryEntry,
    FileKind,
    FileMissing,
    NotDirectory,
    Unsupported,
    WalkError,
    WatchEvent,
    WatchEventKind,
    World,
)
from execworld.seams.testing.probes import output_of, sh
from execworld.seams.testing.suite import ContractSuite


class ListingClauses(ContractSuite):
    """Direct children."""

    async def test_F22_the_order_is_that_of_code_points(self, world: World, scratch: str) -> None:
        """Children are listed in the order of their names by code point, whatever the locale; only direct ones,
        hidden ones too."""
        names = ["B", "a", "Z", ".hidden", "é", "e", "_", "10", "9", "ab", "a-b", "Ä", "ﬀ", "😀"]
        for name in names:
            await world.fs.write_text(f"{scratch}/{name}", "")
        await world.fs.write_text(f"{scratch}/a.d/deep", "")
        listed = [entry.name for entry in await world.fs.list_directory(scratch)]
        assert listed == sorted([*names, "a.d"])

    async def test_F23_an_entry_carries_its_metadata(self, world: World, scratch: str) -> None:
        """An entry has a name, the path below the directory as it was spelled, a type, and the metadata that lstat
        gives."""
        await world.fs.write_text(f"{scratch}/d/f", "four")
        await world.fs.make_symlink(f"{scratch}/link", "d")
        [entry] = await world.fs.list_directory(f"{scratch}/link")
        assert (entry.name, entry.path) == ("f", f"{scratch}/link/f")
        assert (entry.kind, entry.target_kind) == (FileKind.FILE, FileKind.FILE)
        assert entry.info == await world.fs.lstat(f"{scratch}/link/f")

    async def test_F24_links_are_told_with_their_target(self, world: World, scratch: str) -> None:
        """A link is listed as a link, with the type of what it leads to, or none when that does not exist."""
        await world.fs.make_directory(f"{scratch}/d")
        await world.fs.write_text(f"{scratch}/f", "")
        for name, target in (("to-d", "d"), ("to-f", "f"), ("to-nothing", "absent"), ("to-link", "to-d")):
            await world.fs.make_symlink(f"{scratch}/{name}", target)
        entries = {entry.name: entry for entry in await world.fs.list_directory(scratch)}
        assert {name: entry.target_kind for name, entry in entries.items()} == {
            "d": FileKind.DIRECTORY,
            "f": FileKind.FILE,
            "to-d": FileKind.DIRECTORY,
            "to-f": FileKind.FILE,
            "to-link": FileKind.DIRECTORY,
            "to-nothing": None,
        }
        assert {entry.kind for name, entry in entries.items() if name.startswith("to-")} == {FileKind.SYMLINK}

    async def test_F25_listing_fails_by_code(self, world: World, scratch: str) -> None:
        """Absent is FS_NOT_FOUND, a file is FS_NOT_DIRECTORY, an empty directory is empty."""
        await world.fs.write_text(f"{scratch}/f", "")
        await world.fs.make_directory(f"{scratch}/d")
        with pytest.raises(FileMissing):
            await world.fs.list_directory(f"{scratch}/absent")
        with pytest.raises(NotDirectory):
            await world.fs.list_directory(f"{scratch}/f")
        assert await world.fs.list_directory(f"{scratch}/d") == []

    async def test_F26_a_large_directory_is_complete(self, world: World, scratch: str) -> None:
        """A directory with more entries than one message holds is listed once each, in order."""
        await output_of(
            world, 'cd "$1" && i=0; while [ $i -lt 2600 ]; do : >"f$i"; i=$((i+1)); done', scratch
        )
        listed = [entry.name for entry in await world.fs.list_directory(scratch)]
        assert listed == sorted(f"f{number}" for number in range(2600))


async def walked(entries: AsyncIterator[DirectoryEntry | WalkError], root: str) -> list[str]:
    """Paths below *root*, in the order of arrival; errors with a mark."""
    return [
        ("!" if isinstance(entry, WalkError) else "") + entry.path.removeprefix(f"{root}/")
        async for entry in entries
    ]


class WalkClauses(ContractSuite):
    """Everything below a directory."""

    async def test_F80_a_walk_visits_each_entry_once(self, world: World, scratch: str) -> None:
        """A walk gives everything below a directory once, a directory before what it holds, and not the start
        itself."""
        for path in ("a/b/c/f", "a/g", "h", ".hidden/x"):
            await world.fs.write_text(f"{scratch}/{path}", "")
        found = await walked(world.fs.walk(scratch), scratch)
        assert sorted(found) == [".hidden", ".hidden/x", "a", "a/b", "a/b/c", "a/b/c/f", "a/g", "h"]
        for path in found:
            parent = path.rpartition("/")[0]
            assert not parent or found.index(parent) < found.index(path)

    async def test_F81_a_walk_follows_no_link(self, world: World, scratch: str) -> None:
        """Links are reported and not entered, so a loop of directories ends."""
        await world.fs.write_text(f"{scratch}/d/f", "")
        await world.fs.make_symlink(f"{scratch}/d/up", "..")
        await world.fs.make_symlink(f"{scratch}/other", "d")
        assert sorted(await walked(world.fs.walk(scratch), scratch)) == ["d", "d/f", "d/up", "other"]

    async def test_F82_pruned_directories_are_not_entered(self, world: World, scratch: str) -> None:
        """A directory with a pruned name is reported and not entered, at any depth; a depth limit counts from the
        direct children."""
        for path in ("node_modules/m", "a/node_modules/m", "a/b/c/f"):
            await world.fs.write_text(f"{scratch}/{path}", "")
        found = await walked(world.fs.walk(scratch, prune=["node_modules"]), scratch)
        assert sorted(found) == ["a", "a/b", "a/b/c", "a/b/c/f", "a/node_modules", "node_modules"]
        found = await walked(world.fs.walk(scratch, max_depth=1), scratch)
        assert sorted(found) == ["a", "node_modules"]
        found = await walked(world.fs.walk(scratch, max_depth=2), scratch)
        assert sorted(found) == ["a", "a/b", "a/node_modules", "node_modules", "node_modules/m"]

    async def test_F83_special_files_do_not_stop_a_walk(self, world: World, scratch: str) -> None:
        """FIFOs are reported without being opened. A directory that cannot be read is reported as an error, and the
        walk goes on."""
        await output_of(
            world, 'mkdir "$1/shut" && mkfifo "$1/fifo" && : >"$1/z" && chmod 0 "$1/shut"', scratch
        )
        with anyio.fail_after(5):
            found = await walked(world.fs.walk(scratch), scratch)
        await sh(world, 'chmod 700 "$1/shut"', scratch)
        assert {"fifo", "z", "shut"} <= set(found)
        assert ("!shut" in found) == (world.facts.uid != 0)

    async def test_F84_a_walk_starts_at_a_directory(self, world: World, scratch: str) -> None:
        """Walking what is absent is FS_NOT_FOUND, walking a file FS_NOT_DIRECTORY."""
        await world.fs.write_text(f"{scratch}/f", "")
        with pytest.raises(FileMissing):
            await walked(world.fs.walk(f"{scratch}/absent"), scratch)
        with pytest.raises(NotDirectory):
            await walked(world.fs.walk(f"{scratch}/f"), scratch)

    async def test_F85_a_walk_can_be_left(self, world: World, scratch: str) -> None:
        """Leaving a walk early frees what it holds: it can be done more often than a process may have open
        files."""
        await output_of(world, 'cd "$1" && mkdir d && : >d/a && : >d/b', scratch)
        for _ in range(300):
            walk = world.fs.walk(scratch)
            async for _entry in walk:
                break
            close = getattr(walk, "aclose", None)
            if close is not None:
                await close()

    async def test_F86_glob_matches_by_components(self, world: World, scratch: str) -> None:
        """``*`` and ``?`` stay within a component and match hidden names, ``**`` spans components, ``[...]`` is a
        set, ``{a,b}`` either; the result is ordered by path."""
        for path in ("a.py", "b.txt", "src/c.py", "src/deep/d.py", ".h.py", "src/e1", "src/e2", "x-y"):
            await world.fs.write_text(f"{scratch}/{path}", "")

        async def matched(pattern: str) -> list[str]:
            entries = await world.fs.glob(pattern, root=scratch)
            paths = [entry.path for entry in entries]
            assert paths == sorted(paths)
            return [path.removeprefix(f"{scratch}/") for path in paths]

        assert await matched("*.py") == [".h.py", "a.py"]
        assert await matched("**/*.py") == [".h.py", "a.py", "src/c.py", "src/deep/d.py"]
        assert await matched("src/*") == ["src/c.py", "src/deep", "src/e1", "src/e2"]
        assert await matched("src/**/d.py") == ["src/deep/d.py"]
        assert await matched("src/e?") == ["src/e1", "src/e2"]
        assert await matched("src/e[13]") == ["src/e1"]
        assert await matched("src/e[!1]") == ["src/e2"]
        assert await matched("{a,b}.{py,txt}") == ["a.py", "b.txt"]
        assert await matched("nothing*") == []

    async def test_F87_a_pattern_is_never_an_option(self, world: World, scratch: str) -> None:
        """A pattern that begins with a dash is matched like any other; a malformed one is a ValueError; pruned
        directories are not searched."""
        await world.fs.write_text(f"{scratch}/-rf", "")
        await world.fs.write_text(f"{scratch}/vendor/f.c", "")
        await world.fs.write_text(f"{scratch}/own/f.c", "")
        assert [entry.name for entry in await world.fs.glob("-r*", root=scratch)] == ["-rf"]
        found = await world.fs.glob("**/*.c", root=scratch, prune=["vendor"])
        assert [entry.path for entry in found] == [f"{scratch}/own/f.c"]
        with pytest.raises(ValueError, match=r"."):
            await world.fs.glob("[", root=scratch)


class WatchClauses(ContractSuite):
    """Events below a directory."""

    async def test_F88_changes_are_reported(self, world: World, scratch: str) -> None:
        """From the moment the context is entered, creation, change and removal below a directory are reported with
        their paths, also in directories made meanwhile; a world that cannot watch says UNSUPPORTED."""
        await world.fs.write_text(f"{scratch}/old", "x")
        try:
            async with world.fs.watch(scratch) as events:
                await output_of(world, 'echo y >>"$1/old"; : >"$1/new"; rm "$1/new"; mkdir "$1/d"', scratch)
                seen: list[WatchEvent] = []
                with anyio.fail_after(5):
                    async for event in events:
                        seen.append(event)
                        if event.path == f"{scratch}/d":
                            break
                    await output_of(world, 'mv "$1/old" "$1/d/moved"', scratch)
                    async for event in events:
                        seen.append(event)
                        if event.path == f"{scratch}/d/moved":
                            break
        except Unsupported:
            assert world.facts.os != "linux", "inotify is part of every Linux"
            return
        found = {(event.kind, event.path.removeprefix(f"{scratch}/")) for event in seen}
        assert (WatchEventKind.CHANGED, "old") in found
        assert (WatchEventKind.CREATED, "new") in found
        assert (WatchEventKind.REMOVED, "new") in found
        assert (WatchEventKind.CREATED, "d") in found

    async def test_F89_a_watch_of_nothing_fails(self, world: World, scratch: str) -> None:
        """Watching what is absent or no directory fails when the context is entered."""
        await world.fs.write_text(f"{scratch}/f", "")
        for path, error in ((f"{scratch}/absent", FileMissing), (f"{scratch}/f", NotDirectory)):
            with pytest.raises((error, Unsupported)):
                async with world.fs.watch(path):
                    pass
