"""One run of a batch, in a worker thread: order, references, undo, handles, cancellation."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from execworld.machine.batch import (
    Batch,
    BatchFailed,
    Results,
    StepError,
)
from execworld.machine.local.handles import FileHandle, Handle, HandleTable
from execworld.machine.operations import Operation
from execworld.machine.values import (
    HandleRef,
    PathPart,
    PathRef,
    Spawned,
)

Executors: TypeAlias = "Mapping[type[Operation[Any]], Callable[[BatchRun, Any], object]]"


class StepFailed(Exception):
    """A step failed in a way that an error number alone does not tell."""

    def __init__(self, status: int, detail: int = 0) -> None:
        super().__init__(f"status {status}, detail {detail}")
        self.error = StepError(status, detail)


class BatchCancelled(Exception):
    """The run was given up and unwound. Nobody waits for this."""


class BatchRun:
    """Executes the steps of one batch once.

    `execute` runs in a worker thread. Any other thread may call `cancel` at any time; one of the two then
    undoes what the run did, however long a system call keeps the worker.

    Handles that the run opens stay its own until its last step succeeded; only then are they entered in the
    table.
    """

    __slots__ = (
        "_batch",
        "_borrowed",
        "_cancelled",
        "_discard",
        "_executors",
        "_finished",
        "_foreign",
        "_next_handle",
        "_opened",
        "_started",
        "_state",
        "_succeeded",
        "_table",
        "_values",
    )

    def __init__(
        self,
        batch: Batch,
        executors: Executors,
        table: HandleTable,
        next_handle: Callable[[], int],
        discard: Callable[[int], None],
    ) -> None:
        self._batch = batch
        self._executors = executors
        self._table = table
        self._next_handle = next_handle
        self._discard = discard
        self._values: list[object] = []
        self._opened: dict[int, Handle] = {}
        self._borrowed: dict[int, Handle] = {}
        self._foreign: list[int] = []
        self._state = threading.Lock()
        self._cancelled = self._started = self._succeeded = False
        self._finished = threading.Lock()
        self._finished.acquire()

    def execute(self) -> Results:
        """Run all steps.

        Raises:
            BatchFailed: see `Machine.run`.
        """
        with self._state:
            if self._cancelled:
                raise BatchCancelled
            self._started = True
        try:
            for index, step in enumerate(self._batch.steps):
                if self._cancelled:
                    raise BatchCancelled
                try:
                    value = self._executors[type(step.operation)](self, step.operation)
                except (OSError, StepFailed, ValueError, OverflowError, MemoryError) as error:
                    value = _step_error(error)
                    if value.status not in step.tolerate:
                        results = Results(tuple(self._values))
                        raise BatchFailed(index, value, results) from error
                self._values.append(value)
            with self._state:
                if self._cancelled:
                    raise BatchCancelled
                if self._opened and not self._table.insert(self._opened):
                    closed = StepError(errno.ESHUTDOWN)
                    raise BatchFailed(len(self._values) - 1, closed, Results(tuple(self._values)))
                self._succeeded = True
            return Results(tuple(self._values))
        finally:
            if not self._succeeded:
                self._unwind()
            self._give_back()
            self._finished.release()

    def cancel(self, patience_s: float) -> None:
        """Have the run undone, and wait a bounded time for that. Blocks; for a worker thread."""
        if self.request_cancel() and self._finished.acquire(timeout=patience_s) and self._succeeded:
            for number in self._opened:
                # Borrowed, so that undo still finds what another task cannot know of yet.
                handle = self._table.borrow(number)
                if handle is not None:
                    self._borrowed[number] = handle
                    self._table.release(number)
            self._undo()
            self._discard_foreign()
            self._give_back()

    def request_cancel(self) -> bool:
        """Have the run stop before its next step. False when it had not begun, and now never will."""
        with self._state:
            self._cancelled = True
            return self._started

    # What the operations use

    def value(self, step: int) -> object:
        """The result of an earlier step, or its tolerated error."""
        if not 0 <= step < len(self._values):
            raise StepFailed(errno.EINVAL)
        return self._values[step]

    def path(self, path: bytes | PathRef) -> bytes:
        if isinstance(path, bytes):
            return path
        value = self.value(path.step)
        if not isinstance(value, bytes):
            raise StepFailed(errno.EINVAL)
        if path.part is PathPart.WHOLE:
            return value
        parent, _, name = value.rstrip(b"/").rpartition(b"/")
        if path.part is PathPart.PARENT:
            return parent or b"/"
        return name or b"."

    def handle(self, reference: int | HandleRef) -> Handle:
        if isinstance(reference, HandleRef):
            value = self.value(reference.step)
            if not isinstance(value, int):
                raise StepFailed(errno.EBADF)
            number = value
        else:
            number = reference
        handle = self._opened.get(number) or self._borrowed.get(number)
        if handle is None:
            handle = self._table.borrow(number)
            if handle is None:
                raise StepFailed(errno.EBADF)
            self._borrowed[number] = handle
        return handle

    def file(self, reference: int | HandleRef) -> FileHandle:
        handle = self.handle(reference)
        if not isinstance(handle, FileHandle):
            raise StepFailed(errno.EBADF)
        return handle

    def directory(self, reference: int | HandleRef | None) -> int | None:
        return None if reference is None else self.file(reference).descriptor

    def opened(self, handle: Handle) -> int:
        """Number a handle that a step opened."""
        number = self._next_handle()
        self._opened[number] = handle
        return number

    def opened_elsewhere(self, number: int) -> None:
        """Note a process or connection that a step started; its handle is kept by others."""
        self._foreign.append(number)

    def close(self, reference: int | HandleRef) -> None:
        number = reference
        if isinstance(number, HandleRef):
            value = self.value(number.step)
            if isinstance(value, Spawned):
                value = value.handle
            if not isinstance(value, int):
                raise StepFailed(errno.EBADF)
            number = value
        if number in self._foreign:
            self._foreign.remove(number)
            self._discard(number)
            return
        own = self._opened.pop(number, None)
        if own is not None:
            own.free()
            return
        borrowed = self._borrowed.pop(number, None)
        if borrowed is not None:
            self._table.give_back(borrowed)
        if not self._table.release(number):
            raise StepFailed(errno.EBADF)

    # Unwinding

    def _unwind(self) -> None:
        self._undo()
        self._discard_foreign()
        for handle in self._opened.values():
            _free(handle)
        self._opened.clear()

    def _undo(self) -> None:
        for step, value in zip(
            reversed(self._batch.steps[: len(self._values)]), reversed(self._values), strict=True
        ):
            if step.undo is None or isinstance(value, StepError):
                continue
            try:
                self._executors[type(step.undo)](self, step.undo)
            except (OSError, StepFailed, ValueError, OverflowError, MemoryError):
                continue  # the waist promises an attempt; what the caller hears of is why the batch failed

    def _discard_foreign(self) -> None:
        for number in self._foreign:
            self._discard(number)
        self._foreign.clear()

    def _give_back(self) -> None:
        for handle in self._borrowed.values():
            try:
                self._table.give_back(handle)
            except OSError:
                continue  # close(2) of a handle that was released meanwhile; whoever released it has gone on
        self._borrowed.clear()


def _free(handle: Handle) -> None:
    try:
        handle.free()
    except OSError:
        return  # the content is given up anyway


_NUMBER_OF: Final[Mapping[type[Exception], int]] = {
    ValueError: errno.EINVAL,  # a NUL in a path
    OverflowError: errno.EOVERFLOW,
    MemoryError: errno.ENOMEM,
}


def _step_error(error: Exception) -> StepError:
    if isinstance(error, StepFailed):
        return error.error
    if isinstance(error, OSError):
        return StepError(error.errno or errno.EIO)
    for kind, number in _NUMBER_OF.items():
        if isinstance(error, kind):
            return StepError(number)
    raise error
