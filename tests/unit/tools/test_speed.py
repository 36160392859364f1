"""What the road costs. It is printed and holds nobody up: a busy machine is no fault."""

from __future__ import annotations

import statistics
import time

import pytest
from tests.conftest import Note
from tests.unit.tools.conftest import Bench

from execworld.tools.calls import ToolCall
from execworld.tools.decisions import PRE_EXECUTE, Allow, PreDecision
from execworld.tools.hold_time import hold_time


def _nothing(_: ToolCall) -> None:
    return None


@pytest.mark.anyio
@pytest.mark.slow
async def test_the_pipeline_costs_little_beside_any_body(bench: Bench, note: Note) -> None:
    bench.tool(timeout_s=60)
    await bench.root.plugin(hold_time)

    def allow(call: ToolCall, go_on: object) -> PreDecision:
        return Allow()

    bench.root.on(PRE_EXECUTE, allow)
    bench.pipeline.guards.add(bench.root, _nothing)
    times: list[float] = []
    for _ in range(500):
        before = time.perf_counter()
        assert (await bench.call(arguments={"word": "x"})).ok
        times.append(time.perf_counter() - before)
    note(
        f"a call through the pipeline, in ms: {statistics.median(times) * 1000:.3f} (median of {len(times)})"
    )
