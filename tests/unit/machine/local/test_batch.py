"""The executor of batches: order, references, undo, handles and cancellation, on this host."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from execworld.machine.batch import Batch, BatchFailed, StepError
from execworld.machine.local.batch import StepFailed
from execworld.machine.local.files import LocalFiles
from execworld.machine.operations import (
    Check,
    Close,
    Link,
    ListDirectory,
    MakeDirectory,
    Open,
    Read,
    RealPath,
    RemoveDirectory,
    Rename,
    Spawn,
    Stat,
    Unlink,
    Write,
)
from execworld.machine.values import (
    CheckStatus,
    HandleRef,
    KindMask,
    OpenFlag,
    PathPart,
    PathRef,
    Spawned,
    SpawnStage,
)

pytestmark = pytest.mark.anyio

Eventually = Callable[[Callable[[], bool], str], Awaitable[None]]

CREATE = OpenFlag.WRITE | OpenFlag.CREATE | OpenFlag.EXCLUSIVE
SPAWN = Spawn(b"/bin/true", (b"true",), (), b"/")


@pytest.fixture
async def files(anyio_backend: str) -> AsyncGenerator[LocalFiles]:
    files = LocalFiles()
    yield files
    assert files.open_handles == 0, "a test left a handle open"
    files.close()


def descriptors() -> list[str]:
    """What this process has open, without what event loops and threads come and go with."""
    found: list[str] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("/") and not target.startswith("/proc/"):
            found.append(target)
    return sorted(found)


def at(directory: Path, name: str) -> bytes:
    return os.fsencode(directory / name)


async def test_results_refer_to_each_other(files: LocalFiles, tmp_path: Path) -> None:
    """A later step takes handle, path, parent and name from an earlier one."""
    batch = Batch()
    real = batch.add(RealPath(at(tmp_path, "new"), missing_ok=True))
    parent = batch.add(Open(real.parent, OpenFlag.READ | OpenFlag.DIRECTORY))
    made = batch.add(Open(real.name, CREATE, base=parent.handle))
    batch.add(Write(made.handle, b"content"))
    batch.add(Close(made.handle))
    opened = batch.add(Open(real.path))
    content = batch.add(Read(opened.handle, 100, close_at_end=True))
    batch.add(Close(parent.handle))
    results = await files.run(batch)
    assert results[content] == b"content"
    assert results[real] == at(tmp_path, "new")


@pytest.mark.parametrize(
    ("path", "parent", "name"), [(b"/", b"/", b"."), (b"/a", b"/", b"a"), (b"/a/b", b"/a", b"b")]
)
async def test_parts_of_a_path(files: LocalFiles, path: bytes, parent: bytes, name: bytes) -> None:
    """The parent of ``/`` is ``/`` and its name is ``.``."""
    batch = Batch()
    real = batch.add(RealPath(path, missing_ok=True))
    parts = [batch.add(RealPath(PathRef(real.index, part), missing_ok=True)) for part in PathPart]
    results = await files.run(batch)
    where = os.fsencode(os.getcwd())
    expected = [path, parent, where if name == b"." else os.path.join(where, name)]
    assert [results[part] for part in parts] == expected


async def test_the_first_failure_stops_and_undoes_in_reverse(files: LocalFiles, tmp_path: Path) -> None:
    """Steps after a failed one do not run; undo runs in reverse, its own errors ignored; all handles are
    closed.
    """
    before = descriptors()
    batch = Batch()
    batch.add(MakeDirectory(at(tmp_path, "a")), undo=RemoveDirectory(at(tmp_path, "a")))
    batch.add(MakeDirectory(at(tmp_path, "a/b")), undo=RemoveDirectory(at(tmp_path, "a/b")))
    batch.add(Stat(at(tmp_path, "a")), undo=Unlink(at(tmp_path, "absent")))
    made = batch.add(Open(at(tmp_path, "a/b/f"), CREATE), undo=Unlink(at(tmp_path, "a/b/f")))
    failing = batch.add(Stat(at(tmp_path, "absent")))
    batch.add(MakeDirectory(at(tmp_path, "never")))
    with pytest.raises(BatchFailed) as caught:
        await files.run(batch)
    assert caught.value.step == failing.index
    assert caught.value.error == StepError(errno.ENOENT)
    assert isinstance(caught.value.results[made], int)
    assert len(caught.value.results.values) == failing.index
    assert os.listdir(tmp_path) == []
    assert descriptors() == before


async def test_undo_uses_the_handles_of_the_batch(files: LocalFiles, tmp_path: Path) -> None:
    """Handles are closed only after undo, so undo may be relative to a pinned directory that was moved since."""
    batch = Batch()
    os.mkdir(tmp_path / "d")
    pinned = batch.add(Open(at(tmp_path, "d"), OpenFlag.PATH_ONLY | OpenFlag.DIRECTORY))
    batch.add(Open(b"f", CREATE, base=pinned.handle), undo=Unlink(b"f", pinned.handle))
    batch.add(Rename(at(tmp_path, "d"), at(tmp_path, "e")))
    batch.add(Stat(b"absent"))
    with pytest.raises(BatchFailed):
        await files.run(batch)
    assert os.listdir(tmp_path / "e") == []


async def test_a_tolerated_failure_is_a_result(files: LocalFiles, tmp_path: Path) -> None:
    """The batch goes on after it, its undo does not run, and what refers to it fails with EBADF or EINVAL."""
    os.mkdir(tmp_path / "d")
    batch = Batch()
    made = batch.add(
        MakeDirectory(at(tmp_path, "d")), tolerate=(errno.EEXIST,), undo=RemoveDirectory(at(tmp_path, "d"))
    )
    opened = batch.add(Open(at(tmp_path, "absent")), tolerate=(errno.ENOENT,))
    read = batch.add(Read(opened.handle, 1), tolerate=(errno.EBADF,))
    link = batch.add(RealPath(at(tmp_path, "absent")), tolerate=(errno.ENOENT,))
    stat = batch.add(Stat(link.path), tolerate=(errno.EINVAL,))
    results = await files.run(batch)
    assert [results.get(step) for step in (opened, read, link, stat)] == [None] * 4
    assert results.values[made.index] == StepError(errno.EEXIST)
    with pytest.raises(KeyError):
        _ = results[opened]
    batch.add(Stat(at(tmp_path, "absent")))
    with pytest.raises(BatchFailed):
        await files.run(batch)
    assert os.listdir(tmp_path) == ["d"]


async def test_check_judges_an_earlier_stat(files: LocalFiles, tmp_path: Path) -> None:
    """Kind, version, links and size in that order; a tolerated absence is a kind of its own and voids the
    rest.
    """
    (tmp_path / "f").write_bytes(b"four")
    os.link(tmp_path / "f", tmp_path / "g")
    found = os.stat(tmp_path / "f")
    version = (found.st_dev, found.st_ino, 4, found.st_mtime_ns, found.st_ctime_ns)

    async def status(check: Check, path: str = "f") -> int:
        batch = Batch()
        batch.add(Stat(at(tmp_path, path)), tolerate=(errno.ENOENT, errno.ENOTDIR, errno.ELOOP))
        batch.add(check)
        try:
            await files.run(batch)
        except BatchFailed as failure:
            return failure.error.status
        return 0

    file = KindMask.FILE
    assert await status(Check(0, file, version, 2, 4)) == 0
    assert await status(Check(0, file, (*version[:4], None))) == 0
    assert await status(Check(0, KindMask.DIRECTORY, (0, 0, 0, 0, 0), 1, 1)) == CheckStatus.KIND
    assert await status(Check(0, file, (*version[:4], 0), 1, 1)) == CheckStatus.VERSION
    assert await status(Check(0, file, version, 1, 1)) == CheckStatus.LINKS
    assert await status(Check(0, file, version, 0, 3)) == CheckStatus.SIZE
    assert await status(Check(0, KindMask.DIRECTORY, None, 1), ".") == 0
    for absent in ("absent", "f/child"):
        assert await status(Check(0, file), absent) == CheckStatus.KIND
        assert await status(Check(0, file | KindMask.ABSENT, version, 1, 0), absent) == 0
    os.symlink("loop", tmp_path / "loop")
    assert await status(Check(0, KindMask.ABSENT), "loop") == errno.ELOOP
    assert await status(Check(7, file)) == errno.EINVAL


@pytest.mark.parametrize("operation", [Stat(b"a\0b"), Open(b"a\0b"), RealPath(b"/a\0b"), Link(b"a\0", b"b")])
async def test_a_nul_is_an_error_number(files: LocalFiles, operation: Stat | Open | RealPath | Link) -> None:
    """No error of Python's own escapes from a step."""
    batch = Batch()
    batch.add(operation)
    with pytest.raises(BatchFailed) as caught:
        await files.run(batch)
    assert caught.value.error.status == errno.EINVAL


async def test_handles_last_until_they_are_released(files: LocalFiles, tmp_path: Path) -> None:
    """A handle of a finished batch serves later ones; closed or released, or never given, it is EBADF."""
    (tmp_path / "f").write_bytes(b"abcdef")
    batch = Batch()
    opened = batch.add(Open(at(tmp_path, "f")))
    handle = (await files.run(batch))[opened]
    for expected in (b"abc", b"def", b""):
        batch = Batch()
        read = batch.add(Read(handle, 3))
        assert (await files.run(batch))[read] == expected
    assert files.release(handle)
    assert not files.release(handle)
    for number in (handle, -1, 10**12):
        batch = Batch()
        batch.add(Close(number))
        with pytest.raises(BatchFailed) as caught:
            await files.run(batch)
        assert caught.value.error.status == errno.EBADF


async def test_a_handle_of_another_kind_is_refused(files: LocalFiles, tmp_path: Path) -> None:
    """Listing a file, or using as a handle what is none, is an error number."""
    (tmp_path / "f").touch()
    batch = Batch()
    opened = batch.add(Open(at(tmp_path, "f")))
    batch.add(ListDirectory(opened.handle))
    with pytest.raises(BatchFailed) as caught:
        await files.run(batch)
    assert caught.value.error.status == errno.ENOTDIR
    batch = Batch()
    stat = batch.add(Stat(at(tmp_path, "f")))
    batch.add(Read(HandleRef(stat.index), 1))
    with pytest.raises(BatchFailed) as caught:
        await files.run(batch)
    assert caught.value.error.status == errno.EBADF


class Blocking:
    """A spawn that hangs like a system call on a dead file system, until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()
        self.discarded: list[int] = []

    def __call__(self, operation: Spawn, path: bytes, cwd: bytes) -> Spawned:
        self.entered.set()
        assert self.leave.wait(30)
        return Spawned(77, 1)

    async def wait_entered(self) -> None:
        with anyio.fail_after(10):
            await anyio.to_thread.run_sync(self.entered.wait)


def staged(tmp_path: Path, *, last: bool = False) -> Batch:
    batch = Batch()
    batch.add(Open(at(tmp_path, "f"), CREATE), undo=Unlink(at(tmp_path, "f")))
    batch.add(SPAWN)
    if not last:
        batch.add(MakeDirectory(at(tmp_path, "never")))
    return batch


async def cancel_in_the_middle(files: LocalFiles, blocking: Blocking, batch: Batch) -> float:
    """Cancel while the worker is in a call; how long that took."""
    began = time.monotonic()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(files.run, batch)
        await blocking.wait_entered()
        began = time.monotonic()
        tasks.cancel_scope.cancel()
    return time.monotonic() - began


async def test_a_cancelled_batch_is_undone_before_the_caller_goes_on(tmp_path: Path) -> None:
    """The call that is under way is waited for; then the steps are undone, handles closed, processes
    discarded.
    """
    blocking = Blocking()
    files = LocalFiles(spawn=blocking, discard=blocking.discarded.append)
    before = descriptors()
    timer = threading.Timer(0.2, blocking.leave.set)
    timer.start()
    await cancel_in_the_middle(files, blocking, staged(tmp_path))
    timer.join()
    assert os.listdir(tmp_path) == []
    assert blocking.discarded == [77]
    assert files.open_handles == 0
    assert descriptors() == before


@pytest.mark.parametrize("last", [False, True])
async def test_a_hung_call_does_not_hang_the_caller(
    tmp_path: Path, eventually: Eventually, last: bool
) -> None:
    """After a bounded time the worker is left to itself, other batches go on, and it cleans up when it
    returns.
    """
    blocking = Blocking()
    files = LocalFiles(spawn=blocking, discard=blocking.discarded.append, patience_s=0.1)
    before = descriptors()
    try:
        assert await cancel_in_the_middle(files, blocking, staged(tmp_path, last=last)) < 5
        assert os.listdir(tmp_path) == ["f"], "the worker cannot have come so far"
        batch = Batch()
        batch.add(Stat(at(tmp_path, "f")))
        await files.run(batch)
    finally:
        blocking.leave.set()

    def clean() -> bool:
        return os.listdir(tmp_path) == [] and blocking.discarded == [77] and descriptors() == before

    await eventually(clean, "the worker that was left to itself did not clean up")
    assert files.open_handles == 0


async def test_a_batch_cancelled_at_its_end_is_undone_too(tmp_path: Path) -> None:
    """Who is cancelled gets no results, so nothing that needs them may stay behind."""
    entered, leave = threading.Event(), threading.Event()

    def discard(handle: int) -> None:
        raise AssertionError(handle)

    def spawn(operation: Spawn, path: bytes, cwd: bytes) -> Spawned:
        entered.set()
        assert leave.wait(10)
        raise OSError(errno.EAGAIN, "tolerated")

    files = LocalFiles(spawn=spawn, discard=discard)
    batch = Batch()
    batch.add(Open(at(tmp_path, "f"), CREATE), undo=Unlink(at(tmp_path, "f")))
    batch.add(SPAWN, tolerate=(errno.EAGAIN,))
    before = descriptors()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(files.run, batch)
        with anyio.fail_after(10):
            await anyio.to_thread.run_sync(entered.wait)
        leave.set()
        # The worker finishes while this task holds the event loop: the result is there and nobody has taken
        # it.
        deadline = time.monotonic() + 10
        while files.open_handles == 0:
            assert time.monotonic() < deadline, "the batch did not end within 10 s"
            time.sleep(0.001)  # noqa: ASYNC251 - blocking the event loop is the point
        tasks.cancel_scope.cancel()
    assert os.listdir(tmp_path) == []
    assert files.open_handles == 0
    assert descriptors() == before


async def test_a_batch_cancelled_before_it_began_does_nothing(files: LocalFiles, tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        batch = Batch()
        batch.add(MakeDirectory(at(tmp_path, "d")))
        await files.run(batch)
    assert scope.cancelled_caught
    assert os.listdir(tmp_path) == []


async def test_a_failed_spawn_says_where(tmp_path: Path) -> None:
    """`StepFailed` carries a detail into the error of the step."""

    def spawn(operation: Spawn, path: bytes, cwd: bytes) -> Spawned:
        assert (path, cwd) == (b"/bin/true", b"/")
        raise StepFailed(errno.ENOENT, SpawnStage.DIRECTORY)

    batch = Batch()
    batch.add(SPAWN)
    with pytest.raises(BatchFailed) as caught:
        await LocalFiles(spawn=spawn).run(batch)
    assert caught.value.error == StepError(errno.ENOENT, SpawnStage.DIRECTORY)


async def test_a_process_of_a_failed_batch_is_discarded(tmp_path: Path) -> None:
    discarded: list[int] = []

    def spawn(operation: Spawn, path: bytes, cwd: bytes) -> Spawned:
        return Spawned(5, 1)

    files = LocalFiles(spawn=spawn, discard=discarded.append)
    batch = Batch()
    batch.add(SPAWN)
    batch.add(Stat(at(tmp_path, "absent")))
    with pytest.raises(BatchFailed):
        await files.run(batch)
    assert discarded == [5]


async def test_a_handle_is_not_closed_below_its_user(tmp_path: Path) -> None:
    """Releasing a handle that a running batch uses closes it when that batch ended, so no number is reused
    under it.
    """
    blocking = Blocking()
    files = LocalFiles(spawn=blocking)
    (tmp_path / "f").write_bytes(b"content")
    batch = Batch()
    opened = batch.add(Open(at(tmp_path, "f")))
    handle = (await files.run(batch))[opened]
    batch = Batch()
    batch.add(Read(handle, 3))
    batch.add(SPAWN)
    read = batch.add(Read(handle, 4))
    outcome: list[bytes] = []

    async def use() -> None:
        outcome.append((await files.run(batch))[read])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(use)
        await blocking.wait_entered()
        assert files.release(handle)
        assert str(tmp_path / "f") in descriptors()
        blocking.leave.set()
    assert outcome == [b"tent"]
    assert str(tmp_path / "f") not in descriptors()


async def test_closing_frees_everything_and_ends_it(tmp_path: Path) -> None:
    """After `close` a batch that opens something fails and leaves nothing open."""
    files = LocalFiles()
    batch = Batch()
    batch.add(Open(os.fsencode(tmp_path), OpenFlag.READ | OpenFlag.DIRECTORY))
    before = descriptors()
    await files.run(batch)
    files.close()
    with pytest.raises(BatchFailed):
        await files.run(batch)
    assert descriptors() == before
    assert files.open_handles == 0
