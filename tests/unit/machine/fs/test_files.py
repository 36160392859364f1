"""Bounds, odd files and what is left behind, where the contract suite does not look."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import PosixPath
from typing import Any, Protocol

import anyio
import anyio.lowlevel
import pytest

from execworld.machine.fs import MachineFileSystem
from execworld.machine.fs.queues import PathQueues
from execworld.machine.local.files import LocalFiles
from execworld.machine.operations import Open, Operation
from execworld.seams import (
    FileAlreadyExists,
    FileError,
    InvalidPath,
    NotRegularFile,
    NotText,
    TooLarge,
    WalkError,
)

pytestmark = pytest.mark.anyio


class Staged(Protocol):
    before: Callable[[Operation[Any]], None] | None
    files: LocalFiles
    batches: int


async def test_a_huge_file_is_refused_before_it_is_opened(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """By its size alone; ranges of it are read, up to the end."""
    path = tmp_path / "sparse"
    with path.open("wb") as stream:
        stream.truncate(5 * 1024**3)
        stream.seek(-4, 2)
        stream.write(b"tail")

    def before(operation: Operation[Any]) -> None:
        assert not isinstance(operation, Open)

    staged.before = before
    for call in (fs.read_bytes(path), fs.read_text(path), fs.edit_text(path, "a", "b")):
        with pytest.raises(TooLarge) as caught:
            await call
        assert "5368709120" in caught.value.message or "limit" in caught.value.message
    staged.before = None
    assert await fs.read_range(path, offset=5 * 1024**3 - 4, size_bytes=100) == b"tail"


async def test_streams_take_bounded_memory(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """64 MiB read and written as a stream, and copied, in a few MiB."""
    size = 64 * 1024 * 1024

    async def source() -> AsyncIterator[bytes]:
        for _ in range(size // 65536):
            yield bytes(65536)

    tracemalloc.start()
    try:
        await fs.write_stream(tmp_path / "f", source())
        await fs.copy(tmp_path / "f", tmp_path / "g")
        total = 0
        async with fs.open_reader(tmp_path / "g") as chunks:
            async for chunk in chunks:
                total += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total == size
    assert peak < 16 * 1024 * 1024


async def test_a_walk_takes_bounded_memory(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """However many entries a directory has; a listing of it is complete."""
    for number in range(6000):
        os.close(os.open(tmp_path / f"{number:05}", os.O_CREAT | os.O_WRONLY))
    tracemalloc.start()
    try:
        count = 0
        async for entry in fs.walk(tmp_path):
            assert not isinstance(entry, WalkError)
            count += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 6000
    assert peak < 3 * 1024 * 1024
    listed = await fs.list_directory(tmp_path)
    assert [entry.name for entry in listed] == [f"{number:05}" for number in range(6000)]
    assert staged.files.open_handles == 0


async def test_a_walk_that_is_dropped_is_closed_by_the_next_operation(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """Leaving the loop is enough; nobody has to close anything."""
    for number in range(2000):
        (tmp_path / f"{number}").touch()
    for _ in range(20):
        async for _entry in fs.walk(tmp_path):
            break
    gc.collect()
    await fs.stat(tmp_path)
    assert staged.files.open_handles == 0


async def test_changes_of_one_path_wait_in_order() -> None:
    """First come first served, the others let through after a failure or cancellation, and nothing is kept."""
    queues, order = PathQueues(), list[int]()
    release = anyio.Event()

    async def change(number: int) -> None:
        with anyio.CancelScope() as scope:
            if number == 2:
                scopes.append(scope)
            async with queues.hold(b"/f"):
                order.append(number)
                if number == 0:
                    await release.wait()
                if number == 1:
                    await anyio.lowlevel.checkpoint()

    scopes: list[anyio.CancelScope] = []
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(change, number)
            await anyio.wait_all_tasks_blocked()
        async with queues.hold(b"/other", b"/another", b"/other"):
            assert len(queues) == 3
        scopes[0].cancel()
        await anyio.wait_all_tasks_blocked()
        release.set()
    assert order == [0, 1, 3]
    assert len(queues) == 0


async def test_a_tree_is_not_copied_into_itself(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """Nor through a link to itself; nothing is made."""
    (tmp_path / "d/e").mkdir(parents=True)
    os.symlink("d", tmp_path / "link")
    for source, target in (("d", "d/copy"), ("d", "link/copy"), ("d", "d/e/copy")):
        with pytest.raises(InvalidPath):
            await fs.copy(tmp_path / source, tmp_path / target, recursive=True)
        with pytest.raises(FileError):
            await fs.rename(tmp_path / source, tmp_path / target)
    with pytest.raises(FileAlreadyExists):
        await fs.copy(tmp_path / "d", tmp_path / "d", recursive=True)
    assert os.listdir(tmp_path / "d") == ["e"]
    assert os.listdir(tmp_path / "d/e") == []


async def test_a_copied_tree_is_equal(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """Names, links, bits and times at every level, a file larger than one step included."""
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "a/b").mkdir(parents=True)
    (source / "a/empty").mkdir()
    large = os.urandom(1024) * (17 * 1024)
    (source / "a/large").write_bytes(large)
    (source / "a/b/-rf *\n\udcff").write_text("x")
    os.symlink("../absent", source / "a/b/link")
    (source / "a/b").chmod(0o501)
    (source / "a/large").chmod(0o640)
    for path in ("a/large", "a/b", "a", "."):
        os.utime(source / path, ns=(1_000_000_007, 2_000_000_009))
    await fs.copy(source, target, recursive=True)

    def state(top: PosixPath) -> dict[str, tuple[int, int, int]]:
        found: dict[str, tuple[int, int, int]] = {}
        for parent, directories, files in os.walk(top):
            for name in (".", *directories, *files):
                path = os.path.join(parent, name)
                stat = os.lstat(path)
                time_ns = 0 if os.path.islink(path) else stat.st_mtime_ns
                size = stat.st_size if os.path.isfile(path) else 0
                found[os.path.relpath(path, top)] = (stat.st_mode, size, time_ns)
        return found

    assert state(target) == state(source)
    assert (target / "a/large").read_bytes() == large


async def test_a_copy_that_meets_a_special_file_leaves_nothing(
    fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/f").touch()
    os.mkfifo(tmp_path / "d/e/fifo")
    with anyio.fail_after(5), pytest.raises(NotRegularFile) as caught:
        await fs.copy(tmp_path / "d", tmp_path / "copy", recursive=True)
    assert caught.value.path == str(tmp_path / "d/e/fifo")
    assert os.listdir(tmp_path) == ["d"]


@pytest.mark.parametrize("depth", [200])
async def test_a_deep_tree_is_copied_and_removed(
    fs: MachineFileSystem, tmp_path: PosixPath, depth: int
) -> None:
    """Deeper than PATH_MAX reaches."""
    current = os.open(tmp_path, os.O_RDONLY)
    name = "d" * 30
    for _ in range(depth):
        os.mkdir(name, dir_fd=current)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=current))
        below = os.open(name, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = below
    os.close(current)
    await fs.copy(tmp_path / name, tmp_path / "copy", recursive=True)
    count = 0
    async for _ in fs.walk(tmp_path / "copy"):
        count += 1
    assert count == 2 * (depth - 1)
    for path in (name, "copy"):
        await fs.remove(tmp_path / path, recursive=True)
    assert os.listdir(tmp_path) == ["f"]


async def test_a_glob_does_not_pass_through_links(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """Neither by a wildcard nor by a name; the root itself may be one."""
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").touch()
    os.symlink("d", tmp_path / "link")

    async def matched(pattern: str, root: PosixPath = tmp_path) -> list[str]:
        return [entry.path.removeprefix(f"{root}/") for entry in await fs.glob(pattern, root=root)]

    assert await matched("link/e/f") == await matched("li*/e/f") == []
    assert await matched("d/e/f") == await matched("*/e/f") == ["d/e/f"]
    assert await matched("e/*", tmp_path / "link") == ["e/f"]
    assert await matched("absent/**") == await matched("d/e/f/x") == []
    assert await matched("**/") == ["d", "d/e"]
    assert await fs.glob("d/e/*", root=tmp_path, prune=["e"]) == []


async def test_the_root_directory_is_not_removed(fs: MachineFileSystem) -> None:
    for path in ("/", "/..", "//", "/tmp/.."):
        with pytest.raises(InvalidPath):
            await fs.remove(path, recursive=True)


async def test_reads_in_other_encodings(fs: MachineFileSystem, tmp_path: PosixPath) -> None:
    """UTF-16 holds NUL bytes and is text; a byte order mark stays, in streams too, and survives an edit."""
    path = tmp_path / "f"
    for encoding in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig"):
        await fs.write_text(path, "key: 1\r\nö\r\n", encoding=encoding)
        raw = path.read_bytes()
        text = await fs.read_text(path, encoding=encoding)
        async with fs.open_text_reader(path, encoding=encoding) as chunks:
            assert "".join([chunk async for chunk in chunks]) == text
        await fs.edit_text(path, "key: 1", "key: 2", encoding=encoding)
        assert path.read_bytes() == raw.replace(b"1", b"2")
    with pytest.raises(NotText):
        await fs.read_text(path, encoding="ascii")
    with pytest.raises(ValueError, match="no text encoding"):
        await fs.read_text(path, encoding="nonsense")
    with pytest.raises(NotText):
        await fs.write_text(path, "\ud800")
