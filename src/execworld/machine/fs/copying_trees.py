"""Copy a tree below a new directory, relative to pinned directories on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import anyio

from execworld.machine.batch import (
    Batch,
    BatchFailed,
    Results,
    Step,
)
from execworld.machine.fs.access import Call
from execworld.machine.fs.beneath import CANNOT_RESOLVE, PINNED, add_open_beneath
from execworld.machine.fs.copying_content import COPY_BYTES, add_open_source, copy_content
from execworld.machine.fs.errors import kind_words
from execworld.machine.fs.paths import Location, join, name_of
from execworld.machine.fs.removing import empty_directory
from execworld.machine.operations import (
    Close,
    CopyRange,
    MakeDirectory,
    MakeSymlink,
    Open,
    OpenWalk,
    ReadLink,
    ReadWalk,
    RemoveDirectory,
    SetMode,
    SetTimes,
    StatHandle,
)
from execworld.machine.values import (
    CheckStatus,
    FileStat,
    Handle,
    HandleRef,
    KindMask,
    ListedEntry,
    OpenFlag,
)
from execworld.seams.errors import FileError, NotRegularFile, WorldError

_ENTRIES_A_BATCH: Final = 64
_CREATE: Final = OpenFlag.WRITE | OpenFlag.CREATE | OpenFlag.EXCLUSIVE | OpenFlag.NO_FOLLOW


async def copy_tree(call: Call, target: Location) -> None:
    """Copy the directory of *call* to *target*, which must be absent. What was copied is removed again on
    failure.
    """
    batch = Batch()
    opened = batch.add(Open(call.display, PINNED))
    stat = batch.add(StatHandle(opened.handle))
    walk = batch.add(OpenWalk(b".", base=opened.handle))
    made = batch.add(MakeDirectory(target.display, 0o700), undo=RemoveDirectory(target.display))
    copy = batch.add(Open(target.display, PINNED))
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        if failure.step < made.index:
            raise call.failure(failure) from failure
        raise call.error(failure.error.status, path=target.display) from failure
    tree = _Tree(call, target, results[opened], results[copy])
    complete = False
    try:
        directories = [(b"", results[stat]), *await tree.copy_below(results[walk])]
        await tree.finish(directories)
        complete = True
    finally:
        if not complete:
            await tree.remove()
        await call.access.release(results[walk], results[opened], results[copy])


class _Tree:
    def __init__(self, call: Call, target: Location, source: int, copy: int) -> None:
        self._call = call
        self._target = target
        self._source = source
        self._copy = copy

    async def copy_below(self, walk: int) -> list[tuple[bytes, FileStat]]:
        """Copy everything; gives the directories, each before its content."""
        directories: list[tuple[bytes, FileStat]] = []
        while True:
            batch = Batch()
            read = batch.add(ReadWalk(walk))
            page = (await self._call.run_plain(batch))[read]
            for path, status in page.errors:
                raise self._call.error(status, path=join(self._call.display, path))
            for parent, group in groupby(page.entries, lambda entry: entry.path.rpartition(b"/")[0]):
                await self._copy_group(parent, list(group))
            directories += (
                (entry.path, entry.stat) for entry in page.entries if entry.stat.kind is KindMask.DIRECTORY
            )
            if page.end:
                return directories

    async def finish(self, directories: Sequence[tuple[bytes, FileStat]]) -> None:
        """Give directories the bits and times of their sources, now that their content is complete."""
        for path, stat in reversed(directories):
            while True:
                batch = Batch()
                resolving = self._call.access.resolves_beneath
                pinned = add_open_beneath(batch, self._copy, path, resolving=resolving)
                opened = batch.add(Open(b".", OpenFlag.READ | OpenFlag.DIRECTORY, base=pinned))
                batch.add(SetTimes(opened.handle, stat.accessed_ns, stat.modified_ns))
                batch.add(SetMode(opened.handle, stat.mode & 0o777))
                batch.add(Close(opened.handle))
                if path:
                    batch.add(Close(pinned))
                if await self._try(batch, opened.index, {}):
                    break

    async def remove(self) -> None:
        """Remove what was copied so far."""
        cleaning = Call(self._call.access, self._call.op, "remove the incomplete copy", self._target)
        with anyio.CancelScope(shield=True):
            try:
                await empty_directory(cleaning, self._copy)
            except (FileError, BatchFailed, WorldError):
                return  # what made the copy fail is what the caller has to hear

    async def _copy_group(self, parent: bytes, entries: list[ListedEntry]) -> None:
        """Copy entries of one directory."""
        while True:
            batch = Batch()
            resolving = self._call.access.resolves_beneath
            source = add_open_beneath(batch, self._source, parent, resolving=resolving)
            copy = add_open_beneath(batch, self._copy, parent, resolving=resolving)
            results = await self._try(batch, len(batch.steps), {})
            if results is not None:
                break
        handles: list[int] = []
        for handle in (source, copy):
            if isinstance(handle, HandleRef):
                step: Step[int] = Step(handle.step)
                handles.append(results[step])
        pair = handles if handles else (self._source, self._copy)
        try:
            for start in range(0, len(entries), _ENTRIES_A_BATCH):
                await self._copy_entries(pair[0], pair[1], entries[start : start + _ENTRIES_A_BATCH])
        finally:
            await self._call.access.release(*handles)

    async def _copy_entries(self, source: int, copy: int, entries: list[ListedEntry]) -> None:
        batch, about = Batch(), dict[int, bytes]()
        links: list[tuple[bytes, Step[bytes]]] = []
        short: list[tuple[ListedEntry, Step[int]]] = []
        large: list[ListedEntry] = []
        for entry in entries:
            name, kind, first = name_of(entry.path), entry.stat.kind, len(batch.steps)
            if kind is KindMask.DIRECTORY:
                batch.add(MakeDirectory(name, 0o700, copy))
            elif kind is KindMask.SYMLINK:
                links.append((name, batch.add(ReadLink(name, source))))
            elif kind is not KindMask.FILE:
                path = join(self._call.display, entry.path)
                words = f"it is {kind_words(kind)}"
                raise self._call.error(CheckStatus.KIND, text=words, kind=NotRegularFile, path=path)
            elif entry.stat.size >= COPY_BYTES:
                large.append(entry)
            else:
                short.append((entry, _add_copy(batch, name, entry.stat, source, copy)))
            about |= dict.fromkeys(range(first, len(batch.steps)), entry.path)
        results = await self._try(batch, 0, about)
        assert results is not None
        batch = Batch()
        for name, text in links:
            batch.add(MakeSymlink(results[text], name, copy))
        # A copy may stop short of the end; then the rest is copied piece by piece.
        large += (entry for entry, rest in short if results[rest])
        await self._try(batch, 0, {})
        for entry in large:
            await self._copy_large(source, copy, entry)

    async def _copy_large(self, source: int, copy: int, entry: ListedEntry) -> None:
        name = name_of(entry.path)
        batch = Batch()
        opened, stat = add_open_source(batch, name, source)
        made = batch.add(Open(name, _CREATE & ~OpenFlag.EXCLUSIVE | OpenFlag.TRUNCATE, 0o600, copy))
        results = await self._try(batch, 0, dict.fromkeys(range(len(batch.steps)), entry.path))
        assert results is not None
        try:
            await copy_content(
                self._call, results[opened], results[made], join(self._target.display, entry.path)
            )
            found = results[stat]
            batch = Batch()
            batch.add(SetMode(results[made], found.mode & 0o777))
            batch.add(SetTimes(results[made], found.accessed_ns, found.modified_ns))
            await self._try(batch, 0, {})
        finally:
            await self._call.access.release(results[opened], results[made])

    async def _try(self, batch: Batch, opening: int, about: dict[int, bytes]) -> Results | None:
        """Run *batch*; None when its first *opening* steps, which open directories, have to be made another
        way.
        """
        call = self._call
        try:
            return await call.run(batch)
        except BatchFailed as failure:
            status = failure.error.status
            if failure.step < opening and status in CANNOT_RESOLVE and call.access.resolves_beneath:
                call.access.resolves_beneath = False
                return None
            path = about.get(failure.step)
            raise call.error(status, path=join(call.display, path) if path else None) from failure


def _add_copy(batch: Batch, name: bytes, found: FileStat, source: Handle, copy: Handle) -> Step[int]:
    """Copy a file; the result of the step is 0 when that was all of it."""
    opened, stat = add_open_source(batch, name, source)
    made = batch.add(Open(name, _CREATE, 0o600, copy))
    batch.add(CopyRange(opened.handle, made.handle, COPY_BYTES))
    rest = batch.add(CopyRange(opened.handle, made.handle, COPY_BYTES))
    batch.add(SetMode(made.handle, 0o600, mode_of=stat.index))
    batch.add(SetTimes(made.handle, found.accessed_ns, found.modified_ns))
    batch.add(Close(made.handle))
    batch.add(Close(opened.handle))
    return rest
