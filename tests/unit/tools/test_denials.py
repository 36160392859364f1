"""A call that somebody denied does not run: whatever the order of listeners, the way it is made and the wrappers."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from execworld.kernel import WORLD, Context, Next, open_kernel
from execworld.tools.approval import APPROVAL, Answer, ApprovalRequest
from execworld.tools.batches import CallRequest, call_batch
from execworld.tools.calls import ToolCall, ToolContext
from execworld.tools.content import Text
from execworld.tools.decisions import EXECUTE, PRE_EXECUTE, Allow, Ask, Deny, Outcome, PreDecision, Success
from execworld.tools.definition import Tool
from execworld.tools.pipeline import PIPELINE, Pipeline, tool_pipeline
from execworld.tools.session import ToolSession
from execworld.world import open_world

TARGET = "target"


class Nothing(BaseModel, extra="forbid", frozen=True):
    pass


class Value(BaseModel):
    code: str | None = None


Policy: TypeAlias = tuple[str, str, bool]
"""What it does with the others' answer, what it says itself, and whether it goes before the others."""

policies = st.lists(
    st.tuples(
        st.sampled_from(["ignore", "hear", "swallow", "cancel"]),
        st.sampled_from(["allow", "ask", "deny", "raise", "nonsense"]),
        st.booleans(),
    ),
    max_size=5,
)
guards = st.lists(st.sampled_from(["abstain", "deny", "raise", "false", "empty"]), max_size=3)
wrappers = st.lists(st.sampled_from(["plain", "retry", "invent", "swallow"]), max_size=3)
answers = st.one_of(st.none(), st.sampled_from(list(Answer)))
ways = st.sampled_from(["direct", "nested", "nested twice", "background", "batch"])


def listen(root: Context, policy: Policy) -> None:
    heard, says, prepend = policy

    async def decide(call: ToolCall, go_on: Next[ToolCall, PreDecision]) -> PreDecision:
        if call.name != TARGET:
            return await go_on()
        if heard == "hear":
            await go_on()
        elif heard == "swallow":
            try:
                await go_on()
            except Exception:  # noqa: BLE001 - a policy that does not want to know
                pass
        elif heard == "cancel":
            with anyio.CancelScope() as scope:
                scope.cancel()
                await go_on()
        if says == "raise":
            raise RuntimeError("broken policy")
        found: dict[str, PreDecision] = {"allow": Allow(), "ask": Ask(), "deny": Deny("no")}
        return found.get(says, True)  # type: ignore[arg-type]  # nonsense is one of the cases

    root.on(PRE_EXECUTE, decide, prepend=prepend)


def guard(pipeline: Pipeline, root: Context, kind: str) -> None:
    def check(call: ToolCall) -> str | None:
        if call.name != TARGET or kind == "abstain":
            return None
        if kind == "raise":
            raise RuntimeError("broken guard")
        found: str = {"deny": "no", "empty": "", "false": False}[kind]  # type: ignore[assignment]  # one is nonsense
        return found

    pipeline.guards.add(root, check)


def wrap(root: Context, kind: str) -> None:
    async def around(call: ToolCall, go_on: Next[ToolCall, Outcome]) -> Outcome:
        if kind == "invent" and call.name == TARGET:
            return Success({"code": "invented"})
        try:
            outcome = await go_on()
            return await go_on() if kind == "retry" and call.name == TARGET else outcome
        except RuntimeError:
            if kind != "swallow":
                raise
            return await go_on()

    root.on(EXECUTE, around)


class Person:
    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    async def ask(self, request: ApprovalRequest) -> Answer:
        return self.answer


def may_run(found: list[Policy], checks: list[str], answer: Answer | None) -> bool:
    """What must hold of all plugins for the body to run. Written by itself, and not as the pipeline has it."""
    if any(says in ("deny", "raise", "nonsense") for _, says, _ in found):
        return False
    if any(says == "ask" for _, says, _ in found) and answer is not Answer.ALLOWED_ONCE:
        return False
    return all(check == "abstain" for check in checks)


@pytest.mark.slow
@pytest.mark.anyio
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(found=policies, checks=guards, around=wrappers, answer=answers, way=ways)
async def test_no_arrangement_revives_a_denied_call(
    tmp_path: Path,
    found: list[Policy],
    checks: list[str],
    around: list[str],
    answer: Answer | None,
    way: str,
) -> None:
    ran: list[str] = []
    async with open_kernel(on_error=lambda _: None) as root, open_world("local", cwd=str(tmp_path)) as world:
        await root.plugin(tool_pipeline)
        root.provide(WORLD, world)
        pipeline = root.get(PIPELINE)
        for policy in found:
            listen(root, policy)
        for kind in checks:
            guard(pipeline, root, kind)
        for kind in around:
            wrap(root, kind)
        if answer is not None:
            root.provide(APPROVAL, Person(answer))

        async def target(ctx: ToolContext, arguments: Nothing) -> Value:
            ran.append(TARGET)
            return Value()

        async def outer(ctx: ToolContext, arguments: Nothing) -> Value:
            return Value(code=(await ctx.call_tool(TARGET, "")).code)

        async def outermost(ctx: ToolContext, arguments: Nothing) -> Value:
            return Value(code=(await ctx.call_tool("outer", "")).code)

        async def later(ctx: ToolContext, arguments: Nothing) -> Value:
            root.start_soon(ctx.call_tool, TARGET, "")
            return Value()

        for name, body in ((TARGET, target), ("outer", outer), ("outermost", outermost), ("later", later)):
            pipeline.registry.add(root, Tool(name, "Does.", Nothing, Value, body, lambda _, __: (Text(""),)))
        async with ToolSession(str(tmp_path)) as session:
            if way == "batch":
                await call_batch(pipeline, session, [CallRequest(TARGET, ""), CallRequest(TARGET, "")])
            else:
                names = {
                    "direct": TARGET,
                    "nested": "outer",
                    "nested twice": "outermost",
                    "background": "later",
                }
                await pipeline.call(session, names[way], "")
            await anyio.wait_all_tasks_blocked()
    allowed = may_run(found, checks, answer)
    assert not ran or allowed
    loses = any(heard == "cancel" for heard, _, _ in found)  # if those behind it wait for anything
    if allowed and not loses and "invent" not in around:
        assert ran
