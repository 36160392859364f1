"""Remove files, links, directories and whole trees, never what a link leads to.

A tree is enumerated by a walk of the machine, and emptied relative to directories that are opened component
by component without following a link. Directories are kept until their content is gone; what appears
meanwhile is met by another pass.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

import anyio

from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.fs.access import CLEANUP_LIMIT_S, Call
from execworld.machine.fs.beneath import CANNOT_RESOLVE, PINNED, add_open_beneath
from execworld.machine.fs.information import version_demand
from execworld.machine.fs.paths import join
from execworld.machine.fs.publication import temporary_name
from execworld.machine.operations import (
    Check,
    Close,
    Link,
    Open,
    OpenWalk,
    Operation,
    ReadWalk,
    RemoveDirectory,
    Rename,
    Stat,
    Unlink,
)
from execworld.machine.values import (
    Handle,
    KindMask,
    RenameMode,
    WalkPage,
)
from execworld.seams.errors import InvalidPath, NotObserved
from execworld.seams.files import Expectation, FileVersion

_ATTEMPTS: Final = 6
_STEPS_A_BATCH: Final = 512
_PASSES: Final = 8
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF)
_ANYTHING: Final = ~KindMask.ABSENT


async def remove(call: Call, *, recursive: bool, missing_ok: bool, expected: Expectation) -> None:
    if isinstance(expected, str) and expected != "absent":
        message = "expected must be a version, 'absent' or None"
        raise ValueError(message)
    if call.display == b"/":
        raise call.refusal(InvalidPath, "the root directory cannot be removed")
    for attempt in range(_ATTEMPTS):
        batch = Batch()
        stat = batch.add(Stat(call.display, follow=False), tolerate=(errno.ENOENT, errno.ENOTDIR))
        found = (await call.run_plain(batch)).get(stat)
        if found is None:
            if missing_ok:
                return
            raise call.error(errno.ENOENT)
        if expected == "absent":
            raise call.refusal(NotObserved, "it exists")
        try:
            if found.kind is KindMask.DIRECTORY:
                await _remove_directory(call, recursive=recursive, expected=expected)
            elif isinstance(expected, FileVersion):
                await _remove_version(call, expected)
            else:
                batch = Batch()
                batch.add(Unlink(call.display))
                await call.run(batch)
            return
        except BatchFailed as failure:
            # Between the two batches it was removed, or became a directory, or ceased to be one: look again.
            changed = failure.error.status in (errno.ENOENT, errno.EISDIR, errno.ENOTDIR)
            if not changed or attempt == _ATTEMPTS - 1:
                if failure.error.status == errno.EEXIST:
                    raise call.error(errno.ENOTEMPTY) from failure
                raise call.failure(failure) from failure


async def _remove_version(call: Call, expected: FileVersion) -> None:
    """Take the file away under another name, and only then judge and remove it."""
    temporary = join(call.location.parent, temporary_name())
    batch = Batch()
    # Put back by a hard link where a file system cannot rename without replacing; `_settle` removes the other
    # name.
    before = batch.add(Stat(call.display, follow=False), undo=Link(temporary, call.display))
    batch.add(Check(before.index, _ANYTHING, version_demand(expected)))
    batch.add(Rename(call.display, temporary), undo=Rename(temporary, call.display, RenameMode.NO_REPLACE))
    displaced = batch.add(Stat(temporary, follow=False))
    check = batch.add(Check(displaced.index, _ANYTHING, version_demand(expected, renamed=True)))
    batch.add(Unlink(temporary))
    try:
        await call.run(batch)
    except BatchFailed as failure:
        if failure.step >= check.index:
            await _settle(call, temporary)
        raise


async def _settle(call: Call, temporary: bytes) -> None:
    """After a file was put back, or could not be since another one took its name meanwhile: that one stands."""
    batch = Batch()
    batch.add(Stat(call.display, follow=False))
    batch.add(Unlink(temporary))
    with anyio.move_on_after(CLEANUP_LIMIT_S, shield=True):
        try:
            await call.run(batch)
        except BatchFailed:
            return  # it was put back by a rename, or there is nothing to decide


async def _remove_directory(call: Call, *, recursive: bool, expected: Expectation) -> None:
    if not recursive:
        batch = Batch()
        if isinstance(expected, FileVersion):
            stat = batch.add(Stat(call.display, follow=False))
            batch.add(Check(stat.index, _ANYTHING, version_demand(expected)))
        batch.add(RemoveDirectory(call.display))
        await call.run(batch)
        return
    batch = Batch()
    if isinstance(expected, FileVersion):
        stat = batch.add(Stat(call.display, follow=False))
        batch.add(Check(stat.index, _ANYTHING, version_demand(expected)))
    opened = batch.add(Open(call.display, PINNED))
    handle = (await call.run(batch))[opened]
    try:
        await empty_directory(call, handle)
    finally:
        await call.access.release(handle)


async def empty_directory(call: Call, handle: int) -> None:
    """Remove all that lies below the pinned directory of *call*, and then the directory itself by its path.

    Raises:
        FileError, BatchFailed
    """
    for last in (False,) * _PASSES + (True,):
        directories, errors = await _remove_files(call, handle)
        await _remove_emptied(call, handle, directories)
        batch = Batch()
        batch.add(RemoveDirectory(call.display))
        try:
            await call.run(batch)
            return
        except BatchFailed as failure:
            if failure.error.status == errno.ENOENT:
                return
            if failure.error.status not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if errors:
                path, status = errors[0]
                raise call.error(status, path=join(call.display, path)) from failure
            if last:
                text = "others keep putting files into it"
                raise call.error(errno.ENOTEMPTY, text=text) from failure


async def _remove_files(call: Call, handle: int) -> tuple[list[bytes], Sequence[tuple[bytes, int]]]:
    """Unlink everything but directories. Gives the directories, each before its content, and what could not
    be read.
    """
    directories: list[bytes] = []
    errors: list[tuple[bytes, int]] = []
    batch = Batch()
    opened = batch.add(OpenWalk(b".", base=handle))
    read = batch.add(ReadWalk(opened.handle))
    results = await call.run(batch)
    walk, page = results[opened], results[read]
    try:
        while True:
            errors += page.errors
            directories += (entry.path for entry in page.entries if entry.stat.kind is KindMask.DIRECTORY)
            await _act(call, handle, _names(page), Unlink)
            if page.end:
                return directories, errors
            batch = Batch()
            read = batch.add(ReadWalk(walk))
            page = (await call.run(batch))[read]
    finally:
        await call.access.release(walk)


def _names(page: WalkPage) -> Iterable[bytes]:
    return (entry.path for entry in page.entries if entry.stat.kind is not KindMask.DIRECTORY)


async def _remove_emptied(call: Call, handle: int, directories: list[bytes]) -> None:
    """Remove directories, the deepest first. One that has content again stays, for the next pass."""
    await _act(call, handle, reversed(directories), RemoveDirectory, errno.ENOTEMPTY, errno.EEXIST)


async def _act(
    call: Call,
    handle: int,
    paths: Iterable[bytes],
    operation: Callable[[bytes, Handle], Operation[None]],
    *tolerate: int,
) -> None:
    """Do *operation* to each of *paths* below a pinned directory, in their order. Doing it twice does no
    harm.
    """
    todo = [(path.rpartition(b"/")[0], path.rpartition(b"/")[2]) for path in paths]
    while todo:
        batch, done = Batch(), 0
        about: dict[int, bytes] = {}
        for directory, group in groupby(todo, lambda item: item[0]):
            parent = add_open_beneath(
                batch, handle, directory, resolving=call.access.resolves_beneath, tolerate=_GONE
            )
            for _, name in group:
                step = batch.add(operation(name, parent), tolerate=(*_GONE, *tolerate))
                about[step.index] = join(join(call.display, directory), name)
                done += 1
                if len(batch.steps) >= _STEPS_A_BATCH:
                    break
            if directory:
                batch.add(Close(parent), tolerate=_GONE)
            if len(batch.steps) >= _STEPS_A_BATCH:
                break
        try:
            await call.run(batch)
        except BatchFailed as failure:
            status = failure.error.status
            if failure.step not in about and status in CANNOT_RESOLVE and call.access.resolves_beneath:
                call.access.resolves_beneath = False
                continue
            raise call.error(status, path=about.get(failure.step, call.display)) from failure
        del todo[:done]
