"""`MachineFileSystem`: the file system seam over any machine."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.denials import PolicyRules
from execworld.machine.fs import (
    copying,
    directories,
    editing,
    finding,
    paths,
    reading,
    removing,
    watching,
)
from execworld.machine.fs.access import Call, FileAccess
from execworld.machine.fs.errors import MOVED_HINT
from execworld.machine.fs.information import file_info, file_version, version_demand
from execworld.machine.fs.paths import Location
from execworld.machine.fs.pieces import StreamPieces
from execworld.machine.fs.text import TextError, decode_text, encode_text, exact_encoding, with_line_feeds
from execworld.machine.fs.write_plan import Demand
from execworld.machine.fs.writing import (
    AtomicWrite,
    Published,
    write_outcome,
)
from execworld.machine.operations import (
    Read,
    ReadLink,
    RealPath,
    Stat,
    StatFileSystem,
)
from execworld.machine.values import MAX_TRANSFER_BYTES, CheckStatus
from execworld.seams.errors import (
    EditNotFound,
    InvalidPath,
    NotRegularFile,
    NotText,
    StaleVersion,
    TooLarge,
)
from execworld.seams.files import (
    DirectoryEntry,
    EditOutcome,
    Expectation,
    FileInfo,
    FileSystemSpace,
    FileTarget,
    FileVersion,
    WalkError,
    WatchEvent,
    WriteOutcome,
)
from execworld.seams.filesystem import DEFAULT_READ_LIMIT_BYTES, FileSystem
from execworld.seams.paths import WorldPath, decode_path, encode_path

_EDIT_ATTEMPTS: Final = 16
_NOTHING: Final = (errno.ENOENT, errno.ENOTDIR)


class MachineFileSystem(FileSystem):
    """The files of one view of one world.

    Args:
        machine: Where the operations are executed.
        world_id: Identity of the world.
        view_id: Identity of the view.
        cwd: Absolute directory that relative paths start at.
        check: Called with the name of each operation before it begins; raises when the world is closed or its
            policy is not enforced.
        rules: What the policy of a confined view says of paths, to tell its denials from others.
    """

    def __init__(
        self,
        machine: Machine,
        *,
        world_id: str,
        view_id: str,
        cwd: str,
        check: Callable[[str], None],
        rules: PolicyRules | None = None,
    ) -> None:
        self._access = FileAccess(
            machine, world_id=world_id, view_id=view_id, cwd=encode_path(cwd), check=check, rules=rules
        )

    @property
    def world_id(self) -> str:
        return self._access.world_id

    @property
    def view_id(self) -> str:
        return self._access.view_id

    # Paths

    async def resolve(self, path: WorldPath | FileTarget, *, cwd: WorldPath | None = None) -> FileTarget:
        access = self._access
        start = None
        if cwd is not None:
            start = access.call("fs.resolve", "resolve", cwd).display
        call = access.call("fs.resolve", "resolve", path, cwd=start)
        batch = Batch()
        step = batch.add(RealPath(call.display, missing_ok=True))
        try:
            canonical = (await call.run(batch))[step]
        except BatchFailed as failure:
            raise reading.read_error(call, failure) from failure
        return FileTarget(
            display_path=call.location.text,
            process_path=decode_path(canonical),
            key=paths.target_key(access.world_id, canonical),
            world_id=access.world_id,
        )

    def file_url(self, target: FileTarget) -> str:
        self._access.check_target("fs.file_url", target)
        return paths.file_url(target.process_path)

    def contains(self, parent: FileTarget, child: FileTarget) -> bool:
        for target in (parent, child):
            self._access.check_target("fs.contains", target)
        return paths.is_inside(encode_path(parent.process_path), encode_path(child.process_path))

    # Metadata

    async def stat(self, path: WorldPath | FileTarget) -> FileInfo | None:
        return await self._stat(self._access.call("fs.stat", "look at", path), follow=True)

    async def lstat(self, path: WorldPath | FileTarget) -> FileInfo | None:
        return await self._stat(self._access.call("fs.lstat", "look at", path), follow=False)

    async def _stat(self, call: Call, *, follow: bool) -> FileInfo | None:
        batch = Batch()
        step = batch.add(Stat(call.display, follow), tolerate=_NOTHING)
        stat = (await call.run_plain(batch)).get(step)
        return None if stat is None else file_info(call.location.text, stat)

    async def read_link(self, path: WorldPath | FileTarget) -> str:
        call = self._access.call("fs.read_link", "read the link", path)
        batch = Batch()
        step = batch.add(ReadLink(call.display))
        try:
            return decode_path((await call.run(batch))[step])
        except BatchFailed as failure:
            if failure.error.status == errno.EINVAL:
                raise call.refusal(NotRegularFile, "it is not a symbolic link") from failure
            raise reading.read_error(call, failure) from failure

    async def space(self, path: WorldPath | FileTarget) -> FileSystemSpace:
        call = self._access.call("fs.space", "tell the space of", path)
        batch = Batch()
        step = batch.add(StatFileSystem(call.display))
        found = (await call.run_plain(batch))[step]
        return FileSystemSpace(found.total_bytes, found.available_bytes)

    # Reads

    async def read_bytes(
        self, path: WorldPath | FileTarget, *, max_bytes: int = DEFAULT_READ_LIMIT_BYTES
    ) -> bytes:
        return await reading.read_bytes(self._access.call("fs.read_bytes", "read", path), max_bytes)

    async def read_range(self, path: WorldPath | FileTarget, *, offset: int, size_bytes: int) -> bytes:
        call = self._access.call("fs.read_range", "read", path)
        return await reading.read_range(call, offset, size_bytes)

    async def read_text(
        self,
        path: WorldPath | FileTarget,
        *,
        encoding: str = "utf-8",
        max_bytes: int = DEFAULT_READ_LIMIT_BYTES,
    ) -> str:
        call = self._access.call("fs.read_text", "read", path)
        return await reading.read_text(call, encoding, max_bytes)

    def open_reader(self, path: WorldPath | FileTarget) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return reading.open_reader(self._access.call("fs.open_reader", "read", path))

    def open_text_reader(
        self, path: WorldPath | FileTarget, *, encoding: str = "utf-8"
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        return reading.open_text_reader(self._access.call("fs.open_text_reader", "read", path), encoding)

    # Listing

    async def list_directory(self, path: WorldPath | FileTarget) -> list[DirectoryEntry]:
        return await finding.list_directory(self._access.call("fs.list_directory", "list", path))

    def walk(
        self, path: WorldPath | FileTarget, *, prune: Iterable[str] = (), max_depth: int | None = None
    ) -> AsyncIterator[DirectoryEntry | WalkError]:
        return finding.Walk(self._access.call("fs.walk", "walk", path), prune, max_depth)

    async def glob(
        self, pattern: str, *, root: WorldPath | FileTarget = ".", prune: Iterable[str] = ()
    ) -> list[DirectoryEntry]:
        return await finding.glob(self._access.call("fs.glob", "search", root), pattern, prune)

    def watch(
        self, path: WorldPath | FileTarget, *, recursive: bool = True
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        return watching.watch(self._access.call("fs.watch", "watch", path), recursive=recursive)

    # Writes

    async def write_bytes(
        self,
        path: WorldPath | FileTarget,
        data: bytes,
        *,
        expected: Expectation = None,
        mode: int | None = None,
        parents: bool = True,
        break_hard_links: bool = False,
        diff_limit_bytes: int = 0,
    ) -> WriteOutcome:
        call = self._access.call("fs.write_bytes", "write", path)
        demand = Demand(expected, mode, parents, break_hard_links)
        return await self._write(call, demand, bytes(data), "utf-8", diff_limit_bytes)

    async def write_text(
        self,
        path: WorldPath | FileTarget,
        text: str,
        *,
        encoding: str = "utf-8",
        expected: Expectation = None,
        mode: int | None = None,
        parents: bool = True,
        break_hard_links: bool = False,
        diff_limit_bytes: int = 0,
    ) -> WriteOutcome:
        call = self._access.call("fs.write_text", "write", path)
        demand = Demand(expected, mode, parents, break_hard_links)
        data = _encode(call, text, encoding)
        return await self._write(call, demand, data, encoding, diff_limit_bytes)

    async def _write(
        self, call: Call, demand: Demand, data: bytes, encoding: str, diff_limit_bytes: int
    ) -> WriteOutcome:
        write = AtomicWrite(call, demand)
        after = _diff_text(data, encoding) if len(data) < diff_limit_bytes else None
        old_limit = diff_limit_bytes if after is not None else 0
        async with self._access.queues.hold(call.display):
            published = await write.whole(data, old_limit_bytes=old_limit)
        if published.created:
            return write_outcome(published, None, after)
        before = None if published.old is None else _diff_text(published.old, encoding)
        return write_outcome(published, before, None if before is None else after)

    async def write_stream(
        self,
        path: WorldPath | FileTarget,
        chunks: AsyncIterable[bytes],
        *,
        expected: Expectation = None,
        mode: int | None = None,
        parents: bool = True,
        break_hard_links: bool = False,
    ) -> WriteOutcome:
        call = self._access.call("fs.write_stream", "write", path)
        write = AtomicWrite(call, Demand(expected, mode, parents, break_hard_links))
        pieces = StreamPieces(chunks)
        try:
            async with self._access.queues.hold(call.display):
                published = await write.stream(pieces)
        finally:
            await pieces.aclose()
        return write_outcome(published, None, None)

    async def edit_text(
        self,
        path: WorldPath | FileTarget,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        expected: Expectation = None,
        encoding: str = "utf-8",
    ) -> EditOutcome:
        call = self._access.call("fs.edit_text", "edit", path)
        if isinstance(expected, str):
            message = "an edit can demand a version only"
            raise ValueError(message)
        exact_encoding(encoding, b"")
        async with self._access.queues.hold(call.display):
            for _ in range(_EDIT_ATTEMPTS):
                data, version = await self._read_for_edit(call, expected)
                edited, content = _edit(call, data, old, new, encoding, replace_all=replace_all)
                try:
                    published = await AtomicWrite(call, Demand(version, parents=False)).whole(content)
                except StaleVersion:
                    # Another writer came between. Without a demand of the caller, the edit applies to its
                    # text too.
                    if expected is not None:
                        raise
                    continue
                return _edit_outcome(published, edited)
        raise call.refusal(StaleVersion, "it keeps being changed by others")

    async def _read_for_edit(self, call: Call, expected: FileVersion | None) -> tuple[bytes, FileVersion]:
        batch = Batch()
        demand = None if expected is None else version_demand(expected)
        opened, stat = reading.add_open(
            batch, call.display, max_size=DEFAULT_READ_LIMIT_BYTES, version=demand, max_links=1
        )
        content = batch.add(Read(opened.handle, MAX_TRANSFER_BYTES, close_at_end=True))
        try:
            results = await call.run(batch)
        except BatchFailed as failure:
            if failure.error.status in _NOTHING:
                raise call.refusal(StaleVersion, "it does not exist", hint=MOVED_HINT) from failure
            raise _edit_error(call, failure) from failure
        data = results[content]
        if len(data) == MAX_TRANSFER_BYTES:
            data = await reading.read_on(call, results[opened], data, DEFAULT_READ_LIMIT_BYTES)
        return data, file_version(results[stat])

    # Tree changes

    async def make_directory(
        self, path: WorldPath | FileTarget, *, parents: bool = True, exist_ok: bool = True, mode: int = 0o777
    ) -> None:
        call = self._access.call("fs.make_directory", "make the directory", path)
        await directories.make_directory(call, parents=parents, exist_ok=exist_ok, mode=mode)

    async def remove(
        self,
        path: WorldPath | FileTarget,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        expected: Expectation = None,
    ) -> None:
        call = self._access.call("fs.remove", "remove", path)
        async with self._access.queues.hold(call.display):
            await removing.remove(call, recursive=recursive, missing_ok=missing_ok, expected=expected)

    async def rename(
        self, source: WorldPath | FileTarget, target: WorldPath | FileTarget, *, replace: bool = False
    ) -> None:
        call = self._access.call("fs.rename", "rename", source)
        location = self._access.call("fs.rename", "rename to", target).location
        async with self._access.queues.hold(call.display, location.display):
            call.also = location.display
            await directories.rename(call, location, replace=replace)

    async def copy(
        self,
        source: WorldPath | FileTarget,
        target: WorldPath | FileTarget,
        *,
        recursive: bool = False,
        replace: bool = False,
    ) -> None:
        call = self._access.call("fs.copy", "copy", source)
        location: Location = self._access.call("fs.copy", "copy to", target).location
        async with self._access.queues.hold(location.display):
            call.also = location.display
            await copying.copy(call, location, recursive=recursive, replace=replace)

    async def make_symlink(self, path: WorldPath | FileTarget, target: WorldPath) -> None:
        call = self._access.call("fs.make_symlink", "make the link", path)
        try:
            text = encode_path(target)
        except UnicodeEncodeError as error:
            raise call.refusal(InvalidPath, "its text holds a surrogate that stands for no byte") from error
        await directories.make_symlink(call, text)

    async def set_mode(self, path: WorldPath | FileTarget, mode: int) -> None:
        call = self._access.call("fs.set_mode", "set the mode of", path)
        await call.require_writable()
        await directories.set_mode(call, mode)


def _encode(call: Call, text: str, encoding: str) -> bytes:
    try:
        return encode_text(text, encoding)
    except TextError as error:
        raise call.refusal(NotText, str(error), hint="name another encoding") from error


def _diff_text(data: bytes, encoding: str) -> str | None:
    try:
        return with_line_feeds(decode_text(data, encoding))
    except TextError:
        return None


def _edit(
    call: Call, data: bytes, old: str, new: str, encoding: str, *, replace_all: bool
) -> tuple[editing.EditedText, bytes]:
    exact = exact_encoding(encoding, data[:4])
    try:
        text = decode_text(data, exact)
        if "\0" in text:
            message = "it is binary: it holds a NUL"
            raise TextError(message)
        if encode_text(text, exact) != data:
            message = f"its bytes would not survive a journey through {exact}"
            raise TextError(message)
        edited = editing.edit(text, old, new, replace_all=replace_all)
        return edited, encode_text(edited.raw, exact)
    except TextError as error:
        raise reading.not_text(call, error) from error
    except editing.SeveralOccurrences as error:
        raise call.ambiguous(error.count) from error
    except editing.NoOccurrence as error:
        text = "the text to be replaced does not occur" if old else "the text to be replaced is empty"
        raise call.refusal(EditNotFound, text, hint="read it again and take the text from there") from error


def _edit_error(call: Call, failure: BatchFailed) -> Exception:
    if failure.error.status == CheckStatus.LINKS:
        return call.error(
            CheckStatus.LINKS,
            hint="write it whole and ask for its hard links to be broken, to replace this name only",
        )
    if failure.error.status == CheckStatus.SIZE:
        return call.error(CheckStatus.SIZE, kind=TooLarge, hint="edit it with a command")
    return reading.read_error(call, failure)


def _edit_outcome(published: Published, edited: editing.EditedText) -> EditOutcome:
    return EditOutcome(
        edited.replacements, published.version, decode_path(published.path), edited.before, edited.after
    )
