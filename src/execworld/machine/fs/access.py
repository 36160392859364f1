"""What every file operation needs: the machine, the identity of the world, and one way to fail."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed, Results
from execworld.machine.denials import DENIALS, PolicyRules
from execworld.machine.fs.errors import (
    error_class,
    error_hint,
    error_number,
    error_text,
    is_transient,
    kind_words,
)
from execworld.machine.fs.paths import BlankPath, Location, UnusablePath, join, locate, name_of, parent_of
from execworld.machine.fs.queues import PathQueues
from execworld.machine.operations import Close, RealPath
from execworld.machine.values import CheckStatus, FileStat, KindMask
from execworld.seams.errors import (
    AmbiguousEdit,
    FileError,
    FileMissing,
    InvalidPath,
    SandboxDenied,
    WorldError,
    WorldMismatch,
)
from execworld.seams.files import FileTarget
from execworld.seams.paths import WorldPath, printable_path

CLEANUP_LIMIT_S: Final = 20.0
"""For what must not be cancelled: long for a file system that is slow, short for one that never answers."""
_RELEASE_LIMIT_S: Final = 5.0
_ANY_ERROR: Final = range(1, 4096)
_WRITES: Final = frozenset(
    {
        *("fs.write_bytes", "fs.write_text", "fs.write_stream", "fs.edit_text", "fs.set_mode"),
        *("fs.make_directory", "fs.make_symlink", "fs.remove", "fs.rename"),
    }
)
_OF_THE_NAME: Final = frozenset({"fs.remove", "fs.rename", "fs.make_symlink", "fs.lstat", "fs.read_link"})
"""Operations that follow no link in the last component."""
_FORBIDDEN: Final = "the policy of this view forbids it"


class FileAccess:
    """The files of one view of one world."""

    def __init__(
        self,
        machine: Machine,
        *,
        world_id: str,
        view_id: str,
        cwd: bytes,
        check: Callable[[str], None],
        rules: PolicyRules | None = None,
    ) -> None:
        self.machine = machine
        self.world_id = world_id
        self.view_id = view_id
        self.cwd = cwd
        self.check = check
        self.rules = rules
        self.queues = PathQueues()
        self.without_exchange: set[int] = set()
        """Devices on which two names cannot be exchanged."""
        self.resolves_beneath = True
        """The kernel may be asked to resolve a whole path without links; cleared when it refuses."""
        self.dropped: deque[int] = deque()
        """Handles of iterators that were left without being closed, to be closed by the next operation."""

    def call(self, op: str, doing: str, path: WorldPath | FileTarget, *, cwd: bytes | None = None) -> Call:
        """Begin an operation: refuse it if the world says so, and read its path.

        Raises:
            WorldClosed, SandboxUnavailable: as the world says.
            WorldMismatch: a target of another world.
            FileMissing, InvalidPath: the path is blank or unusable.
        """
        self.check(op)
        if isinstance(path, FileTarget):
            self.check_target(op, path)
        try:
            location = locate(path, self.cwd if cwd is None else cwd)
        except BlankPath as error:
            message = f"cannot {doing} a path that is blank"
            raise FileMissing(message, path=_text(path), op=op, world=self.world_id) from error
        except UnusablePath as error:
            message = f"cannot {doing} such a path: {error}"
            raise InvalidPath(message, path=_text(path), op=op, world=self.world_id) from error
        return Call(self, op, doing, location)

    def check_target(self, op: str, target: FileTarget) -> None:
        if target.world_id != self.world_id:
            message = f"the target {printable_path(target.display_path)!r} belongs to another world"
            raise WorldMismatch(
                message, op=op, world=self.world_id, hint="resolve the path in this world again"
            )

    async def run(self, batch: Batch) -> Results:
        if self.dropped:
            await self._close_dropped()
        return await self.machine.run(batch)

    async def release(self, *handles: int) -> None:
        """Close handles, also while being cancelled; a world that is gone has closed them already.

        A file system that does not answer keeps nobody for long: what is not closed in time is left to the machine.
        """
        with anyio.move_on_after(_RELEASE_LIMIT_S, shield=True):
            for handle in handles:
                try:
                    await self.machine.release(handle)
                except WorldError:
                    return

    async def clean_up(self, batch: Batch) -> None:
        """Run all steps of *batch* that can be run, also while being cancelled, and in a bounded time."""
        with anyio.move_on_after(CLEANUP_LIMIT_S, shield=True):
            while batch.steps:
                try:
                    await self.machine.run(batch)
                    return
                except BatchFailed as failure:
                    batch = Batch(batch.steps[failure.step + 1 :])
                except WorldError:
                    return  # nothing more can be reached; what the machine made it removes itself

    async def _close_dropped(self) -> None:
        batch = Batch()
        while self.dropped:
            batch.add(Close(self.dropped.popleft()), tolerate=(errno.EBADF,))
        await self.clean_up(batch)


class Call:
    """One operation on one path."""

    __slots__ = ("_denials", "access", "also", "doing", "location", "op")

    def __init__(self, access: FileAccess, op: str, doing: str, location: Location) -> None:
        self.access = access
        self.op = op
        self.doing = doing
        self.location = location
        self.also: bytes | None = None
        """Path of the target, for an operation that has one beside its source."""
        self._denials: dict[bytes, str] = {}

    @property
    def display(self) -> bytes:
        return self.location.display

    async def run(self, batch: Batch) -> Results:
        """Execute *batch*.

        Raises:
            BatchFailed: for the caller to say what it means.
        """
        try:
            return await self.access.run(batch)
        except BatchFailed as failure:
            if failure.error.status in DENIALS:
                await self._explain()
            raise

    async def run_plain(self, batch: Batch) -> Results:
        """Execute *batch*, any failure of which means what its status says of the path."""
        try:
            return await self.run(batch)
        except BatchFailed as failure:
            raise self.error(failure.error.status) from failure

    async def require_writable(self) -> None:
        """Refuse what the policy forbids, where a kernel may not: it holds contents and names, and not always modes.

        Raises:
            SandboxDenied
        """
        await self._explain()
        if hint := self._denials.get(self.display):
            raise self.refusal(SandboxDenied, _FORBIDDEN, hint=hint)

    async def _explain(self) -> None:
        """Find out whether it is the policy that forbids this, by where the paths really lead."""
        rules = self.access.rules
        if rules is None:
            return
        for path in filter(None, (self.display, self.also)):
            writes = self.op in _WRITES or path is self.also
            explain = rules.explain_write if writes else rules.explain_read
            self._denials[path] = explain(await self._canonical(path))

    async def _canonical(self, path: bytes) -> bytes:
        by_name = self.op in _OF_THE_NAME or path is self.also
        batch = Batch()
        step = batch.add(RealPath(parent_of(path) if by_name else path, missing_ok=True), tolerate=_ANY_ERROR)
        found = (await self.access.machine.run(batch)).get(step)
        if found is None:
            return path
        return join(found, name_of(path)) if by_name and path != b"/" else found

    def _denial(self, about: bytes) -> str:
        while not (found := self._denials.get(about, "")) and about != b"/" and about not in self._denials:
            about = parent_of(about)
        return found

    def error(
        self,
        status: int,
        *,
        text: str = "",
        hint: str = "",
        kind: type[FileError] | None = None,
        path: bytes | None = None,
    ) -> FileError:
        """The error that *status* means here; *path* is another path that it is about."""
        cls = kind or error_class(status)
        denial = ""
        if status in DENIALS:
            denial = self._denial(self.display if path is None else path)
            if not denial and path is None and self.also is not None and (denial := self._denial(self.also)):
                path = self.also
        if denial:
            cls, text, hint = SandboxDenied, _FORBIDDEN, denial
        given = self.location.given if path is None else path.decode("utf-8", "surrogateescape")
        message = f"cannot {self.doing} '{printable_path(given)}': {text or error_text(status)}"
        number = error_number(status)
        error = cls(
            message,
            path=given,
            errno=number,
            op=self.op,
            world=self.access.world_id,
            hint=hint or error_hint(status),
        )
        if is_transient(status):
            error.retryable = True
        return error

    def refusal(self, kind: type[FileError], text: str, *, hint: str = "") -> FileError:
        """An error of our own, without a status."""
        message = f"cannot {self.doing} '{printable_path(self.location.given)}': {text}"
        return kind(message, path=self.location.given, op=self.op, world=self.access.world_id, hint=hint)

    def ambiguous(self, count: int) -> AmbiguousEdit:
        message = (
            f"cannot {self.doing} '{printable_path(self.location.given)}': the text occurs {count} times"
        )
        return AmbiguousEdit(
            message,
            count=count,
            path=self.location.given,
            op=self.op,
            world=self.access.world_id,
            hint="include more of the text around it, or ask for all of them to be replaced",
        )

    def failure(self, failure: BatchFailed) -> FileError:
        """What a failed batch means, with the type of file named when a `Check` refused it."""
        status = failure.error.status
        if status == CheckStatus.KIND:
            kind = last_stat(failure.results)
            if kind is None:
                return self.error(errno.ENOENT)
            hint = "list the directory instead" if kind.kind is KindMask.DIRECTORY else ""
            return self.error(status, text=f"it is {kind_words(kind.kind)}, not a regular file", hint=hint)
        if status == CheckStatus.SIZE:
            found = last_stat(failure.results)
            size = f" ({found.size} bytes)" if found is not None else ""
            return self.error(status, text=f"it is larger than the limit{size}")
        return self.error(status)


def last_stat(results: Results) -> FileStat | None:
    """The stat that the failed `Check` looked at: the last one before it."""
    for value in reversed(results.values):
        if isinstance(value, FileStat):
            return value
    return None


def _text(path: WorldPath | FileTarget) -> str:
    if isinstance(path, FileTarget):
        return path.display_path
    return path.decode("utf-8", "surrogateescape") if isinstance(path, bytes) else str(path)
