"""All calls of one step of an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import anyio

from execworld.seams.values import value_class
from execworld.tools.calls import ToolResult
from execworld.tools.cancellation import Cancellation
from execworld.tools.pipeline import Pipeline
from execworld.tools.running import CallRun
from execworld.tools.session import ToolSession

DEFAULT_PARALLEL: Final = 10


@value_class
class CallRequest:
    """A call that a model asks for; as of `Pipeline.call`."""

    name: str
    arguments: object


async def call_batch(
    pipeline: Pipeline,
    session: ToolSession,
    requests: Sequence[CallRequest],
    *,
    parallel: int = DEFAULT_PARALLEL,
    cancellation: Cancellation | None = None,
    on_result: Callable[[ToolResult], None] = lambda _: None,
) -> tuple[ToolResult, ...]:
    """Make all of these calls, and give their results in the same order.

    Policies and guards judge one call at a time, in order. Calls of tools that are parallel-safe when they start
    overlap; any other one waits for all before it and keeps those behind it waiting. After a cancellation nothing more
    is started; what was is waited for, and each call that was not has a result that says so.

    Args:
        parallel: How many bodies may run at a time.
        on_result: Gets each result, in order, as soon as those before it are there. It must not raise.
    """
    batch = _Batch(parallel, cancellation or Cancellation(), on_result, len(requests))
    async with anyio.create_task_group() as group:
        for index, request in enumerate(requests):
            run = pipeline.begin(session, request.name, request.arguments, cancellation=batch.cancellation)
            if not _is_parallel_safe(pipeline, session, request.name):
                await batch.wait_idle()
                await batch.judge(run)
                await batch.finish(index, run)
                continue
            await batch.wait_room()
            await batch.judge(run)
            batch.running += 1
            group.start_soon(batch.finish_beside, index, run)
    return batch.results


def _is_parallel_safe(pipeline: Pipeline, session: ToolSession, name: str) -> bool:
    tool = pipeline.tool(session, name)
    return tool is not None and tool.parallel_safe is True


class _Batch:
    """What is under way of a batch."""

    def __init__(
        self,
        parallel: int,
        cancellation: Cancellation,
        on_result: Callable[[ToolResult], None],
        count: int,
    ) -> None:
        self.cancellation: Final = cancellation
        self.running = 0
        self._parallel = parallel
        self._on_result = on_result
        self._found: list[ToolResult | None] = [None] * count
        self._told = 0
        self._changed = anyio.Event()

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(result for result in self._found if result is not None)

    async def judge(self, run: CallRun) -> None:
        if self.cancellation.cancelled:
            run.skip()
        await run.judge()

    async def wait_idle(self) -> None:
        while self.running:
            await self._changed.wait()

    async def wait_room(self) -> None:
        while self.running >= self._parallel:
            await self._changed.wait()

    async def finish_beside(self, index: int, run: CallRun) -> None:
        try:
            await self.finish(index, run)
        finally:
            self.running -= 1
            self._changed.set()
            self._changed = anyio.Event()

    async def finish(self, index: int, run: CallRun) -> None:
        await run.execute()
        self._found[index] = await run.settle()
        while self._told < len(self._found) and (result := self._found[self._told]) is not None:
            self._told += 1
            self._on_result(result)
