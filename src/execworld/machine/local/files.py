"""The files of this host as the waist sees them."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from execworld.machine.base import NoSuchHandle, WatchRecord
from execworld.machine.batch import Batch, Results
from execworld.machine.local.batch import BatchRun, Executors, StepFailed
from execworld.machine.local.file_operations import FILE_EXECUTORS
from execworld.machine.local.handles import HandleTable
from execworld.machine.local.watching import WatchHandle
from execworld.machine.operations import Connect, Spawn
from execworld.machine.values import Spawned

_PATIENCE_S: Final = 3.0
_WORKERS: Final = 40


class LocalFiles:
    """Executes batches on this host, each in one hop to a worker thread.

    Args:
        next_handle: Gives a new handle number; share it with whatever else hands out handles of the same
            machine.
        spawn: Starts a process, in the worker thread, given the resolved program and directory; raises
            `StepFailed` or ``OSError``. Registers the process under the handle that it returns.
        connect: Likewise for a connection.
        discard: Ends and forgets a process or connection of a batch that failed or was cancelled. Called in a
            worker thread, and must not block for long.
        patience_s: How long a cancelled call waits for a system call that does not return.
        executors: What each file operation does, for tests that stage a race between two steps.
    """

    def __init__(
        self,
        *,
        next_handle: Callable[[], int] | None = None,
        spawn: Callable[[Spawn, bytes, bytes], Spawned] | None = None,
        connect: Callable[[Connect], int] | None = None,
        discard: Callable[[int], None] | None = None,
        patience_s: float = _PATIENCE_S,
        executors: Executors = FILE_EXECUTORS,
    ) -> None:
        self._patience_s = patience_s
        self._table = HandleTable()
        self._next_handle = next_handle or itertools.count(1).__next__
        self._discard = discard or _discard_nothing
        self._executors: Executors = {
            **executors,
            Spawn: _spawn_with(spawn),
            Connect: _connect_with(connect),
        }
        # Its own, so that neither other users of threads nor a hung network file system of theirs holds files
        # up.
        self._limiter = anyio.CapacityLimiter(_WORKERS)

    @property
    def open_handles(self) -> int:
        return len(self._table)

    async def run(self, batch: Batch) -> Results:
        """See `Machine.run`.

        A cancelled run is undone, also when its last step had just succeeded. A system call that does not
        return (a dead network file system) is left to its thread after a few seconds; the thread undoes the
        run when it does return.
        """
        run = BatchRun(batch, self._executors, self._table, self._next_handle, self._discard)
        try:
            return await anyio.to_thread.run_sync(run.execute, abandon_on_cancel=True, limiter=self._limiter)
        except anyio.get_cancelled_exc_class():
            if run.request_cancel():
                with anyio.CancelScope(shield=True):
                    # A limiter of its own: the worker that is waited for may hold the last place of the other
                    # one.
                    await anyio.to_thread.run_sync(
                        run.cancel, self._patience_s, limiter=anyio.CapacityLimiter(1)
                    )
            raise

    def run_blocking(self, batch: Batch) -> Results:
        """`run` in the calling thread, without cancellation."""
        return BatchRun(batch, self._executors, self._table, self._next_handle, self._discard).execute()

    async def read_watch(self, handle: int) -> tuple[WatchRecord, ...]:
        """See `Machine.read_watch`.

        Raises:
            NoSuchHandle: it is no watch, or was released, also while this call waits.
        """
        watch = self._table.borrow(handle)
        if watch is None:
            message = f"no handle {handle}"
            raise NoSuchHandle(message)
        try:
            if not isinstance(watch, WatchHandle):
                message = f"handle {handle} is no watch"
                raise NoSuchHandle(message)
            return await watch.read()
        finally:
            self._table.give_back(watch)

    def release(self, handle: int) -> bool:
        """Close and forget a file, walk or watch; False when there is none of that number."""
        try:
            return self._table.release(handle)
        except OSError:
            return True  # close(2) freed the descriptor all the same

    async def release_in_time(self, handle: int) -> None:
        """`release`, in a worker thread: close(2) may ask a file system that does not answer. It is then left to it."""
        with anyio.move_on_after(self._patience_s, shield=True):
            await anyio.to_thread.run_sync(
                self.release, handle, abandon_on_cancel=True, limiter=self._limiter
            )

    async def aclose(self) -> None:
        """`close`, likewise."""
        with anyio.move_on_after(self._patience_s, shield=True):
            await anyio.to_thread.run_sync(
                self.close, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1)
            )

    def close(self) -> None:
        """Close everything, now or when the thread that still uses it is done. Later batches that open
        anything fail.
        """
        self._table.close()


def _discard_nothing(handle: int) -> None:
    return


def _spawn_with(
    spawn: Callable[[Spawn, bytes, bytes], Spawned] | None,
) -> Callable[[BatchRun, Spawn], Spawned]:
    def execute(run: BatchRun, step: Spawn) -> Spawned:
        if spawn is None:
            raise StepFailed(errno.ENOSYS)
        spawned = spawn(step, run.path(step.path), run.path(step.cwd))
        run.opened_elsewhere(spawned.handle)
        return spawned

    return execute


def _connect_with(connect: Callable[[Connect], int] | None) -> Callable[[BatchRun, Connect], int]:
    def execute(run: BatchRun, step: Connect) -> int:
        if connect is None:
            raise StepFailed(errno.ENOSYS)
        handle = connect(step)
        run.opened_elsewhere(handle)
        return handle

    return execute
