"""Events of a tree, made from raw events of its directories."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import PosixPath
from typing import Any, Protocol

import anyio
import pytest

from execworld.machine.base import WatchRecord
from execworld.machine.fs import MachineFileSystem
from execworld.machine.local.files import LocalFiles
from execworld.machine.operations import AddWatch, Operation
from execworld.seams import FileError, NoSpace, WatchEvent, WatchEventKind

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify"),
]

CREATED, CHANGED, REMOVED, OVERFLOW = WatchEventKind


class Staged(Protocol):
    before: Callable[[Operation[Any]], None] | None
    files: LocalFiles


async def until(
    events: AsyncIterator[WatchEvent], path: PosixPath, kind: WatchEventKind = CREATED
) -> list[tuple[str, str]]:
    """Kinds and names of all events up to the one of *kind* and *path*."""
    found: list[tuple[str, str]] = []
    with anyio.fail_after(10):
        async for event in events:
            found.append((str(event.kind), os.path.basename(event.path)))
            if event == WatchEvent(kind, str(path)):
                return found
    raise AssertionError(found)


async def test_our_own_writes_are_no_removals(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """Staging files stay unseen, a creation is created, and every form of replacement is changed and nothing
    else.
    """
    path = tmp_path / "f"
    async with fs.watch(tmp_path) as events:
        version = (await fs.write_text(path, "one", expected="absent")).version
        version = (await fs.write_text(path, "two", expected=version)).version
        await fs.write_text(path, "three")
        await fs.edit_text(path, "three", "four")
        (tmp_path / "end").touch()
        found = await until(events, tmp_path / "end")
    names = {name for _, name in found}
    assert names == {"f", "end"}
    kinds = [kind for kind, name in found if name == "f"]
    assert kinds[0] == CREATED
    assert set(kinds[1:]) == {CHANGED}


async def test_a_foreign_exchange_is_a_change_of_both(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    async with fs.watch(tmp_path) as events:
        script = "import ctypes, sys; ctypes.CDLL(None).renameat2(-100, b'a', -100, b'b', 2) and sys.exit(1)"
        await anyio.run_process([sys.executable, "-c", script], cwd=tmp_path)
        (tmp_path / "end").touch()
        found = await until(events, tmp_path / "end")
    assert (tmp_path / "a").read_text() == "b"
    assert {kind for kind, name in found if name in "ab"} == {CHANGED}
    assert {name for _, name in found} == {"a", "b", "end"}


async def test_a_new_tree_is_watched_and_reported(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """What lies in a directory before it could be watched is reported as created, once; later events in it
    arrive.
    """
    outside = tmp_path / "outside"
    (outside / "a/b").mkdir(parents=True)
    (outside / "a/b/f").touch()
    watched = tmp_path / "watched"
    watched.mkdir()
    async with fs.watch(watched) as events:
        os.rename(outside / "a", watched / "a")
        found = await until(events, watched / "a/b/f")
        assert found == [(CREATED, "a"), (CREATED, "b"), (CREATED, "f")]
        (watched / "a/b/g").touch()
        await until(events, watched / "a/b/g")
        os.makedirs(watched / "x/y/z")
        await until(events, watched / "x/y/z")
        (watched / "x/y/z/f").touch()
        assert (CREATED, "f") in await until(events, watched / "x/y/z/f")


async def test_a_tree_that_left_is_silent(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """A directory that was moved away is removed; what happens in it afterwards is not reported."""
    watched = tmp_path / "watched"
    (watched / "a/b").mkdir(parents=True)
    async with fs.watch(watched) as events:
        os.rename(watched / "a", tmp_path / "left")
        assert await until(events, watched / "a", REMOVED) == [(REMOVED, "a")]
        (tmp_path / "left/b/hidden").touch()
        (watched / "end").touch()
        assert [name for _, name in await until(events, watched / "end")] == ["end"]
        os.rename(tmp_path / "left", watched / "back")
        await until(events, watched / "back/b/hidden")


async def test_without_recursion_only_children_count(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    (tmp_path / "d").mkdir()
    async with fs.watch(tmp_path, recursive=False) as events:
        (tmp_path / "d/hidden").touch()
        (tmp_path / "end").touch()
        assert "hidden" not in {name for _, name in await until(events, tmp_path / "end")}


async def test_paths_are_as_they_were_spelled(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """Below a link the events name the link; names keep their bytes."""
    (tmp_path / "d").mkdir()
    os.symlink("d", tmp_path / "link")
    async with fs.watch(tmp_path / "link") as events:
        (tmp_path / "d/f\udcff\n").touch()
        await until(events, tmp_path / "link/f\udcff\n")


async def test_the_end_of_the_directory_ends_the_events(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    (tmp_path / "d").mkdir()
    async with fs.watch(tmp_path / "d") as events:
        (tmp_path / "d").rmdir()
        with anyio.fail_after(10):
            assert [event async for event in events] == [WatchEvent(REMOVED, str(tmp_path / "d"))]


async def test_lost_events_are_an_event(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an overflow the watched directory is named, and directories that were missed are watched from
    then on.
    """
    real = staged.files.read_watch
    lost = False

    async def read_watch(handle: int) -> tuple[WatchRecord, ...]:
        nonlocal lost
        records = await real(handle)
        if lost:
            return records
        lost = True
        return (WatchRecord(-1, 0x4000, b""),)

    monkeypatch.setattr(staged.files, "read_watch", read_watch)
    async with fs.watch(tmp_path) as events:
        (tmp_path / "missed").mkdir()
        assert await until(events, tmp_path, OVERFLOW) == [(OVERFLOW, tmp_path.name)]
        (tmp_path / "missed/f").touch()
        await until(events, tmp_path / "missed/f")


async def test_the_limit_of_watches_is_told(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """ENOSPC of inotify is no full disk."""

    def before(operation: Operation[Any]) -> None:
        if isinstance(operation, AddWatch):
            raise OSError(28, "no space")

    staged.before = before
    with pytest.raises(FileError) as caught:
        async with fs.watch(tmp_path):
            pass
    assert not isinstance(caught.value, NoSpace)
    assert "max_user_watches" in caught.value.hint
    assert staged.files.open_handles == 0


async def test_leaving_a_watch_frees_it(staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """Also when whoever waits for the next event is cancelled."""
    with anyio.move_on_after(0.01):
        async with fs.watch(tmp_path) as events:
            await anext(events)
    assert staged.files.open_handles == 0
