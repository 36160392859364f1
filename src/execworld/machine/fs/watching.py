"""Events below a directory, from raw events of single directories.

A machine watches one directory at a time, so each directory is watched before it is listed: whatever is made
in between is seen by one or the other. What is found in a directory that appeared later is reported as
created. The names that exist are kept, since raw events do not tell a replaced file from a new one.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from execworld.machine.base import WatchRecord
from execworld.machine.batch import Batch, BatchFailed, Step
from execworld.machine.fs.access import Call
from execworld.machine.fs.paths import join
from execworld.machine.fs.publication import TEMPORARY_PREFIX
from execworld.machine.operations import (
    AddWatch,
    ListDirectory,
    Open,
    OpenWatch,
    RealPath,
    RemoveWatch,
    Stat,
)
from execworld.machine.values import DirectoryPage, KindMask, OpenFlag
from execworld.seams.errors import FileError, NotDirectory, Unsupported
from execworld.seams.files import WatchEvent, WatchEventKind
from execworld.seams.paths import decode_path

_CHANGE: Final = 0x2 | 0x4 | 0x8  # MODIFY, ATTRIB, CLOSE_WRITE
_MOVED_FROM: Final = 0x40
_ARRIVAL: Final = 0x80 | 0x100  # MOVED_TO, CREATE
_DELETE: Final = 0x200
_SELF_GONE: Final = 0x400 | 0x800  # DELETE_SELF, MOVE_SELF
_OVERFLOW: Final = 0x4000
_IGNORED: Final = 0x8000
_IS_DIRECTORY: Final = 0x40000000

_DIRECTORIES_A_BATCH: Final = 32
_GONE: Final = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EBADF)


class Watch:
    """The events. Iterating it in two tasks at once is an error."""

    def __init__(self, call: Call, handle: int, root: bytes, *, recursive: bool) -> None:
        self._call = call
        self._handle = handle
        self._root = root
        self._recursive = recursive
        self._paths: dict[int, bytes] = {}  # relative path of a watched directory by watch number
        self._watches: dict[bytes, int] = {}
        self._names: dict[int, set[bytes]] = {}
        self._events: deque[WatchEvent] = deque()
        self._end = False

    def __aiter__(self) -> Watch:
        return self

    async def __anext__(self) -> WatchEvent:
        while not self._events:
            if self._end:
                raise StopAsyncIteration
            records = await self._call.access.machine.read_watch(self._handle)
            await self._process(records)
        return self._events.popleft()

    async def add(self, directories: Iterable[bytes], *, report: bool) -> None:
        """Watch *directories*, given relative to the root, and with recursion all below them."""
        pending = deque(directories)
        while pending:
            chunk = [pending.popleft() for _ in range(min(_DIRECTORIES_A_BATCH, len(pending)))]
            for directory, names, below in await self._watch_and_list(chunk):
                if report:
                    for name in names:
                        self._report(WatchEventKind.CREATED, _below(directory, name))
                if self._recursive:
                    pending += (_below(directory, name) for name in below)

    async def _watch_and_list(self, directories: list[bytes]) -> list[tuple[bytes, list[bytes], list[bytes]]]:
        """Directories with the names that were not known in them, and those names that are directories."""
        batch = Batch()
        steps: list[tuple[bytes, Step[int], Step[int], Step[DirectoryPage]]] = []
        for directory in directories:
            path = self._absolute(directory)
            # The root must be there; anything else may have gone.
            tolerate = _GONE if directory else ()
            added = batch.add(AddWatch(self._handle, path), tolerate=tolerate)
            flags = OpenFlag.READ | OpenFlag.DIRECTORY | OpenFlag.NO_FOLLOW
            opened = batch.add(Open(path, flags), tolerate=tolerate)
            listed = batch.add(ListDirectory(opened.handle), tolerate=tolerate)
            steps.append((directory, added, opened, listed))
        try:
            results = await self._call.run(batch)
        except BatchFailed as failure:
            raise _watch_error(self._call, failure) from failure
        found: list[tuple[bytes, list[bytes], list[bytes]]] = []
        for directory, added, opened, listed in steps:
            watch, page, handle = results.get(added), results.get(listed), results.get(opened)
            if handle is not None:
                pages = [page] if page is not None else []
                try:
                    while pages and not pages[-1].end:
                        batch = Batch()
                        more = batch.add(ListDirectory(handle))
                        pages.append((await self._call.run_plain(batch))[more])
                finally:
                    await self._call.access.release(handle)
                if watch is not None:
                    found.append((directory, *self._note(directory, watch, pages)))
        return found

    def _note(
        self, directory: bytes, watch: int, pages: list[DirectoryPage]
    ) -> tuple[list[bytes], list[bytes]]:
        self._paths[watch] = directory
        self._watches[directory] = watch
        known = self._names.setdefault(watch, set())
        entries = [entry for page in pages for entry in page.entries]
        new = [entry.path for entry in entries if entry.path not in known and not _is_temporary(entry.path)]
        known.update(new)
        below = [entry.path for entry in entries if entry.stat.kind is KindMask.DIRECTORY]
        return new, below

    async def _process(self, records: tuple[WatchRecord, ...]) -> None:
        stays = await self._exchanged(records)
        for position, record in enumerate(records):
            if record.watch < 0 or record.mask & _OVERFLOW:
                await self._overflow()
                continue
            directory = self._paths.get(record.watch)
            if directory is None:
                continue
            if record.mask & _IGNORED:
                self._forget(record.watch)
            elif record.mask & _SELF_GONE:
                if not directory:
                    self._report(WatchEventKind.REMOVED, b"")
                    self._end = True
            elif record.name and not _is_temporary(record.name):
                await self._entry(record, directory, stays=position in stays)

    async def _exchanged(self, records: tuple[WatchRecord, ...]) -> set[int]:
        """Positions of departures whose name exists all the same: it was exchanged, which looks like an
        arrival that is followed by a departure."""
        batch, steps = Batch(), list[tuple[int, Step[object]]]()
        for position, record in enumerate(records):
            directory = self._paths.get(record.watch)
            if record.mask & _MOVED_FROM and directory is not None and not _is_temporary(record.name):
                path = self._absolute(_below(directory, record.name))
                steps.append((position, batch.add(Stat(path, follow=False), tolerate=_GONE)))
        if not steps:
            return set()
        results = await self._call.run_plain(batch)
        return {position for position, step in steps if results.get(step) is not None}

    async def _entry(self, record: WatchRecord, directory: bytes, *, stays: bool) -> None:
        path = _below(directory, record.name)
        known = self._names.setdefault(record.watch, set())
        if record.mask & _ARRIVAL:
            kind = WatchEventKind.CHANGED if record.name in known else WatchEventKind.CREATED
            known.add(record.name)
            self._report(kind, path)
            if self._recursive and record.mask & _IS_DIRECTORY:
                await self._add_later(path)
        elif record.mask & (_MOVED_FROM | _DELETE):
            if stays:
                self._report(WatchEventKind.CHANGED, path)
                return
            if record.name in known:
                known.discard(record.name)
                self._report(WatchEventKind.REMOVED, path)
            if record.mask & _IS_DIRECTORY:
                await self._drop(path)
        elif record.mask & _CHANGE and record.name in known:
            self._report(WatchEventKind.CHANGED, path)

    async def _add_later(self, path: bytes) -> None:
        try:
            await self.add([path], report=True)
        except FileError:
            # Not all of it can be watched (any more): whoever listens has to look for himself.
            self._report(WatchEventKind.OVERFLOW, b"")

    async def _drop(self, path: bytes) -> None:
        """Stop watching a directory that was moved away, and all below it."""
        gone = [name for name in self._watches if name == path or name.startswith(path + b"/")]
        batch = Batch()
        for name in gone:
            watch = self._watches[name]
            batch.add(RemoveWatch(self._handle, watch), tolerate=(errno.EINVAL,))
            self._forget(watch)
        if gone:
            await self._call.run_plain(batch)

    async def _overflow(self) -> None:
        self._report(WatchEventKind.OVERFLOW, b"")
        try:
            await self.add([b""], report=False)
        except FileError:
            self._end = True

    def _forget(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        self._names.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]

    def _report(self, kind: WatchEventKind, path: bytes) -> None:
        event = WatchEvent(kind, decode_path(join(self._call.display, path) if path else self._call.display))
        if not self._events or self._events[-1] != event:
            self._events.append(event)

    def _absolute(self, path: bytes) -> bytes:
        return join(self._root, path) if path else self._root


@asynccontextmanager
async def watch(call: Call, *, recursive: bool) -> AsyncGenerator[Watch]:
    batch = Batch()
    real = batch.add(RealPath(call.display))
    opened = batch.add(OpenWatch())
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        if failure.error.status in (errno.ENOSYS, errno.EOPNOTSUPP):
            message = "this world cannot watch files"
            raise Unsupported(message, op=call.op, world=call.access.world_id) from failure
        raise call.failure(failure) from failure
    handle = results[opened]
    try:
        events = Watch(call, handle, results[real], recursive=recursive)
        await events.add([b""], report=False)
        yield events
    finally:
        await call.access.release(handle)


def _watch_error(call: Call, failure: BatchFailed) -> FileError:
    status = failure.error.status
    if status == errno.ENOSPC:
        text = "the world's number of watched directories is used up"
        hint = "raise fs.inotify.max_user_watches, or watch a smaller tree"
        return call.error(status, kind=FileError, text=text, hint=hint)
    if status in (errno.ENOTDIR, errno.ELOOP):
        return call.error(status, kind=NotDirectory)
    return call.failure(failure)


def _below(directory: bytes, name: bytes) -> bytes:
    return directory + b"/" + name if directory else name


def _is_temporary(name: bytes) -> bool:
    return name.startswith(TEMPORARY_PREFIX)
