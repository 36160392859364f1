"""Each operation with each of its steps failing once, or cancelled there: nothing is left, and the error is
coded.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import PosixPath
from typing import Any, Protocol

import anyio
import anyio.from_thread
import pytest

from execworld.machine.fs import MachineFileSystem
from execworld.machine.local.files import LocalFiles
from execworld.machine.operations import Close, Operation
from execworld.seams import FileError, FileVersion

pytestmark = pytest.mark.anyio

NUMBERS = (errno.EIO, errno.ENOENT, errno.EINVAL, errno.ENOSYS, errno.EACCES)


class Staged(Protocol):
    before: Callable[[Operation[Any]], None] | None
    files: LocalFiles
    batches: int


@pytest.fixture
def directory(tmp_path: PosixPath) -> Iterator[PosixPath]:
    """In memory where that is possible: thousands of flushes to a disk would only take time."""
    memory = PosixPath("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as name:
        yield PosixPath(name, "d")


def prepare(directory: PosixPath) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "tree/below").mkdir(parents=True)
    (directory / "tree/below/f").write_text("x")
    os.symlink("below/f", directory / "tree/link")
    (directory / "f").write_text("old text")
    (directory / "big").write_bytes(b"b" * 2_500_000)


async def chunks() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield b"c" * 800_000


def version(directory: PosixPath) -> FileVersion:
    found = os.stat(directory / "f")
    return FileVersion(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


Change = Callable[[MachineFileSystem, PosixPath], Awaitable[object]]

CHANGES: dict[str, Change] = {
    "write": lambda fs, d: fs.write_text(d / "f", "new", diff_limit_bytes=100),
    "create": lambda fs, d: fs.write_text(d / "new", "new", expected="absent"),
    "create-deep": lambda fs, d: fs.write_text(d / "a/b/new", "new"),
    "guarded": lambda fs, d: fs.write_text(d / "f", "new", expected=version(d)),
    "large": lambda fs, d: fs.write_bytes(d / "a/new", b"n" * 2_500_000),
    "large-diff": lambda fs, d: fs.write_bytes(d / "big", b"n" * 2_500_000, diff_limit_bytes=3_000_000),
    "stream": lambda fs, d: fs.write_stream(d / "f", chunks(), expected=version(d)),
    "edit": lambda fs, d: fs.edit_text(d / "f", "old", "new"),
    "directory": lambda fs, d: fs.make_directory(d / "a/b/c"),
    "remove": lambda fs, d: fs.remove(d / "f"),
    "remove-guarded": lambda fs, d: fs.remove(d / "f", expected=version(d)),
    "remove-tree": lambda fs, d: fs.remove(d / "tree", recursive=True),
    "rename": lambda fs, d: fs.rename(d / "f", d / "g"),
    "rename-tree": lambda fs, d: fs.rename(d / "tree", d / "other"),
    "copy": lambda fs, d: fs.copy(d / "big", d / "copy"),
    "copy-link": lambda fs, d: fs.copy(d / "tree/link", d / "copy"),
    "copy-tree": lambda fs, d: fs.copy(d / "tree", d / "copy", recursive=True),
    "link": lambda fs, d: fs.make_symlink(d / "copy", "text"),
    "mode": lambda fs, d: fs.set_mode(d / "f", 0o600),
    "read": lambda fs, d: fs.read_bytes(d / "big"),
    "range": lambda fs, d: fs.read_range(d / "big", offset=1, size_bytes=2_400_000),
    "list": lambda fs, d: fs.list_directory(d),
    "glob": lambda fs, d: fs.glob("tree/**", root=d),
}

# What may be seen of the files of the test afterwards: nothing half-done. Not removed and removed are both
# whole.
WHOLE = {
    "f": (b"old text", b"new", b"new text", b"c" * 2_400_000),
    "big": (b"b" * 2_500_000, b"n" * 2_500_000),
}


def check_nothing_left(directory: PosixPath, name: str) -> None:
    found: list[str] = []
    for parent, below, entries in os.walk(directory):
        found += (os.path.relpath(os.path.join(parent, entry), directory) for entry in (*below, *entries))
    assert not [path for path in found if ".execworld-" in path], found
    for path, contents in WHOLE.items():
        if path in found:
            assert (directory / path).read_bytes() in contents, path
        else:
            assert name.startswith(("remove", "rename")), path
    if name == "copy-tree" and "copy" in found:
        assert {"copy/below", "copy/below/f", "copy/link"} <= set(found)
    if name == "copy" and "copy" in found:
        assert (directory / "copy").read_bytes() == (directory / "big").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # nothing in it depends on the event loop
@pytest.mark.parametrize("name", CHANGES)
async def test_a_failing_step_leaves_nothing(
    staged: Staged, fs: MachineFileSystem, directory: PosixPath, name: str
) -> None:
    """No temporary file, no directory made for it, no handle, no queue; the target is the old or the new one."""
    position = 0
    for number in NUMBERS:
        position, reached = 0, True
        while reached:
            prepare(directory)
            reached, seen = False, 0

            def fail(operation: Operation[Any], position: int = position, number: int = number) -> None:
                nonlocal seen, reached
                if isinstance(operation, Close):
                    return  # close(2) frees its descriptor whatever it says
                seen += 1
                if seen == position + 1:
                    reached = True
                    raise OSError(number, os.strerror(number))

            staged.before = fail
            failed = False
            try:
                await CHANGES[name](fs, directory)
            except FileError:
                failed = True
            finally:
                staged.before = None
            # Publication cannot be taken back: what fails after it must not be told as a failure.
            assert not (failed and {"a", "copy", "new"} & set(os.listdir(directory))), (position, number)
            check_nothing_left(directory, name)
            assert staged.files.open_handles == 0, (position, number)
            position += 1
    assert position > 1, "the test reached no step"


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
async def test_cancelling_at_any_step_leaves_nothing(
    staged: Staged, fs: MachineFileSystem, directory: PosixPath, name: str
) -> None:
    """The same when the caller is cancelled while that step is under way."""
    position, reached = 0, True
    while reached:
        prepare(directory)
        reached, seen = False, 0
        with anyio.CancelScope() as scope:

            def cancel(
                operation: Operation[Any], position: int = position, scope: anyio.CancelScope = scope
            ) -> None:
                nonlocal seen, reached
                seen += 1
                if seen == position + 1:
                    reached = True
                    anyio.from_thread.run_sync(scope.cancel)

            staged.before = cancel
            try:
                await CHANGES[name](fs, directory)
            finally:
                staged.before = None
        check_nothing_left(directory, name)
        assert staged.files.open_handles == 0, position
        position += 1
    assert position > 1, "the test reached no step"


ONE_ROUND_TRIP: dict[str, Change] = {
    "stat": lambda fs, d: fs.stat(d / "f"),
    "resolve": lambda fs, d: fs.resolve(d / "f"),
    "read": lambda fs, d: fs.read_bytes(d / "f"),
    "read text": lambda fs, d: fs.read_text(d / "f"),
    "range": lambda fs, d: fs.read_range(d / "big", offset=5, size_bytes=100_000),
    "list": lambda fs, d: fs.list_directory(d),
    "write": lambda fs, d: fs.write_bytes(d / "f", b"n" * 1024 * 1024),
    "write with a diff": lambda fs, d: fs.write_text(d / "f", "new", diff_limit_bytes=10_000_000),
    "create": lambda fs, d: fs.write_text(d / "new", "new", expected="absent"),
    "guarded write": lambda fs, d: fs.write_text(d / "f", "new", expected=version(d)),
    "directory": lambda fs, d: fs.make_directory(d / "a"),
    "rename": lambda fs, d: fs.rename(d / "f", d / "g"),
    "mode": lambda fs, d: fs.set_mode(d / "f", 0o600),
}


@pytest.mark.parametrize("name", ONE_ROUND_TRIP)
async def test_one_round_trip(staged: Staged, fs: MachineFileSystem, directory: PosixPath, name: str) -> None:
    """What a tool does most often is one batch."""
    prepare(directory)
    await ONE_ROUND_TRIP[name](fs, directory)
    assert staged.batches == 1
