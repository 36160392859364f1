"""Fibers: a fiber is one running instance of a plugin, with one task for its whole life."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import anyio

from execworld.kernel.admission import STARTING, Starting
from execworld.kernel.dependents import spread, users_within, watchers_within
from execworld.kernel.effects import UNDOING, AsyncEffect
from execworld.kernel.events import consult
from execworld.kernel.keys import AnyKey
from execworld.kernel.plugins import Plugin
from execworld.kernel.runs import Bindings, Run
from execworld.kernel.runtime import Runtime
from execworld.kernel.services import Slot, check_no_cycle
from execworld.kernel.states import FiberState
from execworld.kernel.updating import Check, replace, update
from execworld.kernel.waiting import wait_active, wait_settled, waits_for
from execworld.seams import DisposalFailed, PluginEnded

if TYPE_CHECKING:
    from pydantic import BaseModel

    from execworld.kernel.context import Context


class Fiber:
    """One running instance of a plugin.

    ``await fiber`` waits until it got where it can get now, and raises its start error.

    Attributes:
        uid: Number of the fiber, 0 for the root; None once it is disposed.
        error: Why it is FAILED.
        lineage: The fiber itself and all those around it.
        held: Its registrations take effect for itself alone, because it has still to replace another one.
        being_replaced: Another one is being started to take its place.
        superseded: Another one has taken its place, and it is about to end.
    """

    def __init__(
        self,
        runtime: Runtime,
        parent_run: Run | None,
        base: Context | None,
        plugin: Plugin,
        config: BaseModel | None,
        name: str,
    ) -> None:
        parent = parent_run.fiber if parent_run is not None else None
        self.runtime: Final = runtime
        self.name: Final = name
        self.plugin: Final = plugin
        self.parent: Final = parent
        self.lineage: Final[frozenset[Fiber]] = frozenset((self, *(parent.lineage if parent else ())))
        self.uid: int | None = runtime.next_uid()
        self.state = FiberState.PENDING
        self.error: Exception | None = None
        self.config = config
        self.run: Run | None = None
        self.going = False
        self.held = False
        self.being_replaced = False
        self.superseded = False
        self.disposing = False
        self.replaces: Fiber | None = None
        self.required: tuple[Slot, ...] = ()
        self.optional: tuple[Slot, ...] = ()
        self.offers: tuple[Slot, ...] = ()
        self._base = base
        self._version = 0
        self._tried: object = None
        self._woken = True
        self._wake_event: anyio.Event | None = None
        self._gone = anyio.Event()
        self._child_effect: AsyncEffect | None = None
        self._parent_run: Final = parent_run
        self._waiting_for_end = 0
        self._last_errors: tuple[Exception, ...] = ()

    def __repr__(self) -> str:
        return f"<Fiber {self.name} {self.state}>"

    @property
    def needs(self) -> tuple[Slot, ...]:
        return self.required + self.optional

    @property
    def base(self) -> Context:
        """The context in which the plugin was applied."""
        assert self._base is not None
        return self._base

    @property
    def may_provide(self) -> bool:
        """Whether its declaration to provide something still counts."""
        return self.state is not FiberState.FAILED and not self.disposing

    # --- the life of a fiber ---

    def begin(self) -> None:
        """Enter the graph and start the task.

        Raises:
            InjectCycle, ServiceConflict: it cannot work here; nothing was changed.
        """
        self.required = self._slots(self.plugin.inject)
        self.optional = self._slots(self.plugin.optional)
        self.offers = self._slots(self.plugin.provides)
        check_no_cycle(self)
        for slot in self.offers:
            slot.check_free(self, claims=True)
        if self._parent_run is not None:
            self._child_effect = AsyncEffect(self._parent_run.effects, f"plugin {self.name}")
            self._child_effect.add(self._end)
            self._parent_run.children[self] = None
        for slot in self.needs:
            slot.watchers[self] = None
        for slot in self.offers:
            slot.claimants[self] = None
        self.runtime.busy[self] = None
        self.runtime.group.start_soon(self._live, name=f"plugin {self.name}")

    def _slots(self, keys: tuple[AnyKey, ...]) -> tuple[Slot, ...]:
        return tuple(self._base.slot(key) for key in keys) if self._base is not None else ()

    async def _live(self) -> None:
        self.runtime.own_task(self)
        try:
            while not self.disposing:
                bindings = self._next_bindings()
                if bindings is not None:
                    await self._run(bindings)
                    continue
                if self.error is None:
                    self._set_state(FiberState.PENDING)
                await self._sleep()
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - Ctrl-C in a plugin, or a fault of the kernel: it ends as a whole
            self.runtime.crash(error)
        finally:
            self.runtime.disown_task()
            self._leave_graph()

    def _next_bindings(self) -> Bindings | None:
        """What the next run will stand on, if there can be one now."""
        if any(fiber.going for fiber in self.lineage if fiber is not self):
            return None
        bindings = self.look_up()
        if bindings is None or (self.error is not None and self._tried == self.signature(bindings)):
            return None
        return bindings

    async def _run(self, bindings: Bindings) -> None:
        run = Run(self, bindings)
        self.run, self.going, self.error, self._tried = run, False, None, run.signature
        for provision in bindings.values():
            if provision is not None:
                provision.users[self] = None
        self._set_state(FiberState.LOADING)
        error: Exception | None = None
        undoing = UNDOING.set(None)
        try:
            with run.start_scope, run.shield:
                try:
                    await self._hold(run)
                finally:
                    await self._unwind(run)
        except anyio.get_cancelled_exc_class():
            raise
        except Exception as caught:  # noqa: BLE001 - a plugin that fails must not end the others
            error = caught
        finally:
            UNDOING.reset(undoing)
            run.over = True
            self.run = None
            for provision in bindings.values():
                if provision is not None:
                    provision.release(self)
        self._settle(run, error)

    async def _hold(self, run: Run) -> None:
        config = () if self.plugin.config_type is None else (self.config,)
        asked = False
        if self.parent is not None:
            consult(STARTING, Starting(self, _services(run.bindings)), self.runtime)
        async with self.plugin.body(self._context(run), *config):
            run.started = True
            try:
                if not self.going:
                    self._set_state(FiberState.ACTIVE)
                    self.publish()
                    while not self.going:
                        await self._sleep()
            finally:
                asked = self.going
                await self._unwind(run)
        if not asked:
            raise PluginEnded(
                f"plugin `{self.name}` ended by itself", hint="keep its body open until the `yield`"
            )

    def _context(self, run: Run) -> Context:
        return self.base.of_run(run)

    async def _unwind(self, run: Run) -> None:
        """Undo what the run did: first nobody may stand on it any more, then its effects, the last one first."""
        if run.unwound:
            return
        run.unwound = True
        run.shield.shield = True
        run.effects.open = False
        self._set_state(FiberState.UNLOADING)
        self.going = True
        spread(users_within(self))
        UNDOING.set(run.effects)
        with anyio.CancelScope(shield=True):
            for provision in run.provisions:
                provision.withdrawn = True
            spread(users_within(self))
            for provision in tuple(run.provisions):
                await provision.wait_released()
            run.undo_errors = await run.effects.unwind()

    def _settle(self, run: Run, error: Exception | None) -> None:
        errors = [each for each in (run.crash, error) if each is not None]
        self.error = errors[0] if errors else None
        for each in errors:
            during = "running" if each is run.crash else "ending" if run.started else "starting"
            self.runtime.report(self.name, during, each)
        if self.disposing:
            self._last_errors = tuple(run.undo_errors)
        if not self.disposing or not self._waiting_for_end:
            for each in run.undo_errors:
                self.runtime.report(self.name, "unloading", each)
        if self.error is not None:
            self._set_state(FiberState.FAILED)

    def _leave_graph(self) -> None:
        for slot in self.needs:
            slot.watchers.pop(self, None)
        for slot in self.offers:
            slot.claimants.pop(self, None)
        if self._parent_run is not None and self._child_effect is not None:
            self._parent_run.children.pop(self, None)
            if not self._parent_run.unwound:
                self._child_effect.adopt()
        self.uid = None
        self.runtime.busy.pop(self, None)
        self._set_state(FiberState.DISPOSED)
        self._gone.set()

    async def _sleep(self) -> None:
        """Until somebody wants something of this fiber."""
        if not self._woken:
            self.runtime.busy.pop(self, None)
            self.runtime.changed.beat()
            self._wake_event = anyio.Event()
            await self._wake_event.wait()
        self._woken = False

    def wake(self) -> None:
        self._woken = True
        self.runtime.busy[self] = None
        if self._wake_event is not None:
            self._wake_event.set()

    def _set_state(self, state: FiberState) -> None:
        self.state = state
        self.runtime.changed.beat()

    # --- what it stands on, and who stands on it ---

    def look_up(self) -> Bindings | None:
        """The providers of what it injects, as they are now; None when one that it cannot do without is missing."""
        bindings: Bindings = {}
        for slot in self.required:
            provision = slot.seen_by(self)
            if provision is None:
                return None
            bindings[slot] = provision
        for slot in self.optional:
            bindings[slot] = slot.seen_by(self)
        return bindings

    def signature(self, bindings: Bindings) -> object:
        """What decides whether a run is still the right one: the identity of each provider, and the configuration."""
        return (self._version, *bindings.values())

    def must_leave(self, run: Run) -> bool:
        if self.disposing or run.crash is not None:
            return True
        bindings = self.look_up()
        return bindings is None or self.signature(bindings) != run.signature

    def is_visible_to(self, reader: Fiber) -> bool:
        """Whether *reader* sees what this fiber provides: all around it are ready, or around the reader as well."""
        for fiber in self.lineage:
            if fiber.going or fiber.superseded:
                return False
            if fiber not in reader.lineage and (fiber.held or fiber.state is not FiberState.ACTIVE):
                return False
        return True

    def is_audible_to(self, speaker: Fiber) -> bool:
        """Whether its listeners hear *speaker*: not while it is held to replace another one, nor once replaced."""
        return not any(
            fiber.superseded or (fiber.held and fiber not in speaker.lineage) for fiber in self.lineage
        )

    def may_replace(self, other: Fiber) -> bool:
        """Whether this fiber, or one around it, is there to replace *other* or one around that."""
        return any(fiber.replaces in other.lineage for fiber in self.lineage if fiber.replaces is not None)

    def publish(self) -> None:
        """Tell those who may have waited for it that what it and its children provide can be seen."""
        spread(watchers_within(self))

    def fail(self, run: Run, error: Exception) -> None:
        """End *run*, because something that belongs to it has failed."""
        if run.unwound or run.crash is not None:
            self.runtime.report(self.name, "running", error)
            return
        run.crash = error
        spread([self])

    # --- what others may ask of it ---

    def __await__(self) -> Generator[Any, None, Fiber]:
        return wait_settled(self).__await__()

    async def wait_active(self) -> Fiber:
        """Wait until it is ACTIVE, however long the services that it needs may take.

        Raises:
            PluginDisposed: it will never be.
            Exception: its start error.
        """
        return await wait_active(self)

    async def dispose(self) -> None:
        """End it: its dependents, what it did, its children. Returns when all of that is over; a second time as well.

        Called by what is itself being undone for the sake of this, it does not wait.

        Raises:
            DisposalFailed: all was undone as far as it goes, with errors.
        """
        self.request_disposal()
        undoing = UNDOING.get()
        if undoing is None or not waits_for(self, undoing):
            await self._end()

    def request_disposal(self) -> None:
        """Let it end, without waiting for that."""
        self.disposing = True
        spread([self])

    async def _end(self) -> None:
        self.request_disposal()
        self._waiting_for_end += 1
        try:
            await self._gone.wait()
        finally:
            self._waiting_for_end -= 1
        if self._last_errors:
            listing = "; ".join(str(error) or type(error).__name__ for error in self._last_errors)
            message = f"plugin `{self.name}` ended, with errors: {listing}"
            raise DisposalFailed(message, errors=self._last_errors)

    async def update(self, config: object) -> bool:
        """Restart it with another configuration, and wait until it got where it can get.

        A configuration that is wrong, or that a listener of `CONFIG_UPDATE` refuses, changes nothing.

        Returns:
            Whether it was restarted; a listener that does not go on prevents it.

        Raises:
            ConfigurationError: the configuration is wrong.
            Exception: what a listener raised, or the start error.
        """
        return await update(self, config)

    async def replace(
        self, plugin: object, config: object = None, *, name: str | None = None, check: Check | None = None
    ) -> Fiber:
        """Put another plugin in its place: the new one is ready before this one goes.

        The new one starts held back: what it registers takes effect for itself and its children alone. Then, in one
        step, it takes over; each dependent is restarted once, on the new one, and this one is ended when none is left
        on it. Before that step an error, or the cancellation of the caller, ends the new one and leaves this one as it
        was.

        Args:
            plugin: What takes over, as of `Context.plugin`.
            config: Its configuration.
            name: What to call it; its own name when None.
            check: Called with a context of the new one when it is ready; refuses it by raising.

        Returns:
            The new one. What the end of this one raised is reported.

        Raises:
            ReplacementRefused: the new one waits for a service that nobody provides; or this one is being replaced or
                ended.
            Exception: the new one's start error, or what *check* raised.
        """
        return await replace(self, plugin, config, name=name, check=check)

    def successor(self, plugin: Plugin, config: BaseModel | None, name: str) -> Fiber:
        """A fiber in the same place that is there to replace this one, held back."""
        new = Fiber(self.runtime, self._parent_run, self.base, plugin, config, name)
        new.held, new.replaces = True, self
        return new

    def restart_with(self, config: BaseModel | None) -> None:
        self.config = config
        self.error = None
        self._version += 1
        spread([self])


def _services(bindings: Bindings) -> dict[str, object]:
    return {slot.name: each.value for slot, each in bindings.items() if each is not None}
