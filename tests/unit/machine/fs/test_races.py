"""Other processes that act between two steps of an operation, staged at the very step."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import PosixPath
from typing import Any, Protocol

import anyio
import pytest

from execworld.machine.fs import MachineFileSystem
from execworld.machine.local.files import LocalFiles
from execworld.machine.operations import (
    Link,
    Open,
    Operation,
    Rename,
    Stat,
    StatHandle,
    Sync,
    Unlink,
    Write,
)
from execworld.machine.values import OpenFlag, RenameMode
from execworld.seams import FileError, NotObserved, NotRegularFile, StaleVersion

pytestmark = pytest.mark.anyio

Matches = Callable[[Operation[Any]], bool]


class Staged(Protocol):
    before: Callable[[Operation[Any]], None] | None
    files: LocalFiles
    batches: int


class Once:
    """Acts before the first operation that matches."""

    def __init__(self, matches: Matches, act: Callable[[], object]) -> None:
        self.matches = matches
        self.act = act
        self.done = False

    def __call__(self, operation: Operation[Any]) -> None:
        if not self.done and self.matches(operation):
            self.done = True
            self.act()


def renames(*modes: RenameMode) -> Matches:
    return lambda operation: isinstance(operation, Rename) and operation.how in modes


def refuse(matches: Matches, number: int = errno.EINVAL) -> Callable[[Operation[Any]], None]:
    """A file system that cannot do what matches."""

    def act(operation: Operation[Any]) -> None:
        if matches(operation):
            raise OSError(number, os.strerror(number))

    return act


def replace_by(path: PosixPath, content: str) -> None:
    """What an editor does: another file takes the name."""
    other = path.with_name("other")
    other.write_text(content)
    os.rename(other, path)


async def test_a_replacement_just_before_the_exchange_is_put_back(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """The two files change back: the competitor's stands under the name, the same inode, and ours is gone."""
    path = tmp_path / "f"
    version = (await fs.write_text(path, "old")).version
    once = Once(renames(RenameMode.EXCHANGE), lambda: replace_by(path, "competitor"))
    staged.before = once
    with pytest.raises(StaleVersion):
        await fs.write_text(path, "mine", expected=version)
    assert once.done
    assert path.read_text() == "competitor"
    assert os.listdir(tmp_path) == ["f"]
    assert staged.files.open_handles == 0


async def test_a_rewrite_in_place_just_before_the_exchange_is_put_back(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    path = tmp_path / "f"
    version = (await fs.write_text(path, "old")).version
    staged.before = Once(renames(RenameMode.EXCHANGE), lambda: path.write_text("competitor"))
    with pytest.raises(StaleVersion):
        await fs.write_text(path, "mine", expected=version)
    assert path.read_text() == "competitor"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("kind", ["directory", "link", "nothing"])
async def test_anything_else_in_the_place_of_the_version_is_stale(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath, kind: str
) -> None:
    """Whatever took the name stays there; a removed file stays removed."""
    path = tmp_path / "f"
    version = (await fs.write_text(path, "old")).version

    def act() -> None:
        path.unlink()
        if kind == "directory":
            path.mkdir()
        elif kind == "link":
            os.symlink("nowhere", path)

    staged.before = Once(renames(RenameMode.EXCHANGE), act)
    with pytest.raises(StaleVersion):
        await fs.write_text(path, "mine", expected=version)
    assert path.is_dir() == (kind == "directory")
    assert path.is_symlink() == (kind == "link")
    assert os.listdir(tmp_path) == ([] if kind == "nothing" else ["f"])


@pytest.mark.parametrize("guarded", [True, False])
async def test_the_version_of_an_outcome_is_never_a_competitors(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath, guarded: bool
) -> None:
    """What another writer publishes right after us is not returned as ours, so our next write notices it."""
    path = tmp_path / "f"
    expected = (await fs.write_text(path, "old")).version if guarded else None
    published = False

    def act(operation: Operation[Any]) -> None:
        nonlocal published
        if isinstance(operation, Rename):
            published = True
        elif published and isinstance(operation, StatHandle):
            staged.before = None
            replace_by(path, "competitor")

    staged.before = act
    outcome = await fs.write_text(path, "mine", expected=expected)
    info = await fs.stat(path)
    assert info is not None
    assert outcome.version != info.version
    with pytest.raises(StaleVersion):
        await fs.write_text(path, "mine again", expected=outcome.version)
    assert path.read_text() == "competitor"


async def test_without_exchange_the_version_is_compared_last(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """A file system that cannot exchange names is asked once only; a change up to the comparison is noticed."""
    path = tmp_path / "f"
    version = (await fs.write_text(path, "old")).version
    staged.before = refuse(renames(RenameMode.EXCHANGE))
    staged.batches = 0
    version = (await fs.write_text(path, "new", expected=version)).version
    assert staged.batches == 2
    staged.batches = 0
    version = (await fs.write_text(path, "newer", expected=version)).version
    assert staged.batches == 1
    staged.before = Once(
        lambda operation: isinstance(operation, Sync), lambda: replace_by(path, "competitor")
    )
    with pytest.raises(StaleVersion):
        await fs.write_text(path, "newest", expected=version)
    assert path.read_text() == "competitor"
    assert os.listdir(tmp_path) == ["f"]


async def test_a_creation_just_before_ours_wins(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    path = tmp_path / "f"
    staged.before = Once(renames(RenameMode.NO_REPLACE), lambda: path.write_text("competitor"))
    with pytest.raises(NotObserved):
        await fs.write_text(path, "mine", expected="absent")
    assert path.read_text() == "competitor"
    assert os.listdir(tmp_path) == ["f"]


async def test_without_a_rename_that_spares_a_link_decides(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """Creation, and renames without replacement, stay exact where the file system has no such rename; where
    it has no hard links either, nothing is created."""
    no_rename = renames(RenameMode.NO_REPLACE)
    staged.before = refuse(no_rename)
    assert (await fs.write_text(tmp_path / "f", "one", expected="absent")).created
    with pytest.raises(NotObserved):
        await fs.write_text(tmp_path / "f", "two", expected="absent")
    await fs.rename(tmp_path / "f", tmp_path / "g")
    await fs.make_directory(tmp_path / "d/e")
    await fs.rename(tmp_path / "d", tmp_path / "h")
    for source in ("g", "h"):
        for target in ("g", "h"):
            with pytest.raises(FileError):
                await fs.rename(tmp_path / source, tmp_path / target)
    await fs.copy(tmp_path / "g", tmp_path / "i")
    assert sorted(os.listdir(tmp_path)) == ["g", "h", "i"]
    assert os.stat(tmp_path / "g").st_nlink == os.stat(tmp_path / "i").st_nlink == 1

    def neither(operation: Operation[Any]) -> None:
        if no_rename(operation) or isinstance(operation, Link):
            raise OSError(errno.EPERM if isinstance(operation, Link) else errno.EINVAL, "refused")

    staged.before = neither
    with pytest.raises(FileError):
        await fs.write_text(tmp_path / "x", "one", expected="absent")
    assert sorted(os.listdir(tmp_path)) == ["g", "h", "i"]


async def test_a_fifo_that_takes_the_name_is_not_waited_for(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """Between the look at a file and its opening."""
    path = tmp_path / "f"
    path.write_text("x")

    def act() -> None:
        path.unlink()
        os.mkfifo(path)

    staged.before = Once(lambda operation: isinstance(operation, Open), act)
    with anyio.fail_after(5), pytest.raises(NotRegularFile):
        await fs.read_bytes(path)
    assert staged.files.open_handles == 0


async def test_a_write_stays_in_the_directory_that_it_began_in(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """A directory that is swapped for a link meanwhile does not lead the content elsewhere."""
    (tmp_path / "d").mkdir()
    (tmp_path / "outside").mkdir()

    def act() -> None:
        os.rename(tmp_path / "d", tmp_path / "moved")
        os.symlink("outside", tmp_path / "d")

    staged.before = Once(lambda operation: isinstance(operation, Write), act)
    await fs.write_text(tmp_path / "d/f", "x")
    assert os.listdir(tmp_path / "outside") == []
    assert (tmp_path / "moved/f").read_text() == "x"


async def test_an_edit_without_demand_is_made_again(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """Another writer's change between reading and publication is kept, and the edit applied to it."""
    path = tmp_path / "f"
    path.write_text("a b")
    staged.before = Once(renames(RenameMode.EXCHANGE), lambda: replace_by(path, "a c"))
    outcome = await fs.edit_text(path, "a", "A")
    assert path.read_text() == outcome.after == "A c"
    version = outcome.version
    staged.before = Once(renames(RenameMode.EXCHANGE), lambda: replace_by(path, "A d"))
    with pytest.raises(StaleVersion):
        await fs.edit_text(path, "A", "B", expected=version)
    assert path.read_text() == "A d"
    assert os.listdir(tmp_path) == ["f"]


async def test_the_old_text_of_a_diff_is_what_was_displaced(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """When the file changes while its old text is read there is no old text, rather than a wrong one."""
    path = tmp_path / "f"
    path.write_text("old")

    def reads(operation: Operation[Any]) -> bool:
        return isinstance(operation, Open) and operation.flags == OpenFlag.READ | OpenFlag.NO_FOLLOW

    staged.before = Once(reads, lambda: replace_by(path, "competitor"))
    outcome = await fs.write_text(path, "new", diff_limit_bytes=100)
    assert (outcome.before, outcome.after) == (None, None)
    assert path.read_text() == "new"


async def test_a_guarded_removal_puts_back_what_it_did_not_mean(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """With and without a rename that spares; if yet another file took the name, that one stands."""
    path = tmp_path / "f"
    for spares in (True, False):
        version = (await fs.write_text(path, "old")).version
        taken = Once(renames(RenameMode.REPLACE), lambda: replace_by(path, "competitor"))

        def act(operation: Operation[Any], spares: bool = spares, taken: Once = taken) -> None:
            taken(operation)
            if not spares:
                refuse(renames(RenameMode.NO_REPLACE))(operation)

        staged.before = act
        with pytest.raises(StaleVersion):
            await fs.remove(path, expected=version)
        staged.before = None
        assert path.read_text() == "competitor"
        assert os.stat(path).st_nlink == 1
        assert os.listdir(tmp_path) == ["f"]
    version = (await fs.write_text(path, "old")).version
    taken = Once(renames(RenameMode.REPLACE), lambda: replace_by(path, "competitor"))
    back = Once(renames(RenameMode.NO_REPLACE), lambda: path.write_text("third"))

    def both(operation: Operation[Any]) -> None:
        taken(operation)
        back(operation)

    staged.before = both
    with pytest.raises(StaleVersion):
        await fs.remove(path, expected=version)
    assert path.read_text() == "third"
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("resolving", [True, False])
async def test_removal_does_not_follow_a_swapped_directory(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath, resolving: bool
) -> None:
    """A directory that became a link after it was walked: nothing that the link leads to is touched."""
    tree, outside = tmp_path / "tree", tmp_path / "outside"
    (tree / "a/b").mkdir(parents=True)
    (tree / "a/b/f").touch()
    (outside / "b").mkdir(parents=True)
    (outside / "b/f").write_text("kept")

    def act() -> None:
        os.rename(tree / "a", tree / "moved")
        os.symlink(outside, tree / "a")

    once = Once(lambda operation: isinstance(operation, Open) and operation.base is not None, act)

    def before(operation: Operation[Any]) -> None:
        once(operation)
        if not resolving and isinstance(operation, Open) and operation.flags & OpenFlag.NO_SYMLINKS:
            raise OSError(errno.ENOSYS, "an old kernel")

    staged.before = before
    await fs.remove(tree, recursive=True)
    assert once.done
    assert (outside / "b/f").read_text() == "kept"
    assert sorted(os.listdir(tmp_path)) == ["outside"]


async def test_parents_that_vanish_are_made_again(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """Another writer that fails removes the directories that it made, while we already found them."""
    (tmp_path / "a").mkdir()
    looks = 0

    def act(operation: Operation[Any]) -> None:
        nonlocal looks
        if isinstance(operation, Stat) and operation.path == os.fsencode(tmp_path / "a"):
            looks += 1
        if looks == 1 and not isinstance(operation, Stat) and (tmp_path / "a").exists():
            (tmp_path / "a").rmdir()

    staged.before = act
    await fs.write_text(tmp_path / "a/b/f", "x")
    assert (tmp_path / "a/b/f").read_text() == "x"


async def test_a_displaced_file_that_cannot_be_removed_is_tried_again(
    staged: Staged, fs: MachineFileSystem, tmp_path: PosixPath
) -> None:
    """The write has succeeded by then, and says so."""
    path = tmp_path / "f"
    version = (await fs.write_text(path, "old")).version
    failed = False

    def act(operation: Operation[Any]) -> None:
        nonlocal failed
        if isinstance(operation, Unlink) and not failed:
            failed = True
            raise OSError(errno.EIO, "once")

    staged.before = act
    await fs.write_text(path, "new", expected=version)
    assert failed
    assert os.listdir(tmp_path) == ["f"]
