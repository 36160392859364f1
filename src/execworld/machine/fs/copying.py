"""Copy files, links and trees inside one world; the content never leaves it.

A single file or link is made under a private name beside the target and takes its name by a rename. A tree is
copied below a new directory, relative to pinned directories on both sides, and removed again when it cannot
be completed.
"""

from __future__ import annotations

import errno

from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.fs.access import Call
from execworld.machine.fs.copying_content import add_open_source, copy_content
from execworld.machine.fs.copying_trees import copy_tree
from execworld.machine.fs.errors import kind_words
from execworld.machine.fs.paths import Location, is_inside
from execworld.machine.fs.publication import AFTER_PUBLICATION, CANNOT_RENAME_SO, CANNOT_SYNC, temporary_name
from execworld.machine.operations import (
    Check,
    Close,
    Link,
    MakeSymlink,
    Open,
    ReadLink,
    RealPath,
    Rename,
    SetMode,
    SetTimes,
    Stat,
    Sync,
    Unlink,
)
from execworld.machine.values import (
    CheckStatus,
    FileStat,
    Handle,
    KindMask,
    OpenFlag,
    RenameMode,
)
from execworld.seams.errors import FileAlreadyExists, FileError, InvalidPath, NotRegularFile


async def copy(call: Call, target: Location, *, recursive: bool, replace: bool) -> None:
    batch = Batch()
    stat = batch.add(Stat(call.display, follow=False))
    link = batch.add(ReadLink(call.display), tolerate=(errno.EINVAL,))
    # A link that leads nowhere, or round, is copied all the same.
    real_source = batch.add(
        RealPath(call.display), tolerate=(errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EACCES)
    )
    real_target = batch.add(RealPath(target.display, missing_ok=True), tolerate=(errno.ELOOP,))
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        if failure.step == real_target.index:
            raise call.error(failure.error.status, path=target.display) from failure
        raise call.failure(failure) from failure
    kind = results[stat].kind
    if kind is KindMask.SYMLINK:
        text = results.get(link)
        if text is None:
            raise call.error(errno.ESTALE, text="it changed while it was looked at")
        await _copy_link(call, target, text, replace=replace)
    elif kind is KindMask.FILE:
        await _copy_file(call, target, replace=replace)
    elif kind is not KindMask.DIRECTORY:
        raise call.refusal(NotRegularFile, f"it is {kind_words(kind)}")
    elif not recursive:
        raise call.refusal(NotRegularFile, "it is a directory", hint="ask for a recursive copy")
    else:
        origin, canonical = results.get(real_source), results.get(real_target)
        if (
            origin is not None
            and canonical is not None
            and canonical != origin
            and is_inside(origin, canonical)
        ):
            raise call.refusal(InvalidPath, "the target lies inside the source")
        await copy_tree(call, target)


# One file or link


class _Publication:
    """A private name beside the target, and the rename that gives it the target's."""

    def __init__(self, call: Call, target: Location, *, replace: bool) -> None:
        self.call = call
        self.target = target
        self.replace = replace
        self.no_replace = True
        self.temporary = temporary_name()

    def add(self, batch: Batch, parent: Handle) -> int:
        """Add the steps of publication. Gives the index of the deciding one."""
        name = self.target.name
        if self.replace:
            return batch.add(Rename(self.temporary, name, RenameMode.REPLACE, parent, parent)).index
        if self.no_replace:
            return batch.add(Rename(self.temporary, name, RenameMode.NO_REPLACE, parent, parent)).index
        step = batch.add(Link(self.temporary, name, parent, parent))
        batch.add(Unlink(self.temporary, parent), tolerate=AFTER_PUBLICATION)
        return step.index

    def error(self, failure: BatchFailed) -> FileError:
        status, path = failure.error.status, self.target.display
        if status == errno.EEXIST or (status in (errno.EISDIR, errno.ENOTEMPTY) and not self.replace):
            hint = "ask for it to be replaced"
            return self.call.error(errno.EEXIST, kind=FileAlreadyExists, path=path, hint=hint)
        return self.call.error(status, path=path)

    def fall_back(self, failure: BatchFailed) -> bool:
        if self.replace or not self.no_replace or failure.error.status not in CANNOT_RENAME_SO:
            return False
        self.no_replace = False
        return True


async def _copy_link(call: Call, target: Location, text: bytes, *, replace: bool) -> None:
    publication = _Publication(call, target, replace=replace)
    while True:
        batch = Batch()
        parent = batch.add(Open(target.parent, OpenFlag.READ | OpenFlag.DIRECTORY))
        batch.add(
            MakeSymlink(text, publication.temporary, parent.handle),
            undo=Unlink(publication.temporary, parent.handle),
        )
        decided = publication.add(batch, parent.handle)
        batch.add(Sync(parent.handle), tolerate=AFTER_PUBLICATION)
        batch.add(Close(parent.handle), tolerate=AFTER_PUBLICATION)
        try:
            await call.run(batch)
            return
        except BatchFailed as failure:
            if failure.step == decided and publication.fall_back(failure):
                continue
            raise publication.error(failure) from failure


async def _copy_file(call: Call, target: Location, *, replace: bool) -> None:
    publication = _Publication(call, target, replace=replace)
    batch = Batch()
    source, stat = add_open_source(batch, call.display, None)
    if not replace:
        # Only to fail before the content is copied; the rename decides.
        exists = batch.add(Stat(target.display, follow=False), tolerate=(errno.ENOENT,))
        batch.add(Check(exists.index, KindMask.ABSENT))
    parent = batch.add(Open(target.parent, OpenFlag.READ | OpenFlag.DIRECTORY))
    copy = batch.add(
        Open(
            publication.temporary,
            OpenFlag.WRITE | OpenFlag.CREATE | OpenFlag.EXCLUSIVE | OpenFlag.NO_FOLLOW,
            0o600,
            parent.handle,
        ),
        undo=Unlink(publication.temporary, parent.handle),
    )
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        if failure.step <= stat.index + 1:
            raise call.failure(failure) from failure
        if failure.error.status == CheckStatus.KIND:
            hint = "ask for it to be replaced"
            raise call.error(errno.EEXIST, path=target.display, hint=hint) from failure
        raise publication.error(failure) from failure
    handles = (results[source], results[copy], results[parent])
    published = False
    try:
        await copy_content(call, handles[0], handles[1], target.display)
        await _finish_file(call, publication, handles[1], handles[2], results[stat])
        published = True
    finally:
        if not published:
            cleaning = Batch()
            cleaning.add(Unlink(publication.temporary, handles[2]))
            await call.access.clean_up(cleaning)
        await call.access.release(*handles)


async def _finish_file(call: Call, publication: _Publication, copy: int, parent: int, stat: FileStat) -> None:
    while True:
        batch = Batch()
        batch.add(SetMode(copy, stat.mode & 0o777))
        batch.add(SetTimes(copy, stat.accessed_ns, stat.modified_ns))
        batch.add(Sync(copy), tolerate=CANNOT_SYNC)
        decided = publication.add(batch, parent)
        batch.add(Sync(parent), tolerate=AFTER_PUBLICATION)
        try:
            await call.run(batch)
            return
        except BatchFailed as failure:
            if failure.step == decided and publication.fall_back(failure):
                continue
            raise publication.error(failure) from failure
