"""Directories for temporary files that show, to anybody, whether the world that made them is still there.

Whoever made one holds a lock on it (flock(2)), by a handle of the machine: when the process behind the machine is gone,
however it went, the kernel takes the lock away. No number of a process is involved, which another may have got.
"""

from __future__ import annotations

import errno
import re
import secrets
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.operations import (
    Close,
    ListDirectory,
    Lock,
    MakeDirectory,
    Open,
    RemoveDirectory,
    Stat,
)
from execworld.machine.values import KindMask, ListedEntry, OpenFlag
from execworld.seams.errors import ExecworldError
from execworld.seams.files import FileKind, WalkError
from execworld.seams.filesystem import FileSystem
from execworld.seams.paths import decode_path
from execworld.seams.provider import Leftover, LeftoverState
from execworld.seams.values import record

_NAME: Final = re.compile(rb"execworld-(world|spill)-[0-9a-f]{16}")
_NAME_ATTEMPTS: Final = 8
_REMOVAL_ATTEMPTS: Final = 32
_ANY_ERROR: Final = frozenset(range(1, 4096))
# Where directories cannot be locked nobody else can lock them either, so they are taken for used for ever.
_NO_LOCKS: Final = (errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOSYS, errno.EOPNOTSUPP)


class Use(StrEnum):
    """What a directory is for; a part of its name."""

    WORLD = "world"
    SPILL = "spill"


@record
class OwnedDirectory:
    """A directory that nobody sweeps away while *handle* is open."""

    path: bytes
    handle: int


async def make_owned(machine: Machine, root: bytes, use: Use, parts: Iterable[bytes] = ()) -> OwnedDirectory:
    """Make a directory of an unpredictable name in *root*, closed to others, with the directories *parts* in it.

    Raises:
        BatchFailed: it cannot be made; nothing is left behind.
    """
    for attempt in range(_NAME_ATTEMPTS):
        path = root.rstrip(b"/") + f"/execworld-{use}-{secrets.token_hex(8)}".encode()
        batch = Batch()
        batch.add(MakeDirectory(path, 0o700), undo=RemoveDirectory(path))
        opened = batch.add(Open(path, OpenFlag.READ | OpenFlag.DIRECTORY | OpenFlag.NO_FOLLOW))
        batch.add(Lock(opened.handle), tolerate=_NO_LOCKS)
        # A sweep may have had the lock, and removed the directory, before it was locked here.
        batch.add(Stat(path, follow=False))
        for part in parts:
            inner = path + b"/" + part
            batch.add(MakeDirectory(inner, 0o700), undo=RemoveDirectory(inner))
        try:
            return OwnedDirectory(path, (await machine.run(batch))[opened])
        except BatchFailed as failure:
            taken = failure.error.status in (errno.EEXIST, errno.EWOULDBLOCK)
            swept = failure.error.status == errno.ENOENT and failure.step > 0
            if not (taken or swept) or attempt + 1 == _NAME_ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


async def disown(machine: Machine, directory: OwnedDirectory) -> None:
    """Close the handle; what is left of the directory may be swept away from then on."""
    batch = Batch()
    batch.add(Close(directory.handle), tolerate=_ANY_ERROR)
    await machine.run(batch)


async def sweep_owned(machine: Machine, *, dry_run: bool) -> list[Leftover]:
    """Remove the directories of worlds that are gone, from all directories for temporary files of *machine*.

    Only those of the machine's own user: others' are theirs to remove.
    """
    found: list[Leftover] = []
    for root in machine.facts.temp_roots:
        base = root.rstrip(b"/") + b"/"
        for entry in await _listed(machine, root):
            if _NAME.fullmatch(entry.path) and entry.stat.kind == KindMask.DIRECTORY:
                if entry.stat.uid != machine.facts.uid:
                    found.append(
                        _leftover(base + entry.path, LeftoverState.KEPT, "it belongs to another user")
                    )
                else:
                    found.append(await _sweep(machine, base + entry.path, dry_run=dry_run))
    return found


async def remove_tree(machine: Machine, path: bytes) -> None:
    """Remove a directory with everything in it, also what tools have write-protected there.

    Raises:
        ExecworldError, OSError
    """
    from execworld.machine.fs import MachineFileSystem  # much code, which only the end of a cell needs

    fs = MachineFileSystem(machine, world_id="", view_id="", cwd="/", check=lambda op: None)
    await _remove(fs, decode_path(path))


async def _sweep(machine: Machine, path: bytes, *, dry_run: bool) -> Leftover:
    batch = Batch()
    opened = batch.add(Open(path, OpenFlag.READ | OpenFlag.DIRECTORY | OpenFlag.NO_FOLLOW))
    batch.add(Lock(opened.handle))
    try:
        handle = (await machine.run(batch))[opened]
    except BatchFailed as failure:
        number = failure.error.status
        if number == errno.EWOULDBLOCK:
            return _leftover(path, LeftoverState.KEPT, "its world is still there")
        if number in _NO_LOCKS:
            return _leftover(
                path, LeftoverState.KEPT, "nothing can be locked there, so its world may be there"
            )
        return _leftover(path, LeftoverState.FAILED, errno.errorcode.get(number, str(number)))
    gone = "its world is gone"
    try:
        if dry_run:
            return _leftover(path, LeftoverState.REMOVABLE, gone)
        # The lock is held meanwhile: whoever makes one of that name now sees it taken.
        await remove_tree(machine, path)
    except (ExecworldError, OSError) as error:
        return _leftover(path, LeftoverState.FAILED, str(error))
    finally:
        await disown(machine, OwnedDirectory(path, handle))
    return _leftover(path, LeftoverState.REMOVED, gone)


async def _listed(machine: Machine, root: bytes) -> list[ListedEntry]:
    batch = Batch()
    opened = batch.add(Open(root, OpenFlag.READ | OpenFlag.DIRECTORY))
    try:
        handle = (await machine.run(batch))[opened]
    except BatchFailed:
        return []  # what cannot be listed has nothing that could be removed
    entries: list[ListedEntry] = []
    try:
        while True:
            batch = Batch()
            listing = batch.add(ListDirectory(handle))
            page = (await machine.run(batch))[listing]
            entries += page.entries
            if page.end:
                return entries
    finally:
        await disown(machine, OwnedDirectory(root, handle))


async def _remove(fs: FileSystem, path: str) -> None:
    try:
        await fs.remove(path, recursive=True, missing_ok=True)
        return
    except PermissionError:
        pass
    # Tools write-protect directories in their caches; the owner may undo that, one level at a time.
    await fs.set_mode(path, 0o700)
    for _ in range(_REMOVAL_ATTEMPTS):
        shut: list[str] = []
        async for entry in fs.walk(path):
            if isinstance(entry, WalkError) or entry.kind is FileKind.DIRECTORY:
                shut.append(entry.path)
        for directory in shut:
            await fs.set_mode(directory, 0o700)
        try:
            await fs.remove(path, recursive=True, missing_ok=True)
            return
        except PermissionError:
            continue
    await fs.remove(path, recursive=True, missing_ok=True)


def _leftover(path: bytes, state: LeftoverState, reason: str) -> Leftover:
    return Leftover("directory", decode_path(path), state, reason)
