"""Make directories and links, rename, set modes."""

from __future__ import annotations

import errno
from typing import Final

from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.fs.access import Call
from execworld.machine.fs.parents import missing_directories
from execworld.machine.fs.paths import Location, is_inside
from execworld.machine.fs.publication import CANNOT_RENAME_SO
from execworld.machine.operations import (
    Check,
    Close,
    Link,
    MakeDirectory,
    MakeSymlink,
    Open,
    RemoveDirectory,
    Rename,
    SetMode,
    Stat,
    StatHandle,
    Unlink,
)
from execworld.machine.values import (
    CheckStatus,
    KindMask,
    OpenFlag,
    RenameMode,
)
from execworld.seams.errors import FileAlreadyExists, FileError, FileMissing, InvalidPath, NotRegularFile

_ATTEMPTS: Final = 6


def check_mode(mode: int) -> None:
    if not 0 <= mode <= 0o7777:
        message = "mode must be between 0 and 0o7777"
        raise ValueError(message)


async def make_directory(call: Call, *, parents: bool, exist_ok: bool, mode: int) -> None:
    check_mode(mode)
    missing: list[bytes] = []
    for attempt in range(_ATTEMPTS):
        batch = Batch()
        for path in missing:
            batch.add(MakeDirectory(path), tolerate=(errno.EEXIST,), undo=RemoveDirectory(path))
        make = batch.add(
            MakeDirectory(call.display, mode),
            tolerate=(errno.EEXIST,) if exist_ok else (),
            undo=RemoveDirectory(call.display),
        )
        stat = batch.add(Stat(call.display))
        batch.add(Check(stat.index, KindMask.DIRECTORY))
        try:
            await call.run(batch)
            return
        except BatchFailed as failure:
            status = failure.error.status
            if status == errno.ENOENT and failure.step <= make.index and parents and attempt < _ATTEMPTS - 1:
                missing = await missing_directories(call, call.location.parent)
                continue
            if status == CheckStatus.KIND:
                raise call.error(errno.EEXIST, text="something that is no directory is there") from failure
            if status == errno.ENOENT and failure.step == stat.index:
                raise call.error(errno.EEXIST, text="a link that leads nowhere is there") from failure
            if status == errno.ENOENT:
                hint = "" if parents else "make the parent first, or ask for parents to be made"
                raise call.error(status, text="its parent directory does not exist", hint=hint) from failure
            raise call.error(status) from failure


async def make_symlink(call: Call, target: bytes) -> None:
    if not target or b"\0" in target:
        raise call.refusal(InvalidPath, "the text of a link must not be empty or hold a NUL")
    batch = Batch()
    batch.add(MakeSymlink(target, call.display), undo=Unlink(call.display))
    await call.run_plain(batch)


async def set_mode(call: Call, mode: int) -> None:
    check_mode(mode)
    # A descriptor for the path alone needs no right on the file, and opens nothing that could block. A
    # machine that cannot use one for this says EBADF, and then the file has to be readable.
    for flags in (OpenFlag.PATH_ONLY, OpenFlag.READ):
        batch = Batch()
        before = batch.add(Stat(call.display))
        batch.add(Check(before.index, KindMask.FILE | KindMask.DIRECTORY))
        opened = batch.add(Open(call.display, flags))
        stat = batch.add(StatHandle(opened.handle))
        batch.add(Check(stat.index, KindMask.FILE | KindMask.DIRECTORY))
        step = batch.add(SetMode(opened.handle, mode))
        batch.add(Close(opened.handle))
        try:
            await call.run(batch)
            return
        except BatchFailed as failure:
            status = failure.error.status
            if (
                flags is OpenFlag.PATH_ONLY
                and failure.step == step.index
                and status in (errno.EBADF, errno.ENOENT)
            ):
                continue
            if status == CheckStatus.KIND:
                raise call.refusal(NotRegularFile, "it is neither a file nor a directory") from failure
            raise call.failure(failure) from failure


async def rename(call: Call, target: Location, *, replace: bool) -> None:
    if is_inside(call.display, target.display) and call.display != target.display:
        raise call.refusal(InvalidPath, "the target lies inside the source")
    batch = Batch()
    source = batch.add(Stat(call.display, follow=False))
    mode = RenameMode.REPLACE if replace else RenameMode.NO_REPLACE
    step = batch.add(Rename(call.display, target.display, mode))
    try:
        await call.run(batch)
        return
    except BatchFailed as failure:
        if failure.step == source.index:
            raise call.failure(failure) from failure
        if replace or failure.error.status not in CANNOT_RENAME_SO:
            raise _rename_error(call, target, failure) from failure
        stat = failure.results[source]
    del step
    await _rename_claimed(call, target, is_directory=stat.kind is KindMask.DIRECTORY)


async def _rename_claimed(call: Call, target: Location, *, is_directory: bool) -> None:
    """Rename without replacement on a file system that has no such call: the name is taken first, which only
    one can do, by a hard link or by an empty directory."""
    batch = Batch()
    if is_directory:
        batch.add(MakeDirectory(target.display, 0o700), undo=RemoveDirectory(target.display))
        batch.add(Rename(call.display, target.display))
    else:
        batch.add(Link(call.display, target.display), undo=Unlink(target.display))
        batch.add(Unlink(call.display))
    try:
        await call.run(batch)
    except BatchFailed as failure:
        raise _rename_error(call, target, failure) from failure


def _rename_error(call: Call, target: Location, failure: BatchFailed) -> FileError:
    status = failure.error.status
    if status == errno.ENOENT:
        return call.error(
            status, kind=FileMissing, text="the directory of the target does not exist", path=target.display
        )
    if status == errno.EEXIST:
        return call.error(
            status,
            kind=FileAlreadyExists,
            path=target.display,
            hint="ask for it to be replaced",
        )
    if status in (errno.ENOTEMPTY, errno.EISDIR):
        return call.error(status, path=target.display)
    if status == errno.ENOTDIR:
        text = "a directory cannot take the place of something that is none, nor lie below it"
        return call.error(status, text=text, path=target.display)
    return call.error(status)
