"""Tasks that belong to one run of a plugin, and end with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Generic, TypeVar

import anyio
from anyio.abc import TaskGroup

from execworld.kernel.effects import UNDOING, AsyncEffect, EffectStack, add_notes
from execworld.seams import ContextInactive, PluginEnded

ValueT = TypeVar("ValueT")
Fail = Callable[[Exception], None]


class BackgroundTask(AsyncEffect):
    """A function that runs beside the plugin. Undoing it cancels it and waits until it is over."""

    def __init__(self, stack: EffectStack, name: str, fail: Fail) -> None:
        super().__init__(stack, name)
        self._fail = fail
        self._scope = anyio.CancelScope()
        self._over = anyio.Event()
        self.add(self._cancel)

    def begin(self, group: TaskGroup, function: Callable[[], Awaitable[object]]) -> None:
        group.start_soon(self._run, function, name=self.name)

    async def _run(self, function: Callable[[], Awaitable[object]]) -> None:
        try:
            with self._scope:
                await function()
        except Exception as error:  # noqa: BLE001 - it is the plugin that fails, not the kernel
            self._fail(error)
        finally:
            self._over.set()
            if self._ended is None:
                self._stack.discard(self)

    async def _cancel(self) -> None:
        self._scope.cancel()
        await self._over.wait()


class HeldManager(AsyncEffect, Generic[ValueT]):
    """A context manager that one task enters and leaves, whoever asks for the one or the other.

    Cancel scopes and task groups inside it demand that; and of several, each can be left before the others.
    """

    def __init__(self, stack: EffectStack, name: str, fail: Fail) -> None:
        super().__init__(stack, name)
        self._fail = fail
        self._values: list[ValueT] = []
        self._error: Exception | None = None
        self._scope = anyio.CancelScope()
        self._entered = anyio.Event()
        self._leave = anyio.Event()
        self._over = anyio.Event()
        self.add(self._go)

    async def enter(self, group: TaskGroup, manager: AbstractAsyncContextManager[ValueT]) -> ValueT:
        """The value of *manager*.

        Raises:
            ContextInactive: the plugin was unloaded meanwhile.
        """
        group.start_soon(self._hold, manager, name=self.name)
        try:
            await self._entered.wait()
        except BaseException as error:
            add_notes(error, await self._dispose())
            raise
        if self._values and self._ended is None:
            return self._values[0]
        if self._error is not None:
            self._stack.discard(self)
            raise self._error
        raise ContextInactive(f"`{self.name}`: plugin `{self._stack.owner}` was unloaded meanwhile")

    async def _hold(self, manager: AbstractAsyncContextManager[ValueT]) -> None:
        try:
            with self._scope:
                async with manager as value:
                    self._values.append(value)
                    self._entered.set()
                    await self._leave.wait()
                    UNDOING.set(self._stack)
            self._check_asked()
        except Exception as error:  # noqa: BLE001 - it is the plugin that fails, not the kernel
            if self._values and not self._leave.is_set():
                self._fail(error)
            else:
                self._error = error
        finally:
            self._entered.set()
            self._over.set()

    def _check_asked(self) -> None:
        if self._values and not self._leave.is_set():
            raise PluginEnded(f"`{self.name}` of plugin `{self._stack.owner}` ended by itself")

    async def _go(self) -> None:
        """Leave. One that is still being entered is cancelled instead."""
        self._leave.set()
        if not self._values:
            self._scope.cancel()
        await self._over.wait()
        if self._error is not None and self._values:
            raise self._error
