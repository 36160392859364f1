"""Waiting for fibers, without waiting for oneself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from execworld.kernel.effects import UNDOING, EffectStack
from execworld.kernel.states import FiberState
from execworld.seams import PluginDisposed, PluginsFailed, WaitCycle

if TYPE_CHECKING:
    from execworld.kernel.fiber import Fiber

_UNCHANGING: Final = (FiberState.ACTIVE, FiberState.FAILED, FiberState.DISPOSED)


async def wait_settled(fiber: Fiber) -> Fiber:
    """Wait until *fiber* got where it can get now: ACTIVE, or PENDING for a service that nobody is about to provide.

    Raises:
        WaitCycle: it waits for the caller: the caller is its start, or one inside it, or what is undone on its behalf.
        Exception: its start error, if it FAILED.
    """
    around = fiber.runtime.current_lineage()
    while _is_working(fiber, around):
        _check_no_cycle(fiber, around)
        await fiber.runtime.changed.wait()
    if fiber.error is not None:
        raise fiber.error
    return fiber


def _check_no_cycle(fiber: Fiber, around: frozenset[Fiber]) -> None:
    if fiber in around:
        message = f"plugin `{fiber.name}` is {fiber.state}, and would wait for that in doing it"
        raise WaitCycle(message, hint="let a background task wait: ctx.start_soon")
    undoing = UNDOING.get()
    if undoing is not None and waits_for(fiber, undoing):
        message = f"the end of plugin `{fiber.name}` waits for what is being undone here"
        raise WaitCycle(message, hint="dispose it, which does not wait here")


async def wait_active(fiber: Fiber) -> Fiber:
    """See `Fiber.wait_active`."""
    while True:
        await wait_settled(fiber)
        if fiber.state is FiberState.ACTIVE:
            return fiber
        if fiber.state is FiberState.DISPOSED:
            raise PluginDisposed(f"plugin `{fiber.name}` was disposed before it became active")
        await fiber.runtime.changed.wait()


async def wait_all_settled(fiber: Fiber) -> None:
    """Wait until *fiber* and all inside it got where they can get now; those around the caller do not count.

    Raises:
        PluginsFailed: some of them FAILED.
    """
    runtime = fiber.runtime
    around = runtime.current_lineage()
    while any(fiber in each.lineage and each not in around for each in runtime.busy):
        await runtime.changed.wait()
    failed = [each for each in _within(fiber) if each.error is not None]
    errors = tuple(each.error for each in failed if each.error is not None)
    if errors:
        listing = "; ".join(f"`{each.name}`: {each.error or type(each.error).__name__}" for each in failed)
        raise PluginsFailed(f"plugins failed: {listing}", errors=errors)


def waits_for(fiber: Fiber, undoing: EffectStack) -> bool:
    """Whether the end of *fiber* has to wait for the run of which *undoing* holds the effects."""
    pending, seen = [fiber], {fiber}
    while pending:
        run = pending.pop().run
        if run is None:
            continue
        if run.effects is undoing:
            return True
        users = [user for provision in run.provisions for user in provision.users]
        for each in (*run.children, *users):
            if each not in seen:
                seen.add(each)
                pending.append(each)
    return False


def _is_working(fiber: Fiber, around: frozenset[Fiber]) -> bool:
    """Whether *fiber* is on its way, or somebody who will provide what it lacks."""
    if fiber in fiber.runtime.busy:
        return True
    pending, seen = [fiber], {fiber}
    while pending:
        waiting = pending.pop()
        if waiting.state in _UNCHANGING:
            continue
        lacking = [slot for slot in waiting.required if slot.seen_by(waiting) is None]
        for claimant in (each for slot in lacking for each in slot.claimants):
            if any(each in fiber.runtime.busy for each in claimant.lineage - around):
                return True
            if claimant not in seen and claimant not in around:
                seen.add(claimant)
                pending.append(claimant)
    return False


def _within(fiber: Fiber) -> list[Fiber]:
    found = [fiber]
    for each in found:
        if each.run is not None:
            found += each.run.children
    return found
