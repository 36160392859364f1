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
from collections.abc import Sequence
from typing import Final

from execworld.machine.batch import (
    Batch,
    BatchFailed,
    Results,
    StepError,
)
from execworld.machine.fs.access import Call
from execworld.machine.fs.information import file_version
from execworld.machine.fs.old_content import add_old, read_old
from execworld.machine.fs.parents import missing_directories
from execworld.machine.fs.paths import join
from execworld.machine.fs.pieces import DataPieces, Pieces
from execworld.machine.fs.publication import (
    CANNOT_RENAME_SO,
    temporary_name,
)
from execworld.machine.fs.write_errors import write_error
from execworld.machine.fs.write_plan import Demand, Role, Ways, WritePlan
from execworld.machine.operations import (
    Close,
    MakeDirectory,
    Open,
    RealPath,
    RemoveDirectory,
    Unlink,
    Write,
)
from execworld.machine.values import (
    MAX_TRANSFER_BYTES,
    OpenFlag,
    RawPath,
)
from execworld.seams.files import FileVersion, WriteOutcome
from execworld.seams.values import record

_ATTEMPTS: Final = 6
_WRITES_A_BATCH: Final = 4


@record
class Published:
    """A finished write.

    Attributes:
        old: What the file held before, when that was asked for and is known.
    """

    created: bool
    version: FileVersion
    path: bytes
    old: bytes | None


@record
class _Staging:
    """A temporary file that is open across batches."""

    parent: int
    temporary: int
    directory: bytes
    made: tuple[bytes, ...]


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
        self._ways = Ways()
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
            plan.publish(plan.parent.handle, plan.temporary.handle, self._name(plan))
            try:
                results = await self._call.run(plan.batch)
            except BatchFailed as failure:
                if attempt == _ATTEMPTS - 1 or not await self._remedy(plan, failure):
                    raise await write_error(self._call, plan, failure) from failure
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

    def _prepare(self, pieces: Sequence[bytes], old_limit_bytes: int = 0) -> WritePlan:
        """Open the directory and look at the target, then put the content in a temporary file."""
        plan = WritePlan(self._demand, self._ways, self._temporary_name)
        add = plan.batch.add
        # "absent" is a demand on the very name, so a link there is not followed.
        absent = self._demand.expected == "absent"
        display = self._call.location.parent if absent else self._call.display
        plan.real = real = add(RealPath(display, missing_ok=True))
        for path in self._to_make:
            step = add(MakeDirectory(path), tolerate=(errno.EEXIST,), undo=RemoveDirectory(path))
            plan.made.append((path, step.index))
            plan.roles[step.index] = Role.PARENT
        flags = OpenFlag.DIRECTORY | OpenFlag.NO_FOLLOW
        flags |= OpenFlag.READ if self._ways.sync_parent else OpenFlag.PATH_ONLY
        plan.parent = parent = add(Open(real.path if absent else real.parent, flags))
        plan.roles[parent.index] = Role.PARENT
        name = self._name(plan)
        plan.look(parent.handle, name)
        if old_limit_bytes > 0:
            add_old(plan, parent.handle, name, old_limit_bytes)
        plan.temporary = temporary = add(
            Open(
                self._temporary_name,
                OpenFlag.WRITE | OpenFlag.CREATE | OpenFlag.EXCLUSIVE | OpenFlag.NO_FOLLOW,
                0o600,
                parent.handle,
            ),
            undo=Unlink(self._temporary_name, parent.handle),
        )
        plan.roles[temporary.index] = Role.STAGING
        for piece in pieces:
            if piece:
                add(Write(temporary.handle, piece))
        return plan

    def _name(self, plan: WritePlan) -> RawPath:
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
                    raise await write_error(self._call, plan, failure) from failure
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
            plan = WritePlan(self._demand, self._ways, self._temporary_name)
            plan.look(staging.parent, name)
            if old_limit_bytes > 0:
                add_old(plan, staging.parent, name, old_limit_bytes)
            plan.publish(staging.parent, staging.temporary, name)
            try:
                results = await self._call.run(plan.batch)
            except BatchFailed as failure:
                if attempt == _ATTEMPTS - 1 or not await self._remedy(plan, failure):
                    raise await write_error(self._call, plan, failure) from failure
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

    def _directory(self, plan: WritePlan, results: Results) -> bytes:
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
        self, plan: WritePlan, results: Results, directory: bytes, old_limit_bytes: int
    ) -> Published:
        old = await read_old(self._call, plan, results, old_limit_bytes)
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

    # Failures

    @property
    def _makes_parents(self) -> bool:
        # A version cannot be that of a file in a directory that does not exist.
        return self._demand.parents and not isinstance(self._demand.expected, FileVersion)

    async def _remedy(self, plan: WritePlan, failure: BatchFailed) -> bool:
        """Change the plan after what a failure told. False when there is nothing to change."""
        role, status = plan.roles.get(failure.step), failure.error.status
        if role is Role.PARENT and status == errno.ENOENT and self._makes_parents:
            assert plan.real is not None
            self._to_make = await missing_directories(self._call, self._directory(plan, failure.results))
            return True
        if role is Role.PARENT and status == errno.EACCES and self._ways.sync_parent:
            self._ways.sync_parent = False  # a directory that may be searched and written but not listed
            return True
        if role is Role.PUBLICATION and status in CANNOT_RENAME_SO:
            expected = self._demand.expected
            if expected == "absent" and self._ways.no_replace:
                self._ways.no_replace = False
                return True
            if isinstance(expected, FileVersion) and self._ways.exchange:
                self._ways.exchange = False
                self._call.access.without_exchange.add(expected.device)
                return True
        return False


def write_outcome(published: Published, before: str | None, after: str | None) -> WriteOutcome:
    path = published.path.decode("utf-8", "surrogateescape")
    return WriteOutcome(published.created, published.version, path, before, after)
