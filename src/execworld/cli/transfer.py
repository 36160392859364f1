"""Copy files and trees from the file system of one world to that of another."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final, Protocol

from execworld.seams import (
    DirectoryEntry,
    Expectation,
    FileAlreadyExists,
    FileError,
    FileInfo,
    FileKind,
    FileMissing,
    FileSystem,
    FileTarget,
    NoSpace,
    NotDirectory,
    NotRegularFile,
    decode_path,
    printable_path,
)
from execworld.seams.values import record

_PERMISSIONS: Final = 0o777
_SPECIAL_BITS: Final = 0o7000
_MODE_WHILE_FILLED: Final = 0o700


class Progress(Protocol):
    """Told what is going on."""

    def begin(self, path: str, size_bytes: int) -> None: ...

    def advance(self, size_bytes: int) -> None: ...


@record
class Loss:
    """Something that did not arrive, and why."""

    path: str
    reason: str


@record
class _Directory:
    """A directory that is yet to be copied, or one whose content has been and that gets its final mode."""

    source: str
    target: str
    info: FileInfo | None
    final_mode: int | None = None


@dataclass(slots=True)
class Transfer:
    """One copy from *source* to *target*.

    A file appears whole or not at all. Permission bits are kept; set-uid, set-gid and sticky bits are not, because a
    file from another world must not gain rights in this one. Links are copied as links, after everything else, so that
    nothing is ever written through a link that came from the source.

    Attributes:
        losses: What did not arrive.
        notes: What arrived changed.
    """

    source: FileSystem
    target: FileSystem
    progress: Progress
    losses: list[Loss] = field(default_factory=list[Loss])
    notes: list[Loss] = field(default_factory=list[Loss])
    _links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    async def copy(self, source: bytes, target: bytes, *, recursive: bool, into: bool = False) -> None:
        """Copy *source* to *target*, or to its own name inside when that is a directory.

        Args:
            source: File or directory; a link stands for what it leads to.
            target: Where to.
            recursive: A directory is copied with its content. An existing one is added to.
            into: *target* must be a directory.

        Raises:
            FileMissing, NotRegularFile: of the source.
            NotDirectory: *into*, and it is none.
            FileError: a single file could not be copied. In a tree that is a loss instead.
        """
        start = await self.source.resolve(source)
        info = await self.source.stat(start)
        if info is None:
            raise FileMissing(f"no such file: {printable_path(source)}", path=decode_path(source))
        place = await self._place(start, target, into=into)
        if info.kind is FileKind.DIRECTORY:
            if not recursive:
                message = f"{printable_path(source)} is a directory"
                raise NotRegularFile(message, path=decode_path(source), hint="copy it with -r")
            await self._copy_tree(start.process_path, place, info)
        elif info.kind is FileKind.FILE:
            await self._copy_file(start.process_path, place, info, None)
        else:
            message = f"{printable_path(source)} is a {info.kind}, not a file"
            raise NotRegularFile(message, path=decode_path(source))

    async def _place(self, start: FileTarget, target: bytes, *, into: bool) -> str:
        place = await self.target.resolve(target)
        found = await self.target.stat(place)
        if found is not None and found.kind is FileKind.DIRECTORY:
            name = posixpath.basename(start.display_path) or posixpath.basename(start.process_path)
            return posixpath.join(place.process_path, name) if name else place.process_path
        if into or target.endswith(b"/"):
            raise NotDirectory(f"no such directory: {printable_path(target)}", path=decode_path(target))
        return place.process_path

    async def _copy_tree(self, source: str, target: str, info: FileInfo) -> None:
        pending = [_Directory(source, target, info)]
        while pending:
            directory = pending.pop()
            if directory.info is None:
                if directory.final_mode is not None:
                    await self.target.set_mode(directory.target, directory.final_mode)
                continue
            try:
                created = await self._make_directory(directory.target)
                entries = await self.source.list_directory(directory.source)
            except NoSpace:
                raise
            except FileError as error:
                self._lose(directory.source, error)
                continue
            self._note_dropped_bits(directory.source, directory.info)
            if created:
                mode = directory.info.mode & _PERMISSIONS
                pending.append(_Directory(directory.source, directory.target, None, mode))
            pending += await self._copy_entries(directory, entries)
        for link, place in self._links:
            await self._copy_link(link, place)
        self._links.clear()

    async def _copy_entries(self, directory: _Directory, entries: list[DirectoryEntry]) -> list[_Directory]:
        below: list[_Directory] = []
        for entry in entries:
            source = posixpath.join(directory.source, entry.name)
            if "/" in entry.name or entry.name in ("", ".", ".."):
                self.losses.append(Loss(directory.source, "a name in it is no name"))
                continue
            target = posixpath.join(directory.target, entry.name)
            if entry.kind is FileKind.DIRECTORY:
                below.append(_Directory(source, target, entry.info))
            elif entry.kind is FileKind.SYMLINK:
                self._links.append((source, target))
            elif entry.kind is FileKind.FILE:
                await self._try_file(source, target, entry.info)
            else:
                self.losses.append(Loss(source, f"a {entry.kind} cannot be copied"))
        return below

    async def _try_file(self, source: str, target: str, info: FileInfo) -> None:
        try:
            await self._copy_file(source, target, info, await self._expectation(target))
        except NoSpace:
            raise
        except FileError as error:
            self._lose(source, error)

    async def _expectation(self, target: str) -> Expectation:
        """What the write demands of the target, so that it replaces nothing that was not seen here."""
        found = await self.target.lstat(target)
        if found is None:
            return "absent"
        if found.kind is not FileKind.FILE:
            message = f"{printable_path(target)} exists and is a {found.kind}"
            raise FileAlreadyExists(message, path=target)
        return found.version

    async def _copy_file(self, source: str, target: str, info: FileInfo, expected: Expectation) -> None:
        self.progress.begin(source, info.size_bytes)
        async with self.source.open_reader(source) as chunks:
            await self.target.write_stream(
                target, self._counted(chunks), expected=expected, mode=info.mode & _PERMISSIONS, parents=False
            )
        self._note_dropped_bits(source, info)

    async def _counted(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            yield chunk
            self.progress.advance(len(chunk))

    async def _make_directory(self, target: str) -> bool:
        """Whether it was created; False when a real directory was there."""
        found = await self.target.lstat(target)
        if found is None:
            await self.target.make_directory(target, parents=False, exist_ok=False, mode=_MODE_WHILE_FILLED)
            return True
        if found.kind is FileKind.DIRECTORY:
            return False
        raise FileAlreadyExists(f"{printable_path(target)} exists and is a {found.kind}", path=target)

    async def _copy_link(self, source: str, target: str) -> None:
        try:
            text = await self.source.read_link(source)
            found = await self.target.lstat(target)
            is_link = found is not None and found.kind is FileKind.SYMLINK
            if not is_link or await self.target.read_link(target) != text:
                await self.target.make_symlink(target, text)
        except NoSpace:
            raise
        except FileError as error:
            self._lose(source, error)

    def _lose(self, source: str, error: FileError) -> None:
        self.losses.append(Loss(source, error.message))

    def _note_dropped_bits(self, source: str, info: FileInfo) -> None:
        if info.mode & _SPECIAL_BITS:
            self.notes.append(Loss(source, f"mode {info.mode:04o} became {info.mode & _PERMISSIONS:04o}"))
