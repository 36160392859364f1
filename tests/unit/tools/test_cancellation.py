"""How a call ends before it is done, and the calls that bodies make."""

from __future__ import annotations

from typing import Any, cast

import anyio
import anyio.lowlevel
import pytest
from tests.unit.tools.conftest import Bench, Said, Say, breaking, decide, watch

from execworld.seams import ErrorCode, FileMissing
from execworld.tools.approval import APPROVAL, Answer, ApprovalRequest
from execworld.tools.calls import ToolCall, ToolContext
from execworld.tools.cancellation import Cancellation
from execworld.tools.decisions import (
    EXECUTE,
    PRE_EXECUTE,
    Allow,
    Ask,
    Deny,
    PreDecision,
)
from execworld.tools.hold_time import hold_time

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]


# --- cancellation ---


async def test_a_call_that_is_cancelled_before_is_asked_about_by_nobody(bench: Bench) -> None:
    bench.tool()
    watch(bench)
    bench.root.on(PRE_EXECUTE, breaking)
    cancellation = Cancellation()
    cancellation.cancel()
    result = await bench.pipeline.call(bench.session, "say", "", cancellation=cancellation)
    assert result.code == ErrorCode.ABORTED_BEFORE_DISPATCH
    assert bench.trace == ["result ABORTED_BEFORE_DISPATCH"]


@pytest.mark.parametrize("place", ["policy", "approval", "wrapper"])
async def test_a_cancellation_on_the_way_keeps_the_body_from_starting(bench: Bench, place: str) -> None:
    bench.tool()
    watch(bench)
    cancellation = Cancellation()

    async def stop(*_: object) -> Any:
        cancellation.cancel()
        await anyio.sleep_forever()

    class Stopping:
        async def ask(self, request: ApprovalRequest) -> Answer:
            answer: Answer = await stop()
            return answer

    if place == "approval":
        decide(bench, Ask())
        bench.root.provide(APPROVAL, Stopping())
    else:
        bench.root.on(cast("Any", PRE_EXECUTE if place == "policy" else EXECUTE), stop)
    result = await bench.pipeline.call(bench.session, "say", "", cancellation=cancellation)
    assert result.code == ErrorCode.ABORTED_BEFORE_DISPATCH
    assert bench.trace == ["post ABORTED_BEFORE_DISPATCH", "result ABORTED_BEFORE_DISPATCH"]


async def test_a_denial_that_settles_after_the_cancellation_stays_a_denial(bench: Bench) -> None:
    bench.tool()
    cancellation = Cancellation()

    def deny(call: ToolCall, go_on: object) -> PreDecision:
        cancellation.cancel()
        return Deny("no")

    bench.root.on(PRE_EXECUTE, deny)
    result = await bench.pipeline.call(bench.session, "say", "", cancellation=cancellation)
    assert result.code == ErrorCode.TOOL_DENIED


async def test_a_body_is_awaited_and_its_success_after_a_cancellation_is_none(bench: Bench) -> None:
    cancellation = Cancellation()

    async def stubborn(ctx: ToolContext, arguments: Say) -> Said:
        ctx.add_context("seen")
        cancellation.cancel()
        with anyio.CancelScope(shield=True):
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
        bench.trace.append("end of the body")
        return Said(word="done")

    bench.tool("say", stubborn)
    watch(bench)
    result = await bench.pipeline.call(bench.session, "say", "", cancellation=cancellation)
    assert (result.code, result.contexts) == (ErrorCode.ABORTED, ("seen",))
    assert bench.trace == ["body of say", "end of the body", "post ABORTED", "result ABORTED"]


async def test_a_failure_of_the_body_after_a_cancellation_says_more_than_that(bench: Bench) -> None:
    cancellation = Cancellation()

    async def failing(ctx: ToolContext, arguments: Say) -> Said:
        cancellation.cancel()
        raise FileMissing("gone")

    bench.tool("say", failing)
    result = await bench.pipeline.call(bench.session, "say", "", cancellation=cancellation)
    assert result.code == ErrorCode.FS_NOT_FOUND


async def test_when_the_waiting_task_is_cancelled_the_body_ends_first_and_watchers_know(bench: Bench) -> None:
    async def forever(ctx: ToolContext, arguments: Say) -> Said:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            bench.trace.append("end of the body")
        raise AssertionError

    bench.tool("say", forever)
    watch(bench)
    with anyio.CancelScope() as scope:
        await bench.call()
    assert scope.cancelled_caught
    assert bench.trace == ["body of say", "end of the body", "result ABORTED"]


# --- time ---


async def test_the_time_of_a_tool_is_held_and_its_body_waited_for(bench: Bench) -> None:
    async def forever(ctx: ToolContext, arguments: Say) -> Said:
        try:
            await anyio.sleep_forever()
        finally:
            bench.trace.append("end of the body")
        raise AssertionError

    await bench.root.plugin(hold_time)
    bench.tool("say", forever, timeout_s=0.01)
    bench.tool("free")
    watch(bench)
    assert (await bench.call()).code == ErrorCode.TOOL_TIMEOUT
    assert (await bench.call("free")).ok
    assert bench.trace[:3] == ["body of say", "end of the body", "post TOOL_TIMEOUT"]


# --- calls that bodies make ---


async def test_a_nested_call_takes_the_same_road_with_the_token_of_its_parent(bench: Bench) -> None:
    seen: list[ToolCall] = []

    async def outer(ctx: ToolContext, arguments: Say) -> Said:
        ctx.add_context("before")
        result = await ctx.call_tool("inner", {"word": "in"})
        ctx.add_context("after")
        return Said(word=f"{result.code or result.text}")

    async def inner(ctx: ToolContext, arguments: Say) -> Said:
        ctx.add_context("inside")
        return Said(word=arguments.word)

    bench.tool("outer", outer)
    bench.tool("inner", inner)

    def note(call: ToolCall, go_on: object) -> PreDecision:
        seen.append(call)
        return Allow()

    bench.root.on(PRE_EXECUTE, note)
    result = await bench.call("outer")
    assert (result.text, result.contexts) == ("in", ("before", "inside", "after"))
    assert (seen[0].parent, seen[1].parent) == (None, seen[0].token)

    bench.pipeline.guards.add(bench.root, lambda call: "no" if call.name == "inner" else None)
    assert (await bench.call("outer")).text == "TOOL_DENIED"


async def test_a_closed_session_calls_nothing(bench: Bench) -> None:
    bench.tool()
    await bench.session.aclose()
    assert (await bench.call()).code == ErrorCode.SESSION_CLOSED
