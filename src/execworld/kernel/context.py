"""Contexts: what a plugin is given, and through which it does everything."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from execworld.kernel import events
from execworld.kernel.admission import PROVIDING, Providing
from execworld.kernel.dependents import spread
from execworld.kernel.effects import AsyncEffect, AsyncSetup, Effect, SyncSetup
from execworld.kernel.fiber import Fiber
from execworld.kernel.graph import FiberDescription, describe
from execworld.kernel.keys import AnyEvent, AnyKey, Event, Key, Listener, Waterfall, WaterfallListener
from execworld.kernel.listeners import Registration
from execworld.kernel.plugins import as_plugin
from execworld.kernel.scopes import Scope
from execworld.kernel.services import Provision, Realm, Slot
from execworld.kernel.tasks import BackgroundTask, HeldManager
from execworld.kernel.waiting import wait_all_settled
from execworld.seams import ContextInactive, ServiceConflict, ServiceUnavailable, ServiceUndeclared

if TYPE_CHECKING:
    from execworld.kernel.runs import Run
    from execworld.seams import FileSystem, Sandbox, Shell, Subprocess, World

ValueT = TypeVar("ValueT")
PayloadT = TypeVar("PayloadT")
ResultT = TypeVar("ResultT")


class Context:
    """The view that one run of one plugin has of the others.

    Everything that is registered through it is undone when the run ends. Then the context is void: the next run of the
    same plugin gets another one. A service is also an attribute: ``ctx.fs`` is ``ctx.get(FS)``.

    Attributes:
        fiber: Whose context it is.
        scope: The subject to which its registrations belong; None when they are for everybody.
    """

    __slots__ = ("_realms", "_run", "fiber", "scope")

    if TYPE_CHECKING:
        world: World
        fs: FileSystem
        subprocess: Subprocess
        shell: Shell
        sandbox: Sandbox

    def __init__(self, run: Run, realms: Mapping[str, Realm], scope: Scope | None) -> None:
        self.fiber: Fiber = run.fiber
        self.scope = scope
        self._run = run
        self._realms = realms

    def __repr__(self) -> str:
        return f"<Context of {self.fiber.name}>"

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.get(Key[object](name))

    # --- services ---

    def get(self, key: Key[ValueT]) -> ValueT:
        """The service that this run was started with, until the run is over. It never changes during a run.

        Raises:
            ServiceUndeclared: the plugin does not inject it.
            ServiceUnavailable: an optional one that is not there; or in the root, where nothing needs to be declared.
            ContextInactive: the run is over.
        """
        provision = self._provision(key)
        if provision is None:
            message = f"nobody provides service {self.slot(key)} to plugin `{self.fiber.name}`"
            raise ServiceUnavailable(message, hint="ask by `ctx.find` for what may be absent")
        return cast("ValueT", provision.value)

    def find(self, key: Key[ValueT]) -> ValueT | None:
        """The service as it is now, declared or not; None when nobody provides it, or its provider is not ACTIVE.

        A plugin that keeps the value is not restarted when it goes; declare it `optional` for that.
        """
        self._check_not_over()
        slot = self.slot(key)
        bound = self._run.bindings.get(slot)
        provision = bound if bound is not None else slot.seen_by(self.fiber)
        return cast("ValueT", provision.value) if provision is not None else None

    def provide(self, key: Key[ValueT], value: ValueT) -> AsyncEffect:
        """Offer *value* as a service, to everybody once the start of this plugin is over and to its children at once.

        It goes before all else that the run has registered: dependents are unloaded while the value still works.

        Raises:
            ServiceConflict: the realm has a provider already.
            ServiceUndeclared: the plugin does not declare it in `provides`.
            Exception: what a listener of `PROVIDING` raised.
        """
        self._run.effects.check_open()
        slot = self.slot(key)
        if self.fiber.parent is not None and slot not in self.fiber.offers:
            message = f"plugin `{self.fiber.name}` provides {slot} without having declared it"
            raise ServiceUndeclared(message, hint=f"provides=({key.name.upper()},)")
        if any(each.slot is slot for each in self._run.provisions):
            raise ServiceConflict(f"plugin `{self.fiber.name}` provides {slot} already")
        slot.check_free(self.fiber)
        events.consult(PROVIDING, Providing(key, value, self), self.fiber.runtime)
        effect = AsyncEffect(self._run.effects, f"service {key}")
        provision = Provision(slot, self.fiber, value)
        slot.provisions.append(provision)
        self._run.provisions[provision] = None
        effect.add(lambda: self._withdraw(provision))
        self.fiber.publish()
        return effect

    async def _withdraw(self, provision: Provision) -> None:
        provision.withdrawn = True
        spread(provision.users)
        await provision.wait_released()
        provision.remove()
        self._run.provisions.pop(provision, None)

    def _provision(self, key: AnyKey) -> Provision | None:
        self._check_not_over()
        slot = self.slot(key)
        if slot in self._run.bindings:
            return self._run.bindings[slot]
        if self.fiber.parent is None or slot in self.fiber.offers:
            return slot.seen_by(self.fiber)
        message = f"plugin `{self.fiber.name}` reads service {slot} without injecting it"
        raise ServiceUndeclared(
            message, hint=f"inject=({key.name.upper()},), or `ctx.find` for what is there now"
        )

    def slot(self, key: AnyKey) -> Slot:
        """The place of a service in the realm that this context has for it."""
        return self._realms.get(key.name, self.fiber.runtime.root_realm).slot(key)

    # --- plugins ---

    def plugin(self, plugin: object, config: object = None, *, name: str | None = None) -> Fiber:
        """Apply a plugin, which ends with this run at the latest. It starts once its services are there.

        Args:
            plugin: A function, a class, a module or a `Plugin`.
            config: A mapping, or a value of its model.
            name: What to call it; its own name when None.

        Raises:
            PluginInvalid, PluginAmbiguous, ConfigurationError, InjectCycle, ServiceConflict: nothing was started.
        """
        self._run.effects.check_open()
        resolved = as_plugin(plugin)
        validated = resolved.validate(config)
        fiber = Fiber(self.fiber.runtime, self._run, self, resolved, validated, name or resolved.name)
        fiber.begin()
        return fiber

    async def settle(self) -> None:
        """Wait until this plugin and all inside it got where they can get now.

        Raises:
            PluginsFailed: some FAILED.
        """
        await wait_all_settled(self.fiber)

    def describe(self) -> FiberDescription:
        """This plugin and all inside it: states, what provides what, and why something is PENDING."""
        return describe(self.fiber)

    def isolate(self, *keys: AnyKey, label: str | None = None) -> Context:
        """A context that sees, and provides, these services in a realm of their own.

        Args:
            label: Name of the realm: contexts that are isolated under the same label share it. None for a new one.
        """
        realm = Realm("isolated") if label is None else self.fiber.runtime.realm(label)
        realms = {**self._realms, **{key.name: realm for key in keys}}
        return Context(self._run, realms, self.scope)

    def scoped(self, scope: Scope) -> Context:
        """A context whose registrations and events belong to *scope*."""
        return Context(self._run, self._realms, scope)

    def of_run(self, run: Run) -> Context:
        """The same place in realms and scopes, for a run of a plugin that was applied here."""
        return Context(run, self._realms, self.scope)

    # --- effects ---

    def effect(self, setup: SyncSetup, *, name: str = "effect") -> Effect:
        """Do something that is undone with this run, or before by `Effect.dispose`.

        Args:
            setup: Gives what undoes it: a function; several, of which the last is called first, if it is a generator.
                An effect among them is undone by this one alone. If it fails, what it gave before is undone.
        """
        effect = Effect(self._run.effects, name)
        effect.set_up(setup)
        return effect

    async def effect_async(self, setup: AsyncSetup, *, name: str = "effect") -> AsyncEffect:
        """As `effect`, with a setup and with disposers that may wait."""
        effect = AsyncEffect(self._run.effects, name)
        await effect.set_up(setup)
        return effect

    async def enter(self, manager: AbstractAsyncContextManager[ValueT], *, name: str | None = None) -> ValueT:
        """Enter *manager*, which is left with this run; both in a task of its own.

        The plugin fails if the manager ends by itself, as a task group does in which a task failed.
        """
        held = HeldManager[ValueT](self._run.effects, name or type(manager).__name__, self._fail)
        return await held.enter(self.fiber.runtime.group, manager)

    def start_soon(
        self, function: Callable[..., Awaitable[object]], *args: object, name: str = ""
    ) -> AsyncEffect:
        """Run *function* beside the plugin. It is cancelled and waited for with this run; the plugin fails with it."""
        task = BackgroundTask(self._run.effects, name or getattr(function, "__name__", "task"), self._fail)
        task.begin(self.fiber.runtime.group, lambda: function(*args))
        return task

    def _fail(self, error: Exception) -> None:
        self.fiber.fail(self._run, error)

    # --- events ---

    @overload
    def on(
        self,
        event: Event[PayloadT, ResultT],
        listener: Listener[PayloadT, ResultT],
        *,
        prepend: bool = ...,
        once: bool = ...,
    ) -> Effect: ...
    @overload
    def on(
        self,
        event: Waterfall[PayloadT, ResultT],
        listener: WaterfallListener[PayloadT, ResultT],
        *,
        prepend: bool = ...,
        once: bool = ...,
    ) -> Effect: ...
    def on(
        self, event: AnyEvent, listener: Callable[..., Any], *, prepend: bool = False, once: bool = False
    ) -> Effect:
        """Listen. Listeners are called in the order of their registration; of a waterfall, the first lies outermost.

        Args:
            prepend: Before those that are there.
            once: For one call.
        """
        registration = Registration(self.fiber.runtime, self._run, self.scope, event, listener, once=once)
        registration.enlist(prepend=prepend)
        return registration

    def emit(self, event: Event[PayloadT, ResultT], payload: PayloadT) -> None:
        """Tell all, and wait for none. What a listener raises is reported; neither the others nor the caller get it."""
        self._check_not_over()
        events.emit(event, payload, self.fiber, self.scope)

    async def parallel(self, event: Event[PayloadT, ResultT], payload: PayloadT) -> None:
        """Tell all at the same time, and wait for all.

        Raises:
            ListenersFailed: after all have finished.
        """
        self._check_not_over()
        await events.parallel(event, payload, self.fiber, self.scope)

    async def serial(self, event: Event[PayloadT, ResultT], payload: PayloadT) -> ResultT | None:
        """Ask one after the other until one answers: 0 and an empty text are answers, None and False are not."""
        self._check_not_over()
        return await events.serial(event, payload, self.fiber, self.scope)

    async def waterfall(
        self,
        event: Waterfall[PayloadT, ResultT],
        payload: PayloadT,
        innermost: Callable[[PayloadT], ResultT | Awaitable[ResultT]],
        *,
        repeats: bool = False,
        merge: events.Merge[ResultT] | None = None,
    ) -> ResultT:
        """Call the first listener, which decides whether and with what to go on; behind the last comes *innermost*.

        Args:
            repeats: A listener may go on again once it has an answer.
            merge: Makes one answer of what those behind a listener said, of what it says and of whether it has heard
                them. Then every listener is heard, with this very payload: where one does not go on, the kernel does.
                An error behind a listener is raised whatever the listener makes of it. So with a *merge* by which a no
                stays a no, no order of listeners turns it into a yes.

        Raises:
            ListenerUnloaded: the plugin of a listener was unloaded before it had answered.
            Exception: what a listener raised and none of those around it caught.
        """
        self._check_not_over()
        return await events.waterfall(
            event, payload, innermost, self.fiber, self.scope, repeats=repeats, merge=merge
        )

    def _check_not_over(self) -> None:
        if self._run.over:
            message = f"this run of plugin `{self.fiber.name}` is over, and its context is void"
            raise ContextInactive(message, hint="use the context of the run that is active now")
