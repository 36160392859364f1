"""One call on its road: judged, run, settled."""

from __future__ import annotations

import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint_if_cancelled
from pydantic import BaseModel

from execworld.kernel import WORLD, Context
from execworld.seams import (
    ErrorCode,
    ExecworldError,
    InvalidToolOutput,
    SandboxMode,
    SandboxPolicy,
    ServiceUnavailable,
    ToolDenied,
    UnknownTool,
    World,
    WorldMismatch,
)
from execworld.tools.approval import APPROVAL, NOBODY_TO_ASK, REFUSALS, Answer, ApprovalRequest, answer_of
from execworld.tools.calls import ToolCall, ToolContext, ToolResult
from execworld.tools.cancellation import Cancellation
from execworld.tools.content import DEFAULT_LIMIT_BYTES, Content
from execworld.tools.decisions import (
    EXECUTE,
    POST_EXECUTE,
    PRE_EXECUTE,
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    Failure,
    Outcome,
    PostDecision,
    Settled,
    Success,
    blocked_stays_blocked,
    strictest,
)
from execworld.tools.escalation import WIDER_VIEWS, WiderViews, question, requested_escalation, widened
from execworld.tools.json_values import Json, LossyJson
from execworld.tools.showing import checked_content, failure_content, limited
from execworld.tools.validation import canonical, parse_arguments, validated_arguments

if TYPE_CHECKING:
    from execworld.tools.pipeline import Pipeline
    from execworld.tools.session import ToolSession

Phase = Callable[[], Awaitable[None]]

_ABORTED = Failure(ErrorCode.ABORTED, "the call was cancelled while it ran")
_ABORTED_BEFORE = Failure(
    ErrorCode.ABORTED_BEFORE_DISPATCH, "the call was cancelled before it began; nothing ran"
)


class CallRun:
    """One call. `judge`, `execute` and `settle` are called once each, in this order."""

    def __init__(
        self,
        pipeline: Pipeline,
        ctx: Context,
        session: ToolSession,
        name: str,
        arguments: object,
        cancellation: Cancellation,
        parent: str | None,
        on_progress: Callable[[str], None],
    ) -> None:
        self._pipeline = pipeline
        self._ctx = ctx
        self._cancellation = cancellation
        self._on_progress = on_progress
        self._started = time.monotonic()
        self._outcome: Outcome | None = None
        self._skips_post = False
        self._entered = False
        self._runs = 0
        self._wider: tuple[WiderViews, SandboxPolicy] | None = None
        self._view: World | None = None
        self._arguments: BaseModel | None = None
        self._canonical: dict[int, tuple[Success, BaseModel]] = {}
        self._deferred: list[str] = []
        self._content: Content = ()
        self._body_failure: Failure | None = None
        try:
            frozen, problem = parse_arguments(arguments), ""
        except LossyJson as error:
            frozen, problem = None, f"the arguments are not lossless JSON: {error}"
        self.call = ToolCall(secrets.token_hex(8), name, frozen, parent, session)
        self._tool = pipeline.registry.get(ctx, name)
        if problem:
            self._end(Failure(ErrorCode.INVALID_ARGS, problem))
        elif session.closed:
            self._end(Failure(ErrorCode.SESSION_CLOSED, "the session is over"))
        elif cancellation.cancelled:
            self._end(_ABORTED_BEFORE)

    def _end(self, failure: Failure) -> None:
        """What no plugin is asked about any more."""
        self._outcome = failure
        self._skips_post = True

    def skip(self) -> None:
        """Nothing is done of it any more, because it was cancelled."""
        if self._outcome is None:
            self._end(_ABORTED_BEFORE)

    # --- phases ---

    async def judge(self) -> None:
        """Policies, the person, guards."""
        await self._phase(self._judge)

    async def execute(self) -> None:
        """Wrappers and the body."""
        if self._outcome is None:
            await self._phase(self._execute)

    async def _phase(self, phase: Phase) -> None:
        if self._outcome is not None:
            return
        try:
            with self._cancellation.scope() as scope:
                await phase()
        except Exception as error:  # noqa: BLE001 - a plugin on the road broke, and nothing may go around it
            self._end(_failure_of(error))
            return
        except anyio.get_cancelled_exc_class():
            self._end(self._aborted())
            self._finish()  # those who watch are told; whoever waited is being cancelled
            raise
        if scope.cancelled_caught or (scope.cancel_called and not self._has_failed()):
            self._outcome = self._aborted()

    def _has_failed(self) -> bool:
        return isinstance(self._outcome, Failure)

    def _aborted(self) -> Failure:
        if self._body_failure is not None:
            return self._body_failure  # which says more
        return _ABORTED if self._entered else _ABORTED_BEFORE

    async def _judge(self) -> None:
        decision = await self._ctx.waterfall(PRE_EXECUTE, self.call, lambda _: Allow(), merge=strictest)
        if isinstance(decision, Deny):
            self._outcome = Failure(ErrorCode.TOOL_DENIED, decision.reason or "a policy denied this call")
            return
        reasons = (
            [decision.reason or "a policy wants this call to be approved"]
            if isinstance(decision, Ask)
            else []
        )
        try:
            mode = self._prepare_escalation(reasons)
            if reasons:
                await self._ask("\n".join(reasons), mode)
        except ExecworldError as error:
            self._outcome = _failure_of(error)
            return
        await checkpoint_if_cancelled()
        self._consult_guards()

    def _prepare_escalation(self, reasons: list[str]) -> SandboxMode | None:
        """Which sandbox the call is to get; with what is asked about it in *reasons*."""
        if self._tool is None or not self._tool.escalatable:
            return None
        wanted = requested_escalation(self.call.arguments)
        if wanted is None:
            return None
        world = self._world()
        policy = widened(world.policy, wanted.mode, self.call.session.cwd)
        views = self._wider_views(world)
        views.check(policy)
        self._wider = views, policy
        reasons.append(question(self.call, wanted, world.policy))
        return wanted.mode

    async def _ask(self, reason: str, mode: SandboxMode | None) -> None:
        approval = self._ctx.find(APPROVAL)
        if approval is None:
            raise ToolDenied(f"{NOBODY_TO_ASK}: {reason}")
        answer = await answer_of(approval, ApprovalRequest(self.call, reason, mode))
        if answer is not Answer.ALLOWED_ONCE:
            raise ToolDenied(f"{REFUSALS[answer]}: {reason}")

    def _consult_guards(self) -> None:
        reason = self._pipeline.guards.refusal(self._ctx, self.call)
        if reason is not None:
            self._outcome = Failure(ErrorCode.TOOL_DENIED, reason or "a guard denied this call")

    async def _execute(self) -> None:
        outcome = await self._ctx.waterfall(EXECUTE, self.call, self._dispatch, repeats=True)
        if isinstance(outcome, Success):
            self._outcome = self._checked(outcome)
        elif type(outcome) is Failure:
            self._outcome = outcome
        else:
            raise TypeError(f"no outcome of a call: {type(outcome).__name__}")

    # --- the body ---

    async def _dispatch(self, call: ToolCall) -> Outcome:
        if call is not self.call:
            raise TypeError("a wrapper went on with another call")
        self._runs += 1
        if self._runs > 1:
            reason = self._pipeline.guards.refusal(self._ctx, call)
            if reason is not None:
                return Failure(ErrorCode.TOOL_DENIED, reason or "a guard denied this call")
        await checkpoint_if_cancelled()
        try:
            value = await self._run_body()
        except Exception as error:  # noqa: BLE001 - whatever a body raises is the outcome of its call
            self._body_failure = _failure_of(error)
            return self._body_failure
        self._body_failure = None
        return self._checked(Success(value))

    async def _run_body(self) -> object:
        tool = self._tool
        if tool is None:
            known = ", ".join(sorted(self._pipeline.registry.view(self._ctx))) or "none"
            raise _unknown(self.call.name, known)
        arguments = self._validated()
        self._view = await self._open_view()
        body = ToolContext(
            self.call,
            self._view,
            call_tool=self._call_nested,
            on_progress=self._on_progress,
        )
        self._entered = True
        try:
            return await tool.run(body, arguments)
        finally:
            self._deferred.extend(body.contexts)

    def _validated(self) -> BaseModel:
        assert self._tool is not None
        if self._arguments is None:
            self._arguments = validated_arguments(self._tool, self.call.arguments)
        return self._arguments

    async def _open_view(self) -> World:
        world = self._world()
        if self._wider is None:
            return world
        views, policy = self._wider
        # Another world may have the same id, as a second one on this host, and another policy and floor.
        if self._wider_views(world) is not views:
            raise WorldMismatch("the world was replaced meanwhile", op="tools.escalate", world=world.world_id)
        return await views.open(policy)

    def _world(self) -> World:
        world = self._ctx.find(WORLD)
        if world is None:
            raise ServiceUnavailable("no world is open for tools", op="tools.call")
        return world

    def _wider_views(self, world: World) -> WiderViews:
        views = self._ctx.find(WIDER_VIEWS)
        if views is None:
            raise ToolDenied("no wider sandbox can be had here, so nobody was asked")
        if views.world_id != world.world_id:
            raise WorldMismatch("the world was replaced meanwhile", op="tools.escalate", world=world.world_id)
        return views

    async def _call_nested(self, name: str, arguments: object) -> ToolResult:
        return await self._pipeline.call(
            self.call.session,
            name,
            arguments,
            parent=self.call.token,
            cancellation=self._cancellation,
        )

    def _checked(self, outcome: Success) -> Outcome:
        """*outcome* with a value that is canonical, or the failure to have one."""
        if id(outcome) in self._canonical:
            return outcome
        if self._tool is None:
            return Failure(
                ErrorCode.INVALID_TOOL_OUTPUT, f"there is no tool `{self.call.name}` that could give it"
            )
        try:
            model, frozen = canonical(self._tool, outcome.value)
        except InvalidToolOutput as error:
            return _failure_of(error)
        found = Success(frozen)
        self._canonical[id(found)] = (found, model)
        return found

    # --- the result ---

    async def settle(self) -> ToolResult:
        """Whoever may look at the outcome, what is shown of it, and the result."""
        if not self._skips_post:
            self._outcome = self._rendered()
            try:
                await self._after()
            except Exception as error:  # noqa: BLE001 - a plugin on the road broke, and what it was to hold back is held
                self._deferred.clear()
                self._outcome = _failure_of(error)
                self._content = failure_content(self._outcome)
            except anyio.get_cancelled_exc_class():
                self._end(self._aborted())
                self._finish()
                raise
        return self._finish()

    def _rendered(self) -> Outcome:
        """The outcome, shown; or the failure to show it, shown."""
        outcome = self._outcome
        assert outcome is not None
        if isinstance(outcome, Success):
            try:
                self._content = self._render(outcome)
            except Exception as error:  # noqa: BLE001 - a renderer is code of whoever wrote the tool
                message = f"the output of `{self.call.name}` cannot be shown: {error}"
                outcome = Failure(ErrorCode.INVALID_TOOL_OUTPUT, message)
        if isinstance(outcome, Failure):
            self._content = failure_content(outcome)
        return outcome

    def _render(self, outcome: Success) -> Content:
        assert self._tool is not None
        return checked_content(self._tool.render(self._validated(), self._canonical[id(outcome)][1]))

    async def _after(self) -> None:
        settled = self._settled()
        decision: PostDecision = await self._ctx.waterfall(
            POST_EXECUTE, settled, lambda _: Accept(), merge=blocked_stays_blocked
        )
        if isinstance(decision, Block):
            self._deferred.clear()
            self._outcome = Failure(ErrorCode.TOOL_BLOCKED, decision.feedback)
            self._content = failure_content(self._outcome)
        elif decision.value is not None:
            if decision.content is not None or not settled.ok:
                raise TypeError("a value replaces the value of a success, and not together with content")
            self._outcome = self._checked(Success(decision.value))
            self._outcome = self._rendered()
        elif decision.content is not None:
            self._content = checked_content(decision.content)
        self._deferred.extend(_texts(decision.contexts))

    def _settled(self) -> Settled:
        outcome = self._outcome
        if isinstance(outcome, Success):
            return Settled(self.call, True, _json(outcome), self._content, None)
        assert outcome is not None
        return Settled(self.call, False, None, self._content, outcome.code)

    def _finish(self) -> ToolResult:
        outcome = self._outcome
        assert outcome is not None
        if self._skips_post:
            assert isinstance(outcome, Failure)
            self._content = failure_content(outcome)
        tool = self._tool
        if tool is not None and tool.finalize is not None:
            try:
                found = tool.finalize(self._content)
                self._content = self._content if found is None else checked_content(found)
            except Exception as error:  # noqa: BLE001 - it is code of whoever wrote the tool
                outcome = Failure(
                    ErrorCode.INVALID_TOOL_OUTPUT,
                    f"the content of `{self.call.name}` cannot be finalized: {error}",
                )
                self._content = failure_content(outcome)
        limit_bytes = DEFAULT_LIMIT_BYTES if tool is None else tool.limit_bytes
        result = ToolResult(
            call=self.call,
            ok=isinstance(outcome, Success),
            value=_json(outcome) if isinstance(outcome, Success) else None,
            content=limited(self._content, limit_bytes, "head" if tool is None else tool.keep),
            code=None if isinstance(outcome, Success) else str(outcome.code),
            contexts=tuple(self._deferred),
            view_id="" if self._view is None else self._view.view_id,
            enforcement=None if self._view is None else self._view.enforcement,
            duration_s=time.monotonic() - self._started,
        )
        self._pipeline.tell(self._ctx, result)
        return result


def _json(outcome: Success) -> Json:
    """The value of an outcome that was checked."""
    value: Json = outcome.value  # type: ignore[assignment]  # `_checked` has frozen it
    return value


def _texts(contexts: tuple[object, ...]) -> list[str]:
    texts = [each for each in contexts if isinstance(each, str)]
    if len(texts) < len(contexts):
        raise TypeError("a context is text")
    return texts


def _failure_of(error: Exception) -> Failure:
    """What an agent is told of *error*."""
    if isinstance(error, ExecworldError):
        return Failure(str(error.code), str(error))
    return Failure(ErrorCode.TOOL_FAILED, f"{type(error).__name__}: {error}")


def _unknown(name: str, known: str) -> UnknownTool:
    return UnknownTool(f"there is no tool `{name}`", hint=f"tools that there are: {known}")
