"""Create or replace a file: whole or not at all, and only what the caller meant.

The content goes to a private file beside the target, is flushed, and takes the name by a rename. A demand on
a version is judged at the moment of publication: the two files exchange their names, and what was displaced
must be the expected version, else they change back. Where a file system cannot exchange names, the version is
compared immediately before the rename, which leaves a window of microseconds; ``absent`` needs no such window
anywhere, since a rename without replacement or, failing that, a hard link decides it.

A content of up to one transfer, into an existing directory, is one batch.
"""

from __future__ import annotations

import errno
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from execworld.machine.batch import (
    Batch,
    BatchFailed,
    Results,
    Step,
    StepError,
)
from execworld.machine.fs.access import Call
from execworld.machine.fs.errors import MOVED_HINT, kind_words
from execworld.machine.fs.information import file_version, version_demand
from execworld.machine.fs.parents import missing_directories
from execworld.machine.fs.paths import join
from execworld.machine.fs.publication import (
    AFTER_PUBLICATION,
    CANNOT_OWN,
    CANNOT_RENAME_SO,
    CANNOT_SYNC,
    temporary_name,
)
from execworld.machine.operations import (
    Check,
    Close,
    Link,
    MakeDirectory,
    Open,
    Read,
    RealPath,
    RemoveDirectory,
    Rename,
    SetMode,
    SetOwner,
    Stat,
    StatHandle,
    Sync,
    Unlink,
    Write,
)
from execworld.machine.values import (
    MAX_TRANSFER_BYTES,
    CheckStatus,
    FileStat,
    Handle,
    KindMask,
    OpenFlag,
    RawPath,
    RenameMode,
)
from execworld.seams.errors import FileError, NotObserved, NotRegularFile, StaleVersion
from execworld.seams.files import Expectation, FileVersion, WriteOutcome

_ATTEMPTS: Final = 6
_WRITES_A_BATCH: Final = 4

_NO_OLD_TEXT: Final = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.EBADF,
    errno.EIO,
    errno.EISDIR,
)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a write asks for beside its content."""

    expected: Expectation = None
    mode: int | None = None
    parents: bool = True
    break_hard_links: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """A finished write.

    Attributes:
        old: What the file held before, when that was asked for and is known.
    """

    created: bool
    version: FileVersion
    path: bytes
    old: bytes | None


class _Role(Enum):
    PARENT = "parent"
    TARGET = "target"
    STAGING = "staging"
    PUBLICATION = "publication"
    DISPLACED = "displaced"
    OTHER = "other"


@dataclass(slots=True)
class _Ways:
    """How the file system at hand lets a file be published; learnt from its refusals."""

    exchange: bool = True
    no_replace: bool = True
    sync_parent: bool = True


@dataclass(slots=True)
class _Plan:
    """A batch under construction, and what its steps are for."""

    batch: Batch = field(default_factory=Batch)
    roles: dict[int, _Role] = field(default_factory=dict[int, _Role])
    real: Step[bytes] | None = None
    made: list[tuple[bytes, int]] = field(default_factory=list[tuple[bytes, int]])
    parent: Step[int] | None = None
    temporary: Step[int] | None = None
    before: Step[FileStat] | None = None
    staged: Step[FileStat] | None = None
    published: Step[FileStat] | None = None
    removal: Step[None] | None = None
    old: tuple[Step[int], Step[FileStat], Step[bytes], Step[FileStat]] | None = None


@dataclass(frozen=True, slots=True)
class _Staging:
    """A temporary file that is open across batches."""

    parent: int
    temporary: int
    directory: bytes
    made: tuple[bytes, ...]


class Pieces(Protocol):
    """A content in pieces of at most one transfer."""

    async def next(self) -> bytes:
        """The next piece; empty at the end, and ever after."""
        ...


class DataPieces:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    async def next(self) -> bytes:
        piece = self._data[self._position : self._position + MAX_TRANSFER_BYTES]
        self._position += len(piece)
        return piece


class StreamPieces:
    """Chunks of any size, joined and cut."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(chunks)
        self._buffer = bytearray()
        self._end = False

    async def next(self) -> bytes:
        buffer = self._buffer
        while len(buffer) < MAX_TRANSFER_BYTES and not self._end:
            try:
                buffer += await anext(self._chunks)
            except StopAsyncIteration:
                self._end = True
        piece = bytes(buffer[:MAX_TRANSFER_BYTES])
        del buffer[:MAX_TRANSFER_BYTES]
        return piece

    async def aclose(self) -> None:
        """Finish a generator that was not read to its end."""
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()


class AtomicWrite:
    """One write. Use `whole` or `stream`, once."""

    def __init__(self, call: Call, demand: Demand) -> None:
        if demand.mode is not None and not 0 <= demand.mode <= 0o7777:
            message = "mode must be between 0 and 0o7777"
            raise ValueError(message)
        if isinstance(demand.expected, str) and demand.expected != "absent":
            message = "expected must be a version, 'absent' or None"
            raise ValueError(message)
        self._call = call
        self._demand = demand
        self._temporary_name = temporary_name()
        self._ways = _Ways()
        self._canonical_name = b""
        self._to_make: list[bytes] = []
        expected = demand.expected
        if isinstance(expected, FileVersion) and expected.device in call.access.without_exchange:
            self._ways.exchange = False

    async def whole(self, data: bytes, *, old_limit_bytes: int = 0) -> Published:
        """Write *data*; with *old_limit_bytes*, give back an old content that is smaller."""
        if len(data) > MAX_TRANSFER_BYTES:
            return await self.stream(DataPieces(data), old_limit_bytes=old_limit_bytes)
        for attempt in range(_ATTEMPTS):
            plan = self._prepare([data], old_limit_bytes)
            assert plan.parent is not None
            assert plan.temporary is not None
            self._publish(plan, plan.parent.handle, plan.temporary.handle, self._name(plan))
            try:
                results = await self._call.run(plan.batch)
            except BatchFailed as failure:
                if attempt == _ATTEMPTS - 1 or not await self._remedy(plan, failure):
                    raise await self._error(plan, failure) from failure
                continue
            directory = self._directory(plan, results)
            return await self._finish(plan, results, directory, old_limit_bytes)
        raise AssertionError("unreachable")

    async def stream(self, pieces: Pieces, *, old_limit_bytes: int = 0) -> Published:
        """Write all of *pieces*."""
        first = await pieces.next()
        second = await pieces.next() if first else b""
        if not second:
            return await self.whole(first, old_limit_bytes=old_limit_bytes)
        staging = await self._stage(first)
        try:
            await self._fill(staging, second, pieces)
            return await self._publish_staged(staging, old_limit_bytes)
        except BaseException:
            await self._discard(staging)
            raise

    # Steps

    def _prepare(self, pieces: Sequence[bytes], old_limit_bytes: int = 0) -> _Plan:
        """Open the directory and look at the target, then put the content in a temporary file."""
        plan = _Plan()
        add = plan.batch.add
        # "absent" is a demand on the very name, so a link there is not followed.
        absent = self._demand.expected == "absent"
        display = self._call.location.parent if absent else self._call.display
        plan.real = real = add(RealPath(display, missing_ok=True))
        for path in self._to_make:
            step = add(MakeDirectory(path), tolerate=(errno.EEXIST,), undo=RemoveDirectory(path))
            plan.made.append((path, step.index))
            plan.roles[step.index] = _Role.PARENT
        flags = OpenFlag.DIRECTORY | OpenFlag.NO_FOLLOW
        flags |= OpenFlag.READ if self._ways.sync_parent else OpenFlag.PATH_ONLY
        plan.parent = parent = add(Open(real.path if absent else real.parent, flags))
        plan.roles[parent.index] = _Role.PARENT
        name = self._name(plan)
        self._look(plan, parent.handle, name)
        if old_limit_bytes > 0:
            self._add_old(plan, parent.handle, name, old_limit_bytes)
        plan.temporary = temporary = add(
            Open(
                self._temporary_name,
                OpenFlag.WRITE | OpenFlag.CREATE | OpenFlag.EXCLUSIVE | OpenFlag.NO_FOLLOW,
                0o600,
                parent.handle,
            ),
            undo=Unlink(self._temporary_name, parent.handle),
        )
        plan.roles[temporary.index] = _Role.STAGING
        for piece in pieces:
            if piece:
                add(Write(temporary.handle, piece))
        return plan

    def _look(self, plan: _Plan, parent: Handle, name: RawPath) -> None:
        plan.before = before = plan.batch.add(Stat(name, follow=False, base=parent), tolerate=(errno.ENOENT,))
        expected = self._demand.expected
        version = None
        if expected == "absent":
            kinds = KindMask.ABSENT
        elif isinstance(expected, FileVersion):
            kinds, version = KindMask.FILE, version_demand(expected)
        else:
            kinds = KindMask.FILE | KindMask.ABSENT
        check = plan.batch.add(Check(before.index, kinds, version, 0 if self._demand.break_hard_links else 1))
        plan.roles[check.index] = _Role.TARGET

    def _publish(self, plan: _Plan, parent: Handle, temporary: Handle, name: RawPath) -> None:
        add, before = plan.batch.add, plan.before
        assert before is not None
        add(SetOwner(temporary, owner_of=before.index), tolerate=CANNOT_OWN)
        if self._demand.mode is None:
            add(SetMode(temporary, 0o666, mode_of=before.index, apply_umask=True))
        else:
            add(SetMode(temporary, self._demand.mode))
        add(Sync(temporary), tolerate=CANNOT_SYNC)
        plan.staged = add(StatHandle(temporary))
        expected = self._demand.expected
        if expected == "absent":
            self._publish_absent(plan, parent, name)
        elif isinstance(expected, FileVersion):
            self._publish_version(plan, parent, name, expected)
        else:
            step = add(Rename(self._temporary_name, name, source_base=parent, target_base=parent))
            plan.roles[step.index] = _Role.PUBLICATION
        plan.published = add(StatHandle(temporary), tolerate=AFTER_PUBLICATION)
        if self._ways.sync_parent:
            add(Sync(parent), tolerate=AFTER_PUBLICATION)
        add(Close(temporary), tolerate=AFTER_PUBLICATION)
        add(Close(parent), tolerate=AFTER_PUBLICATION)

    def _publish_absent(self, plan: _Plan, parent: Handle, name: RawPath) -> None:
        temporary = self._temporary_name
        if self._ways.no_replace:
            step = plan.batch.add(Rename(temporary, name, RenameMode.NO_REPLACE, parent, parent))
        else:
            step = plan.batch.add(Link(temporary, name, parent, parent))
            plan.removal = plan.batch.add(Unlink(temporary, parent), tolerate=AFTER_PUBLICATION)
        plan.roles[step.index] = _Role.PUBLICATION

    def _publish_version(self, plan: _Plan, parent: Handle, name: RawPath, expected: FileVersion) -> None:
        add, temporary = plan.batch.add, self._temporary_name
        links = 0 if self._demand.break_hard_links else 1
        if not self._ways.exchange:
            last = add(Stat(name, follow=False, base=parent))
            plan.roles[last.index] = _Role.DISPLACED
            check = add(Check(last.index, KindMask.FILE, version_demand(expected), links))
            plan.roles[check.index] = _Role.DISPLACED
            step = add(Rename(temporary, name, source_base=parent, target_base=parent))
            plan.roles[step.index] = _Role.PUBLICATION
            return
        exchange = Rename(temporary, name, RenameMode.EXCHANGE, parent, parent)
        step = add(exchange, undo=exchange)
        plan.roles[step.index] = _Role.PUBLICATION
        displaced = add(Stat(temporary, follow=False, base=parent))
        check = add(Check(displaced.index, KindMask.FILE, version_demand(expected, renamed=True), links))
        plan.roles[check.index] = _Role.DISPLACED
        plan.removal = add(Unlink(temporary, parent), tolerate=AFTER_PUBLICATION)

    def _add_old(self, plan: _Plan, parent: Handle, name: RawPath, limit: int) -> None:
        """Read the old content from the file that will be displaced. It stays open when there is more of it."""
        add = plan.batch.add
        opened = add(Open(name, OpenFlag.READ | OpenFlag.NO_FOLLOW, base=parent), tolerate=_NO_OLD_TEXT)
        stat = add(StatHandle(opened.handle), tolerate=_NO_OLD_TEXT)
        size = min(limit, MAX_TRANSFER_BYTES)
        content = add(Read(opened.handle, size, close_at_end=True), tolerate=(*_NO_OLD_TEXT, errno.EAGAIN))
        after = add(Stat(name, follow=False, base=parent), tolerate=_NO_OLD_TEXT)
        plan.old = (opened, stat, content, after)

    def _name(self, plan: _Plan) -> RawPath:
        assert plan.real is not None
        return self._call.location.name if self._demand.expected == "absent" else plan.real.name

    # In several batches

    async def _stage(self, first: bytes) -> _Staging:
        for attempt in range(_ATTEMPTS):
            plan = self._prepare([first])
            try:
                results = await self._call.run(plan.batch)
            except BatchFailed as failure:
                if attempt == _ATTEMPTS - 1 or not await self._remedy(plan, failure):
                    raise await self._error(plan, failure) from failure
                continue
            assert plan.parent is not None
            assert plan.temporary is not None
            made = tuple(
                path for path, index in plan.made if not isinstance(results.values[index], StepError)
            )
            directory = self._directory(plan, results)
            return _Staging(results[plan.parent], results[plan.temporary], directory, made)
        raise AssertionError("unreachable")

    async def _fill(self, staging: _Staging, piece: bytes, pieces: Pieces) -> None:
        while piece:
            batch = Batch()
            while piece and len(batch.steps) < _WRITES_A_BATCH:
                batch.add(Write(staging.temporary, piece))
                piece = await pieces.next()
            await self._call.run_plain(batch)

    async def _publish_staged(self, staging: _Staging, old_limit_bytes: int) -> Published:
        name = self._canonical_name
        for attempt in range(_ATTEMPTS):
            plan = _Plan()
            self._look(plan, staging.parent, name)
            if old_limit_bytes > 0:
                self._add_old(plan, staging.parent, name, old_limit_bytes)
            self._publish(plan, staging.parent, staging.temporary, name)
            try:
                results = await self._call.run(plan.batch)
            except BatchFailed as failure:
                if attempt == _ATTEMPTS - 1 or not await self._remedy(plan, failure):
                    raise await self._error(plan, failure) from failure
                continue
            return await self._finish(plan, results, staging.directory, old_limit_bytes)
        raise AssertionError("unreachable")

    async def _discard(self, staging: _Staging) -> None:
        batch = Batch()
        batch.add(Unlink(self._temporary_name, staging.parent))
        batch.add(Close(staging.temporary))
        batch.add(Close(staging.parent))
        for path in reversed(staging.made):
            batch.add(RemoveDirectory(path))
        await self._call.access.clean_up(batch)

    # Results

    def _directory(self, plan: _Plan, results: Results) -> bytes:
        """The canonical directory of the target; its own name is noted on the way."""
        assert plan.real is not None
        real = results[plan.real]
        if self._demand.expected == "absent":
            self._canonical_name = self._call.location.name
            return real
        directory, _, name = real.rpartition(b"/")
        self._canonical_name = name or b"."
        return directory or b"/"

    async def _finish(
        self, plan: _Plan, results: Results, directory: bytes, old_limit_bytes: int
    ) -> Published:
        old = await self._old(plan, results, old_limit_bytes)
        if plan.removal is not None and isinstance(results.values[plan.removal.index], StepError):
            batch = Batch()  # the displaced file could not be removed; one more try is all that can be done
            batch.add(Unlink(join(directory, self._temporary_name)))
            await self._call.access.clean_up(batch)
        assert plan.before is not None
        assert plan.staged is not None
        assert plan.published is not None
        # From the handle of our own file: never the version of what another writer put there since.
        stat = results.get(plan.published) or results[plan.staged]
        created = results.get(plan.before) is None
        return Published(created, file_version(stat), join(directory, self._canonical_name), old)

    async def _old(self, plan: _Plan, results: Results, limit: int) -> bytes | None:
        """The old content, None when there was none, it reached the limit, or it changed while it was read."""
        if plan.old is None or plan.before is None:
            return None
        opened, stat, content, after = plan.old
        handle, data = results.get(opened), results.get(content)
        size = min(limit, MAX_TRANSFER_BYTES)
        if handle is not None and (data is None or len(data) == size):
            # Not closed by the read, since that did not meet the end.
            data = await self._old_rest(handle, data, limit)
        seen = results.get(plan.before), results.get(stat), results.get(after)
        if data is None or None in seen or len({file_version(found) for found in seen if found}) != 1:
            return None
        return data

    async def _old_rest(self, handle: int, data: bytes | None, limit: int) -> bytes | None:
        """Read on from the displaced file, which has no name any more but keeps its content."""
        try:
            if data is None:
                return None
            parts = [data]
            left = limit - len(data)
            while left:
                batch = Batch()
                size = min(left, MAX_TRANSFER_BYTES)
                content = batch.add(Read(handle, size))
                data = (await self._call.run(batch))[content]
                parts.append(data)
                left -= len(data)
                if len(data) < size:
                    return b"".join(parts)
        except BatchFailed:
            return None  # the write has succeeded; only its description is missing
        finally:
            await self._call.access.release(handle)
        return None

    # Failures

    @property
    def _makes_parents(self) -> bool:
        # A version cannot be that of a file in a directory that does not exist.
        return self._demand.parents and not isinstance(self._demand.expected, FileVersion)

    async def _remedy(self, plan: _Plan, failure: BatchFailed) -> bool:
        """Change the plan after what a failure told. False when there is nothing to change."""
        role, status = plan.roles.get(failure.step), failure.error.status
        if role is _Role.PARENT and status == errno.ENOENT and self._makes_parents:
            assert plan.real is not None
            self._to_make = await missing_directories(self._call, self._directory(plan, failure.results))
            return True
        if role is _Role.PARENT and status == errno.EACCES and self._ways.sync_parent:
            self._ways.sync_parent = False  # a directory that may be searched and written but not listed
            return True
        if role is _Role.PUBLICATION and status in CANNOT_RENAME_SO:
            expected = self._demand.expected
            if expected == "absent" and self._ways.no_replace:
                self._ways.no_replace = False
                return True
            if isinstance(expected, FileVersion) and self._ways.exchange:
                self._ways.exchange = False
                self._call.access.without_exchange.add(expected.device)
                return True
        return False

    async def _error(self, plan: _Plan, failure: BatchFailed) -> FileError:
        call, status, expected = self._call, failure.error.status, self._demand.expected
        role = plan.roles.get(failure.step, _Role.OTHER)
        before = None
        if plan.before is not None and plan.before.index < len(failure.results.values):
            before = failure.results.get(plan.before)
        if role is _Role.PARENT and status == errno.ENOENT and isinstance(expected, FileVersion):
            return call.refusal(StaleVersion, "it does not exist any more", hint=MOVED_HINT)
        if role is _Role.PARENT and status == errno.ENOENT and not self._demand.parents:
            hint = "make the directory first, or ask for parents to be made"
            return call.error(status, text="its directory does not exist", hint=hint)
        if role is _Role.PARENT and status == errno.ELOOP:
            return call.error(errno.ENOTDIR)
        if role is _Role.TARGET and status == CheckStatus.KIND:
            if before is None:
                return call.refusal(StaleVersion, "it does not exist any more", hint=MOVED_HINT)
            if expected == "absent":
                return await self._in_the_way(before)
            return call.failure(failure)
        if role is _Role.STAGING and status in (errno.ENOENT, errno.EINVAL):
            text = "no file can be made in its directory, so it cannot be replaced as a whole"
            return call.error(status, kind=FileError, text=text, hint="write to it with a command")
        if role is _Role.DISPLACED and status in (CheckStatus.KIND, errno.ENOENT):
            return call.error(CheckStatus.VERSION)
        if role is _Role.PUBLICATION:
            if isinstance(expected, FileVersion) and status == errno.ENOENT:
                return call.refusal(StaleVersion, "it was removed meanwhile", hint=MOVED_HINT)
            if expected == "absent" and status == errno.EEXIST:
                return await self._in_the_way(None)
            if status in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
                return call.error(errno.EISDIR)
        return call.failure(failure)

    async def _in_the_way(self, found: FileStat | None) -> FileError:
        """What to say of something that was demanded to be absent."""
        call = self._call
        batch = Batch()
        own = batch.add(
            Stat(call.display, follow=False), tolerate=(errno.ENOENT, errno.ENOTDIR, errno.EACCES)
        )
        target = batch.add(
            Stat(call.display), tolerate=(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)
        )
        results = await call.run_plain(batch)
        itself, behind = results.get(own) or found, results.get(target)
        if itself is None or (behind is not None and behind.kind is KindMask.FILE):
            return call.refusal(NotObserved, "it exists", hint="read it, then write with its version")
        text = f"it exists and is {kind_words(itself.kind)}"
        if itself.kind is KindMask.SYMLINK and behind is None:
            text += " that leads nowhere"
        return call.refusal(NotRegularFile, text)


def write_outcome(published: Published, before: str | None, after: str | None) -> WriteOutcome:
    path = published.path.decode("utf-8", "surrogateescape")
    return WriteOutcome(published.created, published.version, path, before, after)
