"""Each stage of a call: what it may do, what it may not, and what becomes of the call when it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest
from tests.unit.tools.conftest import Bench, Broken, Said, Say, breaking, decide, repeat, watch

from execworld.kernel import Next
from execworld.seams import ErrorCode, FileMissing
from execworld.tools.approval import APPROVAL, Answer, ApprovalRequest
from execworld.tools.calls import ToolCall, ToolContext, ToolResult
from execworld.tools.cancellation import Cancellation
from execworld.tools.content import Content, Text
from execworld.tools.decisions import (
    EXECUTE,
    POST_EXECUTE,
    PRE_EXECUTE,
    RESULT,
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    Failure,
    Outcome,
    PostDecision,
    PreDecision,
    Success,
)
from execworld.tools.definition import Tool

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]

Decide = Callable[[ToolCall, Next[ToolCall, PreDecision]], Any]


class Person:
    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.requests: list[ApprovalRequest] = []

    async def ask(self, request: ApprovalRequest) -> Answer:
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return cast("Answer", self.answer)


# --- 0: the call ---


async def test_a_call_gives_its_value_and_what_is_shown(bench: Bench) -> None:
    bench.tool()
    result = await bench.call(arguments={"word": "hi"})
    assert (result.ok, result.value, result.text, result.code) == (True, {"word": "hi"}, "hi", None)
    assert result.view_id


async def test_arguments_are_copied_and_frozen_before_anybody_sees_them(bench: Bench) -> None:
    given: dict[str, object] = {"word": "hi"}
    bench.tool()

    def change(call: ToolCall, go_on: object) -> PreDecision:
        given["word"] = "changed"
        with pytest.raises(TypeError):
            cast("dict[str, object]", call.arguments)["word"] = "changed"
        return Allow()

    bench.root.on(PRE_EXECUTE, change)
    result = await bench.call(arguments=given)
    assert result.value == {"word": "hi"}


@pytest.mark.parametrize(
    "lossy", [{"word": float("nan")}, {1: "x"}, {"word": {"a", "b"}}, {"word": "\ud800"}]
)
async def test_lossy_arguments_are_final_and_no_policy_is_asked(bench: Bench, lossy: object) -> None:
    bench.tool()
    watch(bench)
    bench.root.on(PRE_EXECUTE, breaking)
    cancelled = Cancellation()
    cancelled.cancel()
    result = await bench.pipeline.call(bench.session, "say", lossy, cancellation=cancelled)
    assert result.code == ErrorCode.INVALID_ARGS
    assert bench.trace == ["result INVALID_ARGS"]


@pytest.mark.parametrize("text", ["{", '"word"', "[1]", '{"word": 1}', '{"sentence": "x"}', "[" * 100_000])
async def test_arguments_that_no_tool_takes_are_a_failure_that_policies_see(bench: Bench, text: str) -> None:
    bench.tool()
    watch(bench)
    result = await bench.call(arguments=text)
    assert result.code == ErrorCode.INVALID_ARGS
    assert bench.trace == ["post INVALID_ARGS", "result INVALID_ARGS"]


async def test_no_arguments_at_all_are_an_empty_object(bench: Bench) -> None:
    bench.tool()
    assert (await bench.call(arguments=" ")).value == {"word": "hello"}


async def test_an_unknown_tool_is_told_with_those_that_there_are(bench: Bench) -> None:
    bench.tool()
    watch(bench)
    result = await bench.call("sey")
    assert result.code == ErrorCode.UNKNOWN_TOOL
    assert "say" in result.text
    assert bench.trace == ["post UNKNOWN_TOOL", "result UNKNOWN_TOOL"]


# --- 1: pre-execute ---


async def test_a_denial_travels_on_as_a_failure(bench: Bench) -> None:
    bench.tool()
    watch(bench)
    decide(bench, Deny("not today"))
    result = await bench.call()
    assert (result.code, result.value) == (ErrorCode.TOOL_DENIED, None)
    assert "not today" in result.text
    assert bench.trace == ["post TOOL_DENIED", "result TOOL_DENIED"]


async def test_no_listener_can_speak_for_those_behind_it(bench: Bench) -> None:
    """An allow without going on, prepended, leaves the denial of the others as it is."""
    bench.tool()
    decide(bench, Deny("no"))

    async def overrule(call: ToolCall, go_on: Next[ToolCall, PreDecision]) -> PreDecision:
        await go_on()
        return Allow()

    bench.root.on(PRE_EXECUTE, overrule, prepend=True)
    bench.root.on(PRE_EXECUTE, lambda call, go_on: Allow(), prepend=True)
    assert (await bench.call()).code == ErrorCode.TOOL_DENIED
    assert bench.trace == []


async def test_an_error_in_a_policy_is_not_caught_away_by_another(bench: Bench) -> None:
    bench.tool()
    watch(bench)
    bench.root.on(PRE_EXECUTE, breaking)

    async def swallow(call: ToolCall, go_on: Next[ToolCall, PreDecision]) -> PreDecision:
        try:
            return await go_on()
        except Broken:
            return Allow()

    bench.root.on(PRE_EXECUTE, swallow, prepend=True)
    result = await bench.call()
    assert result.code == ErrorCode.TOOL_FAILED
    assert bench.trace == ["result TOOL_FAILED"]


async def test_a_policy_that_loses_the_answer_of_the_others_is_a_failure(bench: Bench) -> None:
    bench.tool()

    async def wait(call: ToolCall, go_on: Next[ToolCall, PreDecision]) -> PreDecision:
        await anyio.sleep_forever()
        return Allow()

    async def lose(call: ToolCall, go_on: Next[ToolCall, PreDecision]) -> PreDecision:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await go_on()
        return Allow()

    bench.root.on(PRE_EXECUTE, lose)
    bench.root.on(PRE_EXECUTE, wait)
    assert (await bench.call()).code == ErrorCode.NEXT_MISUSED
    assert bench.trace == []


async def test_a_policy_cannot_show_another_call_to_those_behind_it(bench: Bench) -> None:
    bench.tool()

    async def forge(call: ToolCall, go_on: Next[ToolCall, PreDecision]) -> PreDecision:
        return await go_on(ToolCall(call.token, call.name, {}, None, call.session))

    bench.root.on(PRE_EXECUTE, forge)
    assert (await bench.call()).code == ErrorCode.NEXT_MISUSED
    assert bench.trace == []


@pytest.mark.parametrize("decision", [None, True, "allow", Accept()])
async def test_what_is_no_decision_lets_nothing_run(bench: Bench, decision: object) -> None:
    bench.tool()
    bench.root.on(PRE_EXECUTE, lambda call, go_on: cast("PreDecision", decision))
    assert (await bench.call()).code == ErrorCode.TOOL_FAILED
    assert bench.trace == []


# --- approval ---


async def test_a_person_allows_once(bench: Bench) -> None:
    person = Person(Answer.ALLOWED_ONCE)
    bench.tool()
    bench.root.provide(APPROVAL, person)
    decide(bench, Ask("is this right?"))
    result = await bench.call()
    assert result.ok
    assert [request.reason for request in person.requests] == ["is this right?"]


async def test_each_answer_but_yes_is_a_denial_with_its_own_text(bench: Bench) -> None:
    bench.tool()
    person = Person(None)
    decide(bench, Ask())
    texts = {(await bench.call()).text}
    bench.root.provide(APPROVAL, person)
    for answer in (Answer.REJECTED, Answer.CANCELLED, Answer.UNAVAILABLE):
        person.answer = answer
        result = await bench.call()
        assert result.code == ErrorCode.TOOL_DENIED
        texts.add(result.text)
    assert len(texts) == 4
    assert bench.trace == []


@pytest.mark.parametrize("answer", [Broken(), True, "allowed-once", None])
async def test_who_breaks_or_says_something_else_has_not_said_yes(bench: Bench, answer: object) -> None:
    bench.tool()
    bench.root.provide(APPROVAL, Person(answer))
    decide(bench, Ask())
    result = await bench.call()
    assert result.code == ErrorCode.TOOL_DENIED
    assert "could not be asked" in result.text
    assert bench.trace == []


# --- 2: guards ---


async def test_a_guard_denies_what_was_allowed_and_approved(bench: Bench) -> None:
    bench.tool()
    watch(bench)
    person = Person(Answer.ALLOWED_ONCE)
    bench.root.provide(APPROVAL, person)
    decide(bench, Ask())
    bench.pipeline.guards.add(bench.root, lambda call: "never")
    result = await bench.call()
    assert result.code == ErrorCode.TOOL_DENIED
    assert "never" in result.text
    assert len(person.requests) == 1
    assert bench.trace == ["post TOOL_DENIED", "result TOOL_DENIED"]


async def test_guards_are_asked_from_the_outside_in_and_the_first_no_counts(bench: Bench) -> None:
    bench.tool()
    order: list[str] = []

    def guard(name: str, reason: str | None = None) -> Callable[[ToolCall], str | None]:
        def check(call: ToolCall) -> str | None:
            order.append(name)
            return reason

        return check

    bench.pipeline.guards.add(bench.root.scoped(bench.session.scope), guard("near", "near"), name="same")
    bench.pipeline.guards.add(bench.root, guard("far"), name="same")
    assert "near" in (await bench.call()).text
    assert order == ["far", "near"]


async def test_no_guard_is_asked_about_what_is_denied_already(bench: Bench) -> None:
    bench.tool()
    decide(bench, Deny("no"))
    bench.pipeline.guards.add(bench.root, breaking)
    assert (await bench.call()).code == ErrorCode.TOOL_DENIED


async def _late(call: ToolCall) -> None:
    return None


def _yes(call: ToolCall) -> bool:
    return True


def _no(call: ToolCall) -> bool:
    return False


GUARDS: list[Any] = [breaking, _late, _yes, _no]


@pytest.mark.parametrize("guard", GUARDS)
async def test_a_guard_that_breaks_or_says_something_else_is_final(bench: Bench, guard: Any) -> None:
    bench.tool()
    watch(bench)
    bench.pipeline.guards.add(bench.root, guard)
    assert (await bench.call()).code == ErrorCode.TOOL_FAILED
    assert bench.trace == ["result TOOL_FAILED"]


# --- 3: wrappers ---


async def test_a_wrapper_retries(bench: Bench) -> None:
    bench.tool()

    async def retry(call: ToolCall, go_on: Next[ToolCall, Outcome]) -> Outcome:
        await go_on()
        return await go_on()

    bench.root.on(EXECUTE, retry)
    assert (await bench.call()).ok
    assert bench.trace == ["body of say"] * 2


async def test_guards_are_asked_again_before_a_retry(bench: Bench) -> None:
    bench.tool()
    answers = iter([None, "enough"])

    async def retry(call: ToolCall, go_on: Next[ToolCall, Outcome]) -> Outcome:
        await go_on()
        return await go_on()

    bench.root.on(EXECUTE, retry)
    bench.pipeline.guards.add(bench.root, lambda call: next(answers))
    assert (await bench.call()).code == ErrorCode.TOOL_DENIED
    assert bench.trace == ["body of say"]


async def test_what_a_wrapper_answers_itself_is_validated_and_shown_like_all_else(bench: Bench) -> None:
    bench.tool()
    answer: list[Outcome] = [Success({"word": "cached"})]
    bench.root.on(EXECUTE, lambda call, go_on: answer[0])
    result = await bench.call()
    assert (result.text, result.value) == ("cached", {"word": "cached"})
    answer[0] = Success({"sentence": "cached"})
    assert (await bench.call()).code == ErrorCode.INVALID_TOOL_OUTPUT
    answer[0] = Failure("MINE", "no")
    assert (await bench.call()).code == "MINE"
    assert bench.trace == []


async def test_a_wrapper_cannot_change_the_call(bench: Bench) -> None:
    bench.tool()
    watch(bench)

    async def forge(call: ToolCall, go_on: Next[ToolCall, Outcome]) -> Outcome:
        return await go_on(ToolCall(call.token, call.name, {"word": "forged"}, None, call.session))

    bench.root.on(EXECUTE, forge)
    assert (await bench.call()).code == ErrorCode.TOOL_FAILED
    assert bench.trace == ["result TOOL_FAILED"]


async def test_a_cancelled_wrapper_keeps_the_body_from_starting(bench: Bench) -> None:
    bench.tool()

    async def cancelled(call: ToolCall, go_on: Next[ToolCall, Outcome]) -> Outcome:
        with anyio.CancelScope() as scope:
            scope.cancel()
            return await go_on()
        return Failure("MINE", "cancelled")

    bench.root.on(EXECUTE, cancelled)
    assert (await bench.call()).code == "MINE"
    assert bench.trace == []


async def test_a_broken_wrapper_is_final(bench: Bench) -> None:
    bench.tool()
    watch(bench)
    bench.root.on(EXECUTE, breaking)
    assert (await bench.call()).code == ErrorCode.TOOL_FAILED
    assert bench.trace == ["result TOOL_FAILED"]


# --- 4: the body ---


async def test_what_a_body_raises_is_a_failure_that_policies_see(bench: Bench) -> None:
    async def missing(ctx: ToolContext, arguments: Say) -> Said:
        raise FileMissing("no such file")

    bench.tool("file", missing)
    bench.tool("bug", breaking)
    watch(bench)
    assert (await bench.call("file")).code == ErrorCode.FS_NOT_FOUND
    assert (await bench.call("bug")).code == ErrorCode.TOOL_FAILED
    assert bench.trace == [
        "body of file",
        "post FS_NOT_FOUND",
        "result FS_NOT_FOUND",
        "body of bug",
        "post TOOL_FAILED",
        "result TOOL_FAILED",
    ]


async def test_a_body_gives_what_its_tool_declares_or_fails(bench: Bench) -> None:
    async def other(ctx: ToolContext, arguments: Say) -> Said:
        return cast("Said", Say())

    async def wrong(ctx: ToolContext, arguments: Say) -> Said:
        return Said.model_construct(word=cast("str", 3))

    async def nothing(ctx: ToolContext, arguments: Say) -> Said:
        return cast("Said", None)

    for name, body in (("other", other), ("wrong", wrong), ("nothing", nothing)):
        bench.tool(name, body)
        assert (await bench.call(name)).code == ErrorCode.INVALID_TOOL_OUTPUT


async def test_a_renderer_that_breaks_is_one_failure(bench: Bench) -> None:
    tool = Tool("say", "Says.", Say, Said, repeat, cast("Any", breaking))
    bench.pipeline.registry.add(bench.root, tool)
    watch(bench)
    assert (await bench.call()).code == ErrorCode.INVALID_TOOL_OUTPUT
    assert bench.trace == ["post INVALID_TOOL_OUTPUT", "result INVALID_TOOL_OUTPUT"]


# --- 5: post-execute ---


def after(bench: Bench, decision: object) -> None:
    bench.root.on(POST_EXECUTE, lambda settled, go_on: cast("PostDecision", decision))


async def test_content_is_replaced_and_the_value_stays(bench: Bench) -> None:
    bench.tool()
    after(bench, Accept(content=(Text("short"),), contexts=("by the way",)))
    result = await bench.call()
    assert (result.text, result.value, result.contexts) == ("short", {"word": "hello"}, ("by the way",))


async def test_a_value_is_replaced_and_shown_anew(bench: Bench) -> None:
    bench.tool()
    after(bench, Accept(value={"word": "else"}))
    result = await bench.call()
    assert (result.text, result.value) == ("else", {"word": "else"})


async def test_a_value_of_a_wrong_kind_is_no_replacement(bench: Bench) -> None:
    bench.tool()
    after(bench, Accept(value={"wrong": 1}))
    assert (await bench.call()).code == ErrorCode.INVALID_TOOL_OUTPUT


@pytest.mark.parametrize(
    "decision", [Accept(content=(Text("x"),), value={"word": "y"}), None, Accept(contexts=cast("Any", (1,)))]
)
async def test_what_is_no_decision_about_an_outcome_holds_it_back(bench: Bench, decision: object) -> None:
    bench.tool()
    after(bench, decision)
    result = await bench.call()
    assert (result.ok, result.value, result.code) == (False, None, ErrorCode.TOOL_FAILED)
    assert "hello" not in result.text


async def test_a_failure_has_no_value_to_replace(bench: Bench) -> None:
    bench.tool("bug", breaking)
    after(bench, Accept(value={"word": "fine"}))
    result = await bench.call("bug")
    assert (result.ok, result.code) == (False, ErrorCode.TOOL_FAILED)


async def test_a_block_gives_its_feedback_alone(bench: Bench) -> None:
    async def body(ctx: ToolContext, arguments: Say) -> Said:
        ctx.add_context("of the body")
        return Said(word="secret")

    bench.tool("say", body)
    after(bench, Accept(content=(Text("secret"),)))
    after(bench, Block("not for you", ("of the block",)))
    result = await bench.call()
    assert (result.ok, result.value, result.contexts) == (False, None, ("of the block",))
    assert result.code == ErrorCode.TOOL_BLOCKED
    assert "secret" not in result.text


async def test_a_broken_listener_after_the_body_is_final_and_holds_the_outcome_back(bench: Bench) -> None:
    bench.tool()
    bench.root.on(POST_EXECUTE, breaking)
    result = await bench.call()
    assert (result.ok, result.value, result.code) == (False, None, ErrorCode.TOOL_FAILED)


# --- 6 and 7: what is shown, and the result ---


def finalized(bench: Bench, finalize: Callable[[Content], Content | None], run: Any = repeat) -> None:
    def show(arguments: Say, value: Said) -> Content:
        return (Text(value.word),)

    tool = Tool("say", "Says.", Say, Said, run, show, finalize=finalize, limit_bytes=64)
    bench.pipeline.registry.add(bench.root, tool)


async def test_content_is_finalized_once_also_of_a_failure(bench: Bench) -> None:
    seen: list[Content] = []

    def finalize(content: Content) -> Content | None:
        seen.append(content)
        return (Text("final"),)

    finalized(bench, finalize, breaking)
    result = await bench.call()
    assert (result.ok, result.text, len(seen)) == (False, "final", 1)
    await bench.call(arguments={"word": float("inf")})
    assert len(seen) == 2


async def test_a_broken_finalizer_is_called_once_and_makes_a_failure(bench: Bench) -> None:
    seen: list[Content] = []

    def finalize(content: Content) -> Content | None:
        seen.append(content)
        raise Broken

    finalized(bench, finalize)
    result = await bench.call()
    assert (result.ok, result.code, len(seen)) == (False, ErrorCode.INVALID_TOOL_OUTPUT, 1)


async def test_no_answer_of_a_finalizer_keeps_the_content(bench: Bench) -> None:
    finalized(bench, lambda content: None)
    assert (await bench.call()).text == "hello"


async def test_text_is_within_the_limit_of_its_tool_also_of_a_denial(bench: Bench) -> None:
    bench.tool(limit_bytes=64)
    decide(bench, Deny("x" * 1000))
    assert len((await bench.call()).text.encode()) <= 64


async def test_who_watches_gets_the_very_result_and_changes_nothing(bench: Bench) -> None:
    seen: list[ToolResult] = []
    bench.tool()
    bench.root.on(RESULT, seen.append)
    bench.root.on(RESULT, breaking)
    bench.root.on(RESULT, seen.append)
    result = await bench.call()
    assert result.ok
    assert [each is result for each in seen] == [True, True]
    assert [type(report.error) for report in bench.reports] == [Broken]
    with pytest.raises(AttributeError):
        result.ok = False  # type: ignore[misc]  # this is the test
