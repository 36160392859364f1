"""Raw watches of single directories."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from execworld.machine.base import NoSuchHandle, WatchRecord
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.local.files import LocalFiles
from execworld.machine.operations import (
    AddWatch,
    Close,
    Open,
    OpenWatch,
    RemoveWatch,
)
from execworld.machine.values import OpenFlag

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify"),
]


@pytest.fixture
async def files(anyio_backend: str) -> AsyncGenerator[LocalFiles]:
    files = LocalFiles()
    yield files
    files.close()


async def watch(files: LocalFiles, directory: Path) -> tuple[int, int]:
    batch = Batch()
    opened = batch.add(OpenWatch())
    added = batch.add(AddWatch(opened.handle, os.fsencode(directory)))
    results = await files.run(batch)
    return results[opened], results[added]


async def until(files: LocalFiles, handle: int, mask: int) -> list[WatchRecord]:
    found: list[WatchRecord] = []
    with anyio.fail_after(10):
        while not any(record.mask & mask for record in found):
            found += await files.read_watch(handle)
    return found


async def test_events_name_their_watch_and_child(files: LocalFiles, tmp_path: Path) -> None:
    """Creation, change and removal in a watched directory, not deeper, with names byte for byte."""
    (tmp_path / "below").mkdir()
    handle, number = await watch(files, tmp_path)
    (tmp_path / "below/hidden").touch()
    name = b"\xff\n"
    os.close(os.open(os.path.join(os.fsencode(tmp_path), name), os.O_CREAT))
    os.unlink(os.path.join(os.fsencode(tmp_path), name))
    found = await until(files, handle, 0x200)
    assert {record.watch for record in found} == {number}
    assert [record.name for record in found if record.mask & 0x100] == [name]
    assert [record.name for record in found if record.mask & 0x200] == [name]
    assert b"hidden" not in {record.name for record in found}


async def test_only_a_directory_itself_is_watched(files: LocalFiles, tmp_path: Path) -> None:
    """A file, or a link to a directory, is refused; a directory is found relative to a pinned one."""
    (tmp_path / "d").mkdir()
    (tmp_path / "f").touch()
    os.symlink("d", tmp_path / "link")
    for name in ("f", "link", "absent"):
        with pytest.raises(BatchFailed) as caught:
            await watch(files, tmp_path / name)
        assert caught.value.error.status in (errno.ENOTDIR, errno.ELOOP, errno.ENOENT)
    batch = Batch()
    base = batch.add(Open(os.fsencode(tmp_path), OpenFlag.PATH_ONLY | OpenFlag.DIRECTORY))
    opened = batch.add(OpenWatch())
    batch.add(AddWatch(opened.handle, b"d", base.handle))
    handle = (await files.run(batch))[opened]
    (tmp_path / "d/new").touch()
    assert (await until(files, handle, 0x100))[0].name == b"new"


async def test_a_removed_watch_is_silent(files: LocalFiles, tmp_path: Path) -> None:
    handle, number = await watch(files, tmp_path)
    batch = Batch()
    batch.add(RemoveWatch(handle, number))
    await files.run(batch)
    (tmp_path / "f").touch()
    [record] = await files.read_watch(handle)
    assert record.mask == 0x8000  # ignored from now on
    with anyio.move_on_after(0.05):
        raise AssertionError(await files.read_watch(handle))


@pytest.mark.parametrize("how", ["release", "step", "close"])
async def test_releasing_a_watch_wakes_its_reader(files: LocalFiles, tmp_path: Path, how: str) -> None:
    """Whoever waits is told that the handle is gone, and its descriptors are closed only then."""
    handle, _ = await watch(files, tmp_path)
    told = False

    async def read() -> None:
        nonlocal told
        with pytest.raises(NoSuchHandle):
            await files.read_watch(handle)
        told = True

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            if how == "release":
                files.release(handle)
            elif how == "close":
                files.close()
            else:
                batch = Batch()
                batch.add(Close(handle))
                await files.run(batch)
    assert told
    assert files.open_handles == 0
    with pytest.raises(NoSuchHandle):
        await files.read_watch(handle)


async def test_a_file_is_no_watch(files: LocalFiles, tmp_path: Path) -> None:
    batch = Batch()
    opened = batch.add(Open(os.fsencode(tmp_path), OpenFlag.READ | OpenFlag.DIRECTORY))
    handle = (await files.run(batch))[opened]
    with pytest.raises(NoSuchHandle):
        await files.read_watch(handle)


async def test_waiting_can_be_cancelled(files: LocalFiles, tmp_path: Path) -> None:
    """Afterwards the watch goes on."""
    handle, _ = await watch(files, tmp_path)
    with anyio.move_on_after(0.01) as scope:
        await files.read_watch(handle)
    assert scope.cancelled_caught
    (tmp_path / "f").touch()
    assert await until(files, handle, 0x100)
