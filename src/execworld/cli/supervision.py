"""Run an async function so that a signal ends it in an orderly way."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from execworld.cli.messages import Interrupted, say

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_supervised(function: Callable[[], Awaitable[int]]) -> int:
    """Run *function* in an event loop and return its exit code.

    The first INT, TERM or HUP cancels it; what it had opened is closed. Further ones change nothing: a cleanup that
    is cut short leaves processes behind. A signal that this process was started with as ignored stays ignored (nohup).

    Raises:
        Interrupted: a signal cancelled it; the cause is what went wrong during the cleanup, if anything.
    """
    return anyio.run(_supervise, function)


async def _supervise(function: Callable[[], Awaitable[int]]) -> int:
    numbers = [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.getsignal(number) for number in numbers}
    received: list[int] = []
    code: int | None = None
    failure: BaseException | None = None
    async with anyio.create_task_group() as watching:
        work = anyio.CancelScope()

        async def watch(signals: AsyncIterator[signal.Signals]) -> None:
            async for number in signals:
                if received:
                    say("execworld: still cleaning up; nothing is left running when it is done")
                received.append(number)
                work.cancel()

        with anyio.open_signal_receiver(*numbers) as signals:
            watching.start_soon(watch, signals)
            try:
                with work:
                    code = await function()
            except Exception as error:  # noqa: BLE001 - the task group would wrap it; it is raised below
                failure = error
            watching.cancel_scope.cancel()
        # asyncio would leave SIGINT to KeyboardInterrupt, wherever the program is on its way out.
        for number, handler in before.items():
            signal.signal(number, handler)
    if code is None and received:
        raise Interrupted(received[0]) from failure
    if failure is not None:
        raise failure
    assert code is not None
    return code
