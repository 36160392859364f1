"""The calls of one step: what overlaps, in which order all of it is judged and told, and what a cancellation leaves."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest
from tests.unit.tools.conftest import Bench, Said, Say

from execworld.kernel import Next
from execworld.seams import ErrorCode
from execworld.tools.batches import CallRequest, call_batch
from execworld.tools.calls import ToolCall, ToolContext, ToolResult
from execworld.tools.cancellation import Cancellation
from execworld.tools.decisions import PRE_EXECUTE, PreDecision

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]


class Crowd:
    """Bodies that are inside at the same time."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.inside = 0
        self.most = 0
        self.alone: list[bool] = []

    async def together(self, ctx: ToolContext, arguments: Say) -> Said:
        self.inside += 1
        self.most = max(self.most, self.inside)
        for _ in range(10 - int(arguments.word)):
            await anyio.lowlevel.checkpoint()
        self.inside -= 1
        return Said(word=arguments.word)

    async def exclusive(self, ctx: ToolContext, arguments: Say) -> Said:
        self.alone.append(self.inside == 0)
        await anyio.lowlevel.checkpoint()
        self.alone.append(self.inside == 0)
        return Said(word=arguments.word)

    def requests(self, names: str) -> list[CallRequest]:
        return [
            CallRequest({"p": "together", "x": "exclusive"}[name], {"word": str(index)})
            for index, name in enumerate(names)
        ]


@pytest.fixture
def crowd(bench: Bench) -> Crowd:
    found = Crowd(bench)
    bench.tool("together", found.together, parallel_safe=True)
    bench.tool("exclusive", found.exclusive)
    return found


async def test_safe_calls_overlap_and_any_other_is_alone(bench: Bench, crowd: Crowd) -> None:
    told: list[ToolResult] = []
    results = await call_batch(bench.pipeline, bench.session, crowd.requests("pppxpp"), on_result=told.append)
    assert [result.text for result in results] == list("012345")
    assert told == list(results)
    assert crowd.most == 3
    assert crowd.alone == [True, True]


async def test_no_more_run_at_a_time_than_are_allowed(bench: Bench, crowd: Crowd) -> None:
    await call_batch(bench.pipeline, bench.session, crowd.requests("pppppp"), parallel=2)
    assert crowd.most == 2


async def test_calls_are_judged_one_at_a_time_in_their_order(bench: Bench, crowd: Crowd) -> None:
    judged: list[str] = []

    async def judge(call: ToolCall, go_on: Next[ToolCall, PreDecision]) -> PreDecision:
        judged.append(f"in {call.argument('word')}")
        await anyio.lowlevel.checkpoint()
        judged.append(f"out {call.argument('word')}")
        return await go_on()

    bench.root.on(PRE_EXECUTE, judge)
    await call_batch(bench.pipeline, bench.session, crowd.requests("ppxp"))
    assert judged == [f"{way} {index}" for index in range(4) for way in ("in", "out")]


async def test_what_a_cancellation_leaves_has_a_result_all_the_same(bench: Bench, crowd: Crowd) -> None:
    cancellation = Cancellation()

    async def stop(ctx: ToolContext, arguments: Say) -> Said:
        cancellation.cancel()
        await anyio.sleep_forever()
        raise AssertionError

    bench.tool("stop", stop)
    requests = [*crowd.requests("p"), CallRequest("stop", ""), *crowd.requests("px")]
    results = await call_batch(bench.pipeline, bench.session, requests, cancellation=cancellation)
    assert [result.code for result in results] == [
        None,
        ErrorCode.ABORTED,
        ErrorCode.ABORTED_BEFORE_DISPATCH,
        ErrorCode.ABORTED_BEFORE_DISPATCH,
    ]
