"""Who provides which service in which realm, and who runs on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import anyio

from execworld.kernel.keys import AnyKey
from execworld.seams import InjectCycle, ServiceConflict

if TYPE_CHECKING:
    from execworld.kernel.fiber import Fiber


class Realm:
    """A place for at most one provider of each service. Two realms know nothing of each other."""

    def __init__(self, label: str) -> None:
        self.label: Final = label
        self._slots: dict[str, Slot] = {}

    def slot(self, key: AnyKey) -> Slot:
        found = self._slots.get(key.name)
        if found is None:
            found = self._slots[key.name] = Slot(self, key.name)
        return found


class Slot:
    """One service in one realm.

    Attributes:
        provisions: What is provided; more than one while one provider is replaced by another.
        watchers: Fibers that inject the service.
        claimants: Fibers that declare to provide it.
    """

    def __init__(self, realm: Realm, name: str) -> None:
        self.realm: Final = realm
        self.name: Final = name
        self.provisions: list[Provision] = []
        self.watchers: dict[Fiber, None] = {}
        self.claimants: dict[Fiber, None] = {}

    def __str__(self) -> str:
        return f"`{self.name}`" + (f" of realm `{self.realm.label}`" if self.realm.label else "")

    def seen_by(self, reader: Fiber) -> Provision | None:
        """What *reader* would get: of what is provided, the newest whose providers are ready, or enclose the reader."""
        for provision in reversed(self.provisions):
            if not provision.withdrawn and provision.owner.is_visible_to(reader):
                return provision
        return None

    def check_free(self, fiber: Fiber, *, claims: bool = False) -> None:
        """Refuse a second provider, unless *fiber* is there to replace the first.

        With *claims*, also one that declares to provide it; a plugin may declare what one inside it provides.

        Raises:
            ServiceConflict
        """
        owners = [each.owner for each in self.provisions if not each.withdrawn]
        if claims:
            owners += [each for each in self.claimants if each.may_provide and each not in fiber.lineage]
        for owner in owners:
            if owner is not fiber and not fiber.may_replace(owner):
                message = f"plugin `{fiber.name}` provides {self}, and so does `{owner.name}`"
                hint = "leave out one of them, replace the one by the other, or isolate the service"
                raise ServiceConflict(message, hint=hint)


class Provision:
    """One value, provided by one run of one fiber. Its identity is what dependents are restarted for."""

    def __init__(self, slot: Slot, owner: Fiber, value: object) -> None:
        self.slot: Final = slot
        self.owner: Final = owner
        self.value: Final = value
        self.withdrawn = False
        self.users: dict[Fiber, None] = {}
        self._released: anyio.Event | None = None

    def release(self, user: Fiber) -> None:
        self.users.pop(user, None)
        if not self.users and self._released is not None:
            self._released.set()

    async def wait_released(self) -> None:
        """Until nobody runs on it any more. It has to be withdrawn, so that nobody begins to."""
        while self.users:
            if self._released is None:
                self._released = anyio.Event()
            await self._released.wait()

    def remove(self) -> None:
        if self in self.slot.provisions:
            self.slot.provisions.remove(self)


def check_no_cycle(fiber: Fiber) -> None:
    """Refuse *fiber* if it would wait for a service of a plugin that waits, in the end, for one of its own.

    Raises:
        InjectCycle
    """
    needed = {slot for slot in fiber.needs if slot.claimants or slot in fiber.offers}
    if not needed:
        return
    came_from: dict[Fiber, Fiber] = {}
    pending = [fiber]
    while pending:
        provider = pending.pop()
        for slot in provider.offers:
            if slot in needed:
                raise _cycle(fiber, provider, came_from, slot)
            for watcher in slot.watchers:
                if watcher is not fiber and watcher not in came_from:
                    came_from[watcher] = provider
                    pending.append(watcher)


def _cycle(fiber: Fiber, last: Fiber, came_from: dict[Fiber, Fiber], slot: Slot) -> InjectCycle:
    names = [*_trail(last, came_from)][::-1]
    text = " -> ".join(f"`{name}`" for name in names)
    message = (
        f"plugin `{fiber.name}` injects {slot}, which depends on the plugin itself: {text} -> `{fiber.name}`"
    )
    return InjectCycle(message, hint="one of them has to do without, or to be divided in two")


def _trail(last: Fiber, came_from: dict[Fiber, Fiber]) -> Iterator[str]:
    while True:
        yield last.name
        if last not in came_from:
            return
        last = came_from[last]
