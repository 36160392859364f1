"""Listeners: what a plugin registers for an event, and the calls of it that are under way."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio

from execworld.kernel.effects import Effect, close_unawaited
from execworld.kernel.keys import AnyEvent

if TYPE_CHECKING:
    from execworld.kernel.runs import Run
    from execworld.kernel.runtime import Runtime
    from execworld.kernel.scopes import Scope

Function = Callable[..., object]


class Unloaded:
    """What the call of a listener gives if its plugin was unloaded before there was an answer."""


UNLOADED: Final = Unloaded()


class Registration(Effect):
    """One listener. Its plugin ends only after the calls of it, which are cancelled then."""

    def __init__(
        self,
        runtime: Runtime,
        run: Run,
        scope: Scope | None,
        event: AnyEvent,
        function: Function,
        *,
        once: bool,
    ) -> None:
        super().__init__(run.effects, f"listener of {event}")
        self.run: Final = run
        self.scope: Final = scope
        self._runtime: Final = runtime
        self._function: Final = function
        self._once: Final = once
        self._event: Final = event
        self._calls: dict[anyio.CancelScope, None] = {}
        self._idle: anyio.Event | None = None

    def enlist(self, *, prepend: bool) -> None:
        listeners = self._runtime.listeners.setdefault(self._event, [])
        listeners.insert(0 if prepend else len(listeners), self)
        self.add(self._leave_list)

    def _leave_list(self) -> None:
        listeners = self._runtime.listeners[self._event]
        listeners.remove(self)
        if not listeners:
            del self._runtime.listeners[self._event]

    def begin(self) -> bool:
        """Whether it may be called now. One that listens once will not be called again, whatever this call leads to."""
        if self.run.unwound:
            return False
        if self._once:
            if self._disposed:
                return False
            self.dispose()
        return True

    async def answer(self, *arguments: object) -> object:
        """Call it and wait for what it says, or for `UNLOADED`."""
        with anyio.CancelScope() as scope, self._under_way(scope):
            return await finished(self._function(*arguments))
        return UNLOADED

    def hear(self, payload: object) -> None:
        """Call it, and let what an async function has begun go on beside the caller. What it raises is reported."""
        try:
            answer = self._function(payload)
        except Exception as error:  # noqa: BLE001 - the emitter and the other listeners have no part in it
            self._report(error)
            return
        if inspect.isawaitable(answer):
            scope = anyio.CancelScope()
            self._count(scope)
            self._runtime.group.start_soon(self._finish, answer, scope, name=self.name)

    def judge(self, payload: object) -> None:
        """Call it and let what it raises be raised. One that would have to be waited for decides nothing in time."""
        answer = self._function(payload)
        if inspect.isawaitable(answer):
            close_unawaited(answer)
            message = f"a listener of {self._event} is called before something is done, and cannot be async"
            raise TypeError(message)

    async def _finish(self, answer: Awaitable[object], scope: anyio.CancelScope) -> None:
        try:
            with scope, self._under_way(scope):
                await answer
        except Exception as error:  # noqa: BLE001 - the emitter went on; nobody waits for it
            self._report(error)

    def _report(self, error: Exception) -> None:
        self._runtime.report(self.run.fiber.name, f"hearing {self._event}", error)

    @contextmanager
    def _under_way(self, scope: anyio.CancelScope) -> Generator[None]:
        self._count(scope)
        try:
            yield
        finally:
            self._calls.pop(scope, None)
            if not self._calls:
                if self._idle is not None:
                    self._idle.set()
                if self._disposed:
                    self._stack.discard(self)

    def _count(self, scope: anyio.CancelScope) -> None:
        self._calls[scope] = None
        if self._disposed:
            self._stack.keep(self)

    def dispose(self) -> None:
        """Hear no more. A call that is under way goes on; the plugin does not end before it."""
        super().dispose()
        if self._calls:
            self._stack.keep(self)

    async def undo(self) -> None:
        self.dispose()
        while self._calls:
            for scope in self._calls:
                scope.cancel()
            self._idle = anyio.Event()
            await self._idle.wait()


async def finished(answer: object) -> object:
    """*answer*, or what it gives if it is something to wait for."""
    return await answer if inspect.isawaitable(answer) else answer
