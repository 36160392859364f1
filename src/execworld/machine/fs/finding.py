"""Listings, walks and globs."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterable
from typing import Final

from execworld.machine.batch import Batch, BatchFailed, Step
from execworld.machine.fs.access import Call
from execworld.machine.fs.beneath import PINNED
from execworld.machine.fs.errors import error_class
from execworld.machine.fs.information import directory_entry
from execworld.machine.operations import (
    Close,
    ListDirectory,
    Open,
    OpenWalk,
    ReadWalk,
    RealPath,
)
from execworld.machine.values import (
    HandleRef,
    KindMask,
    ListedEntry,
    OpenFlag,
    WalkPage,
)
from execworld.seams.errors import FileError, NotDirectory
from execworld.seams.files import DirectoryEntry, WalkError
from execworld.seams.paths import decode_path, encode_path
from execworld.seams.patterns import Glob

_LISTS_A_BATCH: Final = 4
_NOT_A_DIRECTORY: Final = frozenset({errno.ENOTDIR, errno.ELOOP})


async def list_directory(call: Call) -> list[DirectoryEntry]:
    batch = Batch()
    opened = batch.add(Open(call.display, OpenFlag.READ | OpenFlag.DIRECTORY))
    listed = batch.add(ListDirectory(opened.handle))
    batch.add(Close(opened.handle))
    page = (await call.run_plain(batch))[listed]
    directory = _prefix(call)
    if page.end:
        entries = [directory_entry(directory, entry) for entry in page.entries]
    else:
        entries = await _list_large(call, directory)
    entries.sort(key=lambda entry: entry.name)
    return entries


async def _list_large(call: Call, directory: str) -> list[DirectoryEntry]:
    """A directory of more than one page, begun anew with a handle that stays open."""
    entries: list[DirectoryEntry] = []
    batch = Batch()
    opened = batch.add(Open(call.display, OpenFlag.READ | OpenFlag.DIRECTORY))
    handle = (await call.run_plain(batch))[opened]
    try:
        end = False
        while not end:
            batch = Batch()
            pages = [batch.add(ListDirectory(handle)) for _ in range(_LISTS_A_BATCH)]
            results = await call.run_plain(batch)
            for step in pages:
                page = results[step]
                entries += (directory_entry(directory, entry) for entry in page.entries)
                end = page.end
    finally:
        await call.access.release(handle)
    return entries


def _prefix(call: Call) -> str:
    return "" if call.display == b"/" else call.location.text


class Walk:
    """Everything below a directory. Not an async generator, so that leaving it early leaves nothing to
    finalise.
    """

    def __init__(self, call: Call, prune: Iterable[str], max_depth: int | None) -> None:
        if max_depth is not None and max_depth < 1:
            message = "max_depth must be at least 1"
            raise ValueError(message)
        self._call = call
        self._prune = tuple(encode_path(name) for name in prune)
        self._max_depth = max_depth or 0
        self._entries: deque[DirectoryEntry | WalkError] = deque()
        self._handle: int | None = None
        self._started = self._end = False

    def __aiter__(self) -> Walk:
        return self

    async def __anext__(self) -> DirectoryEntry | WalkError:
        while not self._entries:
            if self._end:
                await self.aclose()
                raise StopAsyncIteration
            await self._read()
        return self._entries.popleft()

    async def aclose(self) -> None:
        self._end = True
        handle, self._handle = self._handle, None
        if handle is not None:
            await self._call.access.release(handle)

    def __del__(self) -> None:
        if self._handle is not None:
            self._call.access.dropped.append(self._handle)

    async def _read(self) -> None:
        call = self._call
        batch = Batch()
        opened: Step[int] | None = None
        if self._handle is None:
            real = batch.add(RealPath(call.display))
            opened = batch.add(OpenWalk(real.path, self._prune, self._max_depth))
            read = batch.add(ReadWalk(opened.handle))
        else:
            read = batch.add(ReadWalk(self._handle))
        try:
            results = await call.run(batch)
        except BatchFailed as failure:
            self._end = True
            raise walk_error(call, failure) from failure
        if opened is not None:
            self._handle = results[opened]
        page = results[read]
        directory = _prefix(call)
        self._entries += (directory_entry(directory, entry) for entry in page.entries)
        self._entries += (
            WalkError(f"{directory}/{decode_path(path)}" if path else call.location.text, walk_code(status))
            for path, status in page.errors
        )
        if page.end:
            await self.aclose()


def walk_code(status: int) -> str:
    return str(error_class(status).code)


def walk_error(call: Call, failure: BatchFailed) -> FileError:
    if failure.error.status in _NOT_A_DIRECTORY:
        return call.error(failure.error.status, kind=NotDirectory)
    return call.failure(failure)


async def glob(call: Call, pattern: str, prune: Iterable[str]) -> list[DirectoryEntry]:
    parsed = Glob(pattern)
    pruned = {encode_path(name) for name in prune}
    prefix = [encode_path(name) for name in parsed.prefix]
    handle, page = await _open_below(call, prefix, tuple(pruned), parsed.max_depth)
    if handle is None or not pruned.isdisjoint(prefix):
        return []
    found: list[DirectoryEntry] = []
    directory, base = _prefix(call), b"".join(name + b"/" for name in prefix)
    try:
        while True:
            for entry in page.entries:
                path = base + entry.path
                is_directory = entry.stat.kind is KindMask.DIRECTORY
                if parsed.matches(decode_path(path), is_directory=is_directory):
                    listed = ListedEntry(path, entry.stat, entry.target_kind)
                    found.append(directory_entry(directory, listed))
            if page.end:
                break
            batch = Batch()
            read = batch.add(ReadWalk(handle))
            page = (await call.run_plain(batch))[read]
    finally:
        await call.access.release(handle)
    found.sort(key=lambda entry: entry.path)
    return found


async def _open_below(
    call: Call, names: list[bytes], prune: tuple[bytes, ...], max_depth: int
) -> tuple[int | None, WalkPage]:
    """Begin a walk at the directory *names* below the root. No link is followed to it, as a walk from the
    root would not follow one either; without it, nothing is found."""
    batch = Batch()
    real = batch.add(RealPath(call.display))
    root = batch.add(Open(real.path, PINNED))
    directory = root
    for name in names:
        directory = batch.add(Open(name, PINNED, base=directory.handle))
    walk = batch.add(OpenWalk(b".", prune, max_depth, directory.handle))
    read = batch.add(ReadWalk(walk.handle))
    for index in range(root.index, directory.index + 1):
        batch.add(Close(HandleRef(index)))
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        below_root = root.index < failure.step <= directory.index
        if below_root and failure.error.status in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return None, WalkPage((), (), end=True)
        raise walk_error(call, failure) from failure
    return results[walk], results[read]
