"""Blocking calls into an event loop that runs in a thread of its own."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from functools import partial
from typing import Any, Final, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal
from anyio.streams.memory import MemoryObjectSendStream

from execworld.seams import WorldClosed

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")

_SIGNAL_CHECK_S: Final = 0.25


class Task(Generic[ResultT]):
    """An async function that runs in the loop of a bridge while this thread does something else.

    A signal handler may raise between any two steps of this thread. Hence every step can be repeated, and `cancel` is
    right whether the function was begun, was about to be, or has ended.
    """

    def __init__(self, portal: BlockingPortal, function: Callable[[], Awaitable[ResultT]]) -> None:
        self._portal = portal
        self._function = function
        self._begun = False
        self._cancelled = False
        self._scope: anyio.CancelScope | None = None
        self.future: concurrent.futures.Future[ResultT] = concurrent.futures.Future()

    def start(self) -> None:
        """Begin, once.

        Raises:
            WorldClosed: the loop has ended, or is that of this thread, where waiting would be for ever.
        """
        _call_soon(self._portal, self._run)

    def result(self) -> ResultT:
        """Wait and return the result or raise what the function raised, unchanged.

        What a signal handler raises in this thread meanwhile (Ctrl-C) cancels the function; it passes on once
        everything that the function had begun was undone.
        """
        try:
            self.start()
            _await_done(self.future)
        except WorldClosed:
            raise
        except BaseException:
            self.cancel()
            raise
        return self._outcome()

    def result_after_interruption(self) -> ResultT:
        """Like `result`, but an interruption waits for the function instead of cancelling it."""
        interruption = _wait_through(lambda: _await_done(self.future))
        outcome = self._outcome()
        if interruption is not None:
            raise interruption
        return outcome

    def cancel(self) -> None:
        """Cancel the function and wait until it undid what it had begun, however impatient the user is."""
        self._cancelled = True
        try:
            _wait_through(self.start)
            _wait_through(lambda: _call_soon(self._portal, self._cancel_scope))
        except WorldClosed:
            return  # the loop ends only after everything in it
        _wait_through(lambda: _await_done(self.future))

    async def _run(self) -> None:
        if self._begun:
            return
        self._begun = True
        try:
            with anyio.CancelScope() as self._scope:
                if not self._cancelled:
                    await self._settle()
        finally:
            if not self.future.done():
                self.future.cancel()
                self.future.set_running_or_notify_cancel()

    async def _settle(self) -> None:
        try:
            result = await self._function()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller, and would end the loop here
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def _cancel_scope(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def _outcome(self) -> ResultT:
        try:
            return self.future.result()
        except concurrent.futures.CancelledError as error:
            raise WorldClosed("the world was closed during the call") from error


def _call_soon(portal: BlockingPortal, function: Callable[[], object]) -> None:
    try:
        portal.start_task_soon(function)
    except RuntimeError as error:
        raise WorldClosed("the world was closed, or is called from its own event loop") from error


def _await_done(future: concurrent.futures.Future[Any]) -> None:
    """Wait until *future* has a result, and let signal handlers run meanwhile.

    CPython runs handlers in the main thread between two steps. A signal that comes after the last of them but before
    this thread sleeps, or that the kernel gives to another thread, wakes nobody; hence no sleep here is long.
    """
    while not concurrent.futures.wait([future], timeout=_SIGNAL_CHECK_S).done:
        pass


def _wait_through(step: Callable[[], object]) -> BaseException | None:
    """Do *step* to its end; what signal handlers raise meanwhile is returned, the first of it.

    Raises:
        WorldClosed: of *step* itself.
    """
    first: BaseException | None = None
    while True:
        try:
            step()
        except WorldClosed:
            raise
        except BaseException as error:  # noqa: BLE001 - Ctrl-C is not an Exception, and the caller raises it
            first = first or error
        else:
            return first


class Bridge:
    """One event loop in a thread of its own. Its methods may be called from any number of other threads."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._thread = portal.call(threading.get_ident)

    def call(self, function: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Run *function* in the loop and wait for it; see `Task.result`."""
        return Task(self._portal, function).result()

    @contextmanager
    def enter(self, manager: AbstractAsyncContextManager[ResultT]) -> Generator[ResultT]:
        """Hold *manager* open in one task of the loop, so that it is left where it was entered."""
        held: list[ResultT] = []
        settled: concurrent.futures.Future[None] = concurrent.futures.Future()
        # Made in the loop: made here, it would belong to a loop that happens to run in this thread.
        leave = self._portal.call(anyio.Event)

        async def hold() -> None:
            try:
                async with manager as value:
                    held.append(value)
                    settled.set_result(None)
                    await leave.wait()
            finally:
                if not held:
                    settled.set_result(None)

        task = Task(self._portal, hold)
        try:
            task.start()
            _await_done(settled)
        except WorldClosed:
            raise
        except BaseException:
            task.cancel()
            raise
        if not held:
            task.result()
        try:
            yield held[0]
        finally:
            interruption = _wait_through(lambda: _call_soon(self._portal, leave.set))
            task.result_after_interruption()
            if interruption is not None:
                raise interruption

    def iterate(self, iterator: AsyncIterator[ItemT]) -> Iterator[ItemT]:
        """The items of *iterator*; leaving early frees it."""

        async def step() -> tuple[ItemT] | None:
            try:
                return (await anext(iterator),)
            except StopAsyncIteration:
                return None

        try:
            while (item := self.call(step)) is not None:
                yield item[0]
        finally:
            close = getattr(iterator, "aclose", None)
            # The garbage collector may run this in any thread; in the loop's own nobody could wait for it.
            if close is not None and threading.get_ident() != self._thread:
                self.call(close)

    def feed(
        self, function: Callable[[AsyncIterable[ItemT]], Awaitable[ResultT]], items: Iterable[ItemT]
    ) -> ResultT:
        """Run *function* on *items*, which are taken in the calling thread, one when it is wanted.

        An error while taking one cancels the function and passes on unchanged.
        """
        send, receive = anyio.create_memory_object_stream[ItemT](0)

        async def consume() -> ResultT:
            with receive:
                return await function(receive)

        with send:
            task = Task(self._portal, consume)
            try:
                task.start()
                for item in items:
                    if not self.call(partial(_deliver, send, item)):
                        break
                self.call(send.aclose)
            except BaseException:
                task.cancel()
                raise
            return task.result()


async def _deliver(send: MemoryObjectSendStream[ItemT], item: ItemT) -> bool:
    """Whether the other side took the item; when it did not, its own error says why."""
    try:
        await send.send(item)
    except anyio.BrokenResourceError:
        return False
    return True


@contextmanager
def open_bridge(backend: str) -> Generator[Bridge]:
    """Start an event loop in a new thread; leaving the context waits for its calls and ends it."""
    running = start_blocking_portal(backend)
    portal = running.__enter__()
    try:
        yield Bridge(portal)
    finally:
        # Without the error of the body: it would cancel the calls of other threads half way.
        running.__exit__(None, None, None)
