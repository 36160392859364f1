"""What all plugins of one kernel share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

import anyio
from anyio.abc import TaskGroup

from execworld.kernel.keys import AnyEvent
from execworld.kernel.reporting import ErrorReport, OnError, log_error
from execworld.kernel.services import Realm

if TYPE_CHECKING:
    from execworld.kernel.fiber import Fiber
    from execworld.kernel.listeners import Registration


class Pulse:
    """Wakes everybody who waits for something to change."""

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def beat(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()


class Runtime:
    """The state of one kernel.

    Attributes:
        group: Where every task of a plugin runs. It ends only when all of them have.
        changed: Beats when a fiber comes to a state, or stops being busy.
        busy: Fibers that are on their way to a state.
        listeners: By event, in the order in which they are called.
        replacements: How many plugins are being replaced now.
        fatal: What ended the kernel as a whole.
    """

    def __init__(self, group: TaskGroup, host: anyio.CancelScope, on_error: OnError) -> None:
        self.group: Final = group
        self.changed: Final = Pulse()
        self.busy: Final[dict[Fiber, None]] = {}
        self.listeners: Final[dict[AnyEvent, list[Registration]]] = {}
        self.root_realm: Final = Realm("")
        self.replacements = 0
        self.fatal: BaseException | None = None
        self._mains: dict[int, Fiber] = {}
        self._labelled: WeakValueDictionary[str, Realm] = WeakValueDictionary()
        self._last_uid = -1
        self._host = host
        self._on_error = on_error

    def next_uid(self) -> int:
        self._last_uid += 1
        return self._last_uid

    def realm(self, label: str) -> Realm:
        """The realm of this label, while anybody uses it."""
        found = self._labelled.get(label)
        if found is None:
            found = self._labelled[label] = Realm(label)
        return found

    def report(self, plugin: str, during: str, error: Exception) -> None:
        """Tell whoever wants to know of errors; an error in that must not become one of the kernel."""
        found = ErrorReport(plugin, during, error)
        try:
            self._on_error(found)
        except Exception as further:  # noqa: BLE001 - see above
            log_error(found)
            log_error(ErrorReport(plugin, "reporting an error", further))

    def crash(self, error: BaseException) -> None:
        """End the kernel as a whole; who opened it gets *error*."""
        if self.fatal is None:
            self.fatal = error
        self._host.cancel()

    def own_task(self, fiber: Fiber) -> None:
        """The running task is the one of *fiber* from now on."""
        self._mains[anyio.get_current_task().id] = fiber

    def disown_task(self) -> None:
        self._mains.pop(anyio.get_current_task().id, None)

    def current_lineage(self) -> frozenset[Fiber]:
        """The fiber whose own task is running, and those around it: none of them gets anywhere while it waits."""
        current = self._mains.get(anyio.get_current_task().id)
        return current.lineage if current is not None else frozenset()
