"""The four ways to dispatch an event, and how what the kernel is about to do is put before those who may refuse it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeAlias, cast

import anyio

from execworld.kernel.keys import UNCHANGED, AnyEvent, Event, PayloadT, ResultT, Unchanged, Waterfall
from execworld.kernel.listeners import UNLOADED, Registration, finished
from execworld.seams import ListenersFailed, ListenerUnloaded, NextMisused

if TYPE_CHECKING:
    from execworld.kernel.fiber import Fiber
    from execworld.kernel.runtime import Runtime
    from execworld.kernel.scopes import Scope


Merge: TypeAlias = Callable[[ResultT, ResultT, bool], ResultT]
"""Makes one answer of what those behind a listener said and of what it says, and whether it has heard them."""


def _audience(event: AnyEvent, speaker: Fiber, scope: Scope | None) -> list[Registration]:
    """Who hears *event*, in order, as it is now: what changes during the dispatch is for the next one."""
    runtime = speaker.runtime
    found = [
        each
        for each in runtime.listeners.get(event, ())
        if each.scope is None or (scope is not None and each.scope in scope.lineage)
    ]
    if runtime.replacements:
        found = [each for each in found if each.run.fiber.is_audible_to(speaker)]
    return found


def emit(event: Event[PayloadT, ResultT], payload: PayloadT, speaker: Fiber, scope: Scope | None) -> None:
    """Tell all, and wait for none. What a listener raises is reported, and neither the others nor the caller get it."""
    for listener in _audience(event, speaker, scope):
        if listener.begin():
            listener.hear(payload)


def consult(event: Event[PayloadT, None], payload: PayloadT, runtime: Runtime) -> None:
    """Let all hear what is about to be done, before it is. What one of them raises prevents it, and goes to the caller.

    Who is held back to replace another one is heard, too, so that no moment is without one of the two.
    """
    for listener in tuple(runtime.listeners.get(event, ())):
        if listener.begin():
            listener.judge(payload)


async def parallel(
    event: Event[PayloadT, ResultT], payload: PayloadT, speaker: Fiber, scope: Scope | None
) -> None:
    """Tell all at the same time, and wait for all.

    Raises:
        ListenersFailed: after all have finished.
    """
    errors: list[Exception] = []

    async def tell(listener: Registration) -> None:
        try:
            await listener.answer(payload)
        except Exception as error:  # noqa: BLE001 - the other listeners must run to their end
            errors.append(error)

    async with anyio.create_task_group() as group:
        for listener in _audience(event, speaker, scope):
            if listener.begin():
                group.start_soon(tell, listener)
    if errors:
        listing = "; ".join(str(error) or type(error).__name__ for error in errors)
        raise ListenersFailed(f"event `{event}`: listeners failed: {listing}", errors=tuple(errors))


async def serial(
    event: Event[PayloadT, ResultT], payload: PayloadT, speaker: Fiber, scope: Scope | None
) -> ResultT | None:
    """Ask one after the other until one answers: 0 and an empty text are answers, None and False are not."""
    for listener in _audience(event, speaker, scope):
        if listener.begin():
            answer = await listener.answer(payload)
            if answer is not None and answer is not False and answer is not UNLOADED:
                return cast("ResultT", answer)
    return None


async def waterfall(
    event: Waterfall[PayloadT, ResultT],
    payload: PayloadT,
    innermost: Callable[[PayloadT], ResultT | Awaitable[ResultT]],
    speaker: Fiber,
    scope: Scope | None,
    *,
    repeats: bool = False,
    merge: Merge[ResultT] | None = None,
) -> ResultT:
    """Call the first listener, which decides whether and with what to go on; behind the last one comes *innermost*.

    Args:
        repeats: A listener may go on again after it has an answer.
        merge: Every listener is heard and none can speak for those behind it: as of `Context.waterfall`.

    Raises:
        ListenerUnloaded: the plugin of a listener was unloaded before it had answered.
        Exception: what a listener raised and none of those around it caught.
    """
    audience = _audience(event, speaker, scope)

    async def go_on(index: int, payload: PayloadT) -> ResultT:
        while index < len(audience) and not audience[index].begin():
            index += 1
        if index == len(audience):
            return cast("ResultT", await finished(innermost(payload)))
        listener = audience[index]
        step = _Step(
            event,
            payload,
            lambda payload: go_on(index + 1, payload),
            repeats=repeats,
            fixed=merge is not None,
        )
        try:
            answer = await listener.answer(payload, step)
        finally:
            step.close()
        if answer is UNLOADED:
            message = f"event `{event}`: plugin `{listener.run.fiber.name}` was unloaded while it was at work"
            raise ListenerUnloaded(message, hint="dispatch it again")
        found = cast("ResultT", answer)
        if merge is None:
            return found
        went_on = step.went_on
        behind = step.outcome() if went_on else await go_on(index + 1, payload)
        return merge(behind, found, went_on)

    return await go_on(0, payload)


class _Step(Generic[PayloadT, ResultT]):
    """The `Next` of one listener in one dispatch."""

    def __init__(
        self,
        event: Waterfall[PayloadT, ResultT],
        payload: PayloadT,
        go_on: Callable[[PayloadT], Awaitable[ResultT]],
        *,
        repeats: bool,
        fixed: bool,
    ) -> None:
        self.went_on = False
        self._event = event
        self._payload = payload
        self._go_on = go_on
        self._repeats = repeats
        self._fixed = fixed
        self._refusal = ""
        self._error: Exception | None = None
        self._outcomes: list[ResultT] = []

    def __call__(self, payload: PayloadT | Unchanged = UNCHANGED, /) -> Awaitable[ResultT]:
        if self._refusal:
            raise NextMisused(f"event `{self._event}`: a listener went on {self._refusal}")
        if self._fixed and not isinstance(payload, Unchanged) and payload is not self._payload:
            raise NextMisused(f"event `{self._event}`: a listener went on with something else")
        self._refusal = "twice"
        self.went_on = True
        return self._follow(self._payload if isinstance(payload, Unchanged) else payload)

    async def _follow(self, payload: PayloadT) -> ResultT:
        try:
            outcome = await self._go_on(payload)
        except Exception as error:
            self._error = error
            raise
        finally:
            if self._repeats and self._refusal == "twice":
                self._refusal = ""
        self._outcomes[:] = [outcome]
        return outcome

    def outcome(self) -> ResultT:
        """What those behind said; their error is raised again, whatever the listener made of it."""
        if self._error is not None:
            raise self._error
        if not self._outcomes:
            raise NextMisused(f"event `{self._event}`: a listener went on and did not wait for the answer")
        return self._outcomes[0]

    def close(self) -> None:
        self._refusal = self._refusal or "after it had answered"
