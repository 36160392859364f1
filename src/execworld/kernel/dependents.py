"""Who runs on what a fiber provides, and how all of them learn at once that it goes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from execworld.kernel.states import FiberState

if TYPE_CHECKING:
    from execworld.kernel.fiber import Fiber
    from execworld.kernel.services import Provision


def provisions_within(fiber: Fiber) -> Iterator[Provision]:
    """What *fiber* and the fibers inside it provide."""
    pending = [fiber]
    while pending:
        run = pending.pop().run
        if run is not None:
            yield from tuple(run.provisions)
            pending.extend(run.children)


def watchers_within(fiber: Fiber) -> list[Fiber]:
    """Who injects what *fiber* and the fibers inside it provide."""
    return [watcher for provision in provisions_within(fiber) for watcher in provision.slot.watchers]


def users_within(fiber: Fiber) -> list[Fiber]:
    """Who runs on what *fiber* and the fibers inside it provide."""
    return [user for provision in provisions_within(fiber) for user in provision.users]


def spread(fibers: Iterable[Fiber]) -> None:
    """Let *fibers* see whether they still stand on what they were started on, and all who stand on those that do not.

    At once, before any of them does anything: so that no fiber is started on one that is about to go, and then again.
    """
    pending = deque(fibers)
    while pending:
        fiber = pending.popleft()
        run = fiber.run
        if run is not None and not fiber.going and fiber.must_leave(run):
            fiber.going = True
            if fiber.state is FiberState.LOADING:
                run.start_scope.cancel()
            pending += users_within(fiber)
        fiber.wake()
