"""What a plugin did and how it is undone: effects, on the stack of one run of a plugin."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextvars import ContextVar
from typing import Final, TypeAlias

import anyio

from execworld.seams import ContextInactive, DisposalFailed

SyncDisposer: TypeAlias = "Callable[[], None] | Effect"
Disposer: TypeAlias = "Callable[[], Awaitable[None] | None] | Effect | AsyncEffect"
SyncSetup: TypeAlias = Callable[[], "SyncDisposer | Iterator[SyncDisposer]"]
AsyncSetup: TypeAlias = Callable[[], "Awaitable[Disposer] | AsyncIterator[Disposer]"]

# The run whose effects are being undone by the code that asks. What undoes an effect may end plugins, and must not wait
# for one that waits for this very effect.
UNDOING: Final[ContextVar[EffectStack | None]] = ContextVar("UNDOING", default=None)


class EffectStack:
    """The effects of one run of a plugin, in the order in which they were made."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.open = True
        self._effects: dict[_Undoable, None] = {}

    def __len__(self) -> int:
        return len(self._effects)

    def push(self, effect: _Undoable) -> None:
        self.check_open()
        self._effects[effect] = None

    def check_open(self) -> None:
        """Refuse what could no longer be undone.

        Raises:
            ContextInactive
        """
        if not self.open:
            message = f"plugin `{self.owner}` is ending or over and takes no registrations"
            raise ContextInactive(message, hint="use the context of the run that is active now")

    def keep(self, effect: _Undoable) -> None:
        """Hold *effect* although it was disposed, because something of it is still to be waited for."""
        self._effects.setdefault(effect, None)

    def discard(self, effect: _Undoable) -> None:
        self._effects.pop(effect, None)

    async def unwind(self) -> list[Exception]:
        """Undo all, the last first, each one to its end. What raises does not stop the rest."""
        self.open = False
        errors: list[Exception] = []
        while self._effects:
            effect = next(reversed(self._effects))
            try:
                await effect.undo()
            except Exception as error:  # noqa: BLE001 - what undoes the other effects must still run
                for leaf in _leaves(error):
                    _note_place(leaf, f"while `{effect.name}` of plugin `{self.owner}` was undone")
                    errors.append(leaf)
            self.discard(effect)
        return errors


class _Undoable:
    """One entry of a stack."""

    def __init__(self, stack: EffectStack, name: str) -> None:
        self.name: Final = name
        self._stack = stack
        stack.push(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} of {self._stack.owner}>"

    async def undo(self) -> None:
        """Undo it as its run ends."""
        raise NotImplementedError

    def adopt(self) -> None:
        """Leave the stack, because a composite effect undoes this one from now on."""
        self._stack.discard(self)


class Effect(_Undoable):
    """An effect that is made and undone without waiting."""

    def __init__(self, stack: EffectStack, name: str) -> None:
        super().__init__(stack, name)
        self._disposers: list[Callable[[], object]] = []
        self._disposed = False

    def set_up(self, setup: SyncSetup) -> None:
        """Run *setup*, which is owned before it begins. If it fails, what it had done is undone."""
        try:
            made = setup()
            if callable(made) or isinstance(made, Effect):
                self.add(made)
            else:
                for disposer in made:
                    self.add(disposer)
        except BaseException as error:
            add_notes(error, self._dispose())
            raise

    def add(self, disposer: SyncDisposer) -> None:
        self._disposers.append(_adopted(disposer))

    def dispose(self) -> None:
        """Undo the effect; a second time does nothing.

        Raises:
            DisposalFailed: of several steps one or more failed; the others were done.
        """
        _raise_all(self.name, self._dispose())

    def _dispose(self) -> list[Exception]:
        if self._disposed:
            return []
        self._disposed = True
        errors: list[Exception] = []
        undoing = UNDOING.set(self._stack)
        while self._disposers:
            try:
                result = self._disposers.pop()()
                if inspect.isawaitable(result):
                    close_unawaited(result)
                    message = (
                        f"effect `{self.name}` is undone without waiting, but gave something to wait for"
                    )
                    raise TypeError(message)
            except Exception as error:  # noqa: BLE001 - the other steps must still be undone
                errors.append(error)
        UNDOING.reset(undoing)
        self._stack.discard(self)
        return errors

    async def undo(self) -> None:
        self.dispose()


class AsyncEffect(_Undoable):
    """An effect that may have to wait while it is made or undone."""

    def __init__(self, stack: EffectStack, name: str) -> None:
        super().__init__(stack, name)
        self._disposers: list[Callable[[], object]] = []
        self._setup_scope: anyio.CancelScope | None = None
        self._is_set_up: anyio.Event | None = None
        self._ended: anyio.Event | None = None

    async def set_up(self, setup: AsyncSetup) -> None:
        """Run *setup*, which is owned before it begins. If it fails or is cancelled, what it had done is undone.

        Raises:
            ContextInactive: its plugin was unloaded meanwhile.
        """
        self._is_set_up = anyio.Event()
        try:
            with anyio.CancelScope() as self._setup_scope:
                await self._collect(setup())
        except BaseException as error:
            self._is_set_up.set()
            add_notes(error, await self._dispose())
            raise
        self._is_set_up.set()
        if self._setup_scope.cancelled_caught or self._ended is not None:
            await self.dispose()
            raise ContextInactive(
                f"effect `{self.name}`: plugin `{self._stack.owner}` was unloaded meanwhile"
            )

    async def _collect(self, made: Awaitable[Disposer] | AsyncIterator[Disposer]) -> None:
        if isinstance(made, AsyncIterator):
            async for disposer in made:
                self.add(disposer)
        else:
            self.add(await made)

    def add(self, disposer: Disposer) -> None:
        self._disposers.append(_adopted(disposer))

    async def dispose(self) -> None:
        """Undo the effect, to its end even if the caller is cancelled. All callers wait for the same completion.

        Raises:
            DisposalFailed: of several steps one or more failed; the others were done.
        """
        _raise_all(self.name, await self._dispose())

    async def _dispose(self) -> list[Exception]:
        if self._ended is not None:
            await self._ended.wait()
            return []
        self._ended = anyio.Event()
        errors: list[Exception] = []
        with anyio.CancelScope(shield=True):
            await self._stop_set_up()
            undoing = UNDOING.set(self._stack)
            while self._disposers:
                try:
                    result = self._disposers.pop()()
                    if inspect.isawaitable(result):
                        await result
                except Exception as error:  # noqa: BLE001 - the other steps must still be undone
                    errors.append(error)
            UNDOING.reset(undoing)
        self._stack.discard(self)
        self._ended.set()
        return errors

    async def _stop_set_up(self) -> None:
        if self._is_set_up is not None and self._setup_scope is not None and not self._is_set_up.is_set():
            self._setup_scope.cancel()
            await self._is_set_up.wait()

    async def undo(self) -> None:
        await self.dispose()


def _adopted(disposer: Disposer) -> Callable[[], object]:
    if isinstance(disposer, (Effect, AsyncEffect)):
        disposer.adopt()
        return disposer.dispose
    if not callable(disposer):
        message = f"an effect needs something that undoes it, not {type(disposer).__name__}"
        raise TypeError(message)
    return disposer


def close_unawaited(awaitable: object) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()


def add_notes(error: BaseException, further: list[Exception]) -> None:
    """Tell in *error* what went wrong while the consequences of it were undone."""
    for each in further:
        error.add_note(f"and what undid it failed: {each!r}")


def _leaves(error: Exception) -> tuple[Exception, ...]:
    return error.errors if isinstance(error, DisposalFailed) else (error,)


def _note_place(error: Exception, place: str) -> None:
    """Once, where it happened: the effects around it pass the error on."""
    if not any(note.endswith(" was undone") for note in getattr(error, "__notes__", ())):
        error.add_note(place)


def _raise_all(name: str, errors: list[Exception]) -> None:
    if errors:
        leaves = tuple(leaf for error in errors for leaf in _leaves(error))
        listing = "; ".join(str(leaf) or type(leaf).__name__ for leaf in leaves)
        raise DisposalFailed(f"effect `{name}` was undone, with errors: {listing}", errors=leaves)
