"""Changing a plugin while it runs: another configuration in its place, or another plugin instead of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

import anyio

from execworld.kernel.dependents import spread, watchers_within
from execworld.kernel.graph import describe
from execworld.kernel.keys import Waterfall
from execworld.kernel.plugins import as_plugin
from execworld.kernel.states import FiberState
from execworld.kernel.waiting import wait_settled
from execworld.seams import DisposalFailed, ReplacementRefused
from execworld.seams.values import value_class

if TYPE_CHECKING:
    from pydantic import BaseModel

    from execworld.kernel.context import Context
    from execworld.kernel.fiber import Fiber

Check = Callable[["Context"], Awaitable[object]]


@value_class
class ConfigUpdate:
    """A plugin is about to be restarted with another configuration.

    Attributes:
        fiber: The running instance.
        config: What it is to be configured with.
    """

    fiber: Fiber
    config: BaseModel | None


# A listener prevents the restart by raising, or by not going on.
CONFIG_UPDATE: Final = Waterfall[ConfigUpdate, bool]("config_update")


async def update(fiber: Fiber, config: object) -> bool:
    """See `Fiber.update`."""
    validated = fiber.plugin.validate(config)

    def restart(update: ConfigUpdate) -> bool:
        fiber.restart_with(update.config)
        return True

    restarted = await fiber.base.waterfall(CONFIG_UPDATE, ConfigUpdate(fiber, validated), restart)
    await wait_settled(fiber)
    return bool(restarted)


async def replace(
    old: Fiber, plugin: object, config: object = None, *, name: str | None = None, check: Check | None = None
) -> Fiber:
    """See `Fiber.replace`."""
    _check_replaceable(old)
    resolved = as_plugin(plugin)
    new = old.successor(resolved, resolved.validate(config), name or resolved.name)
    new.begin()
    old.being_replaced = True
    old.runtime.replacements += 1
    try:
        try:
            await _make_ready(old, new, check)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await _end(new)
            raise
        _take_over(old, new)
        await _end(old)
    finally:
        old.being_replaced = False
        old.runtime.replacements -= 1
    return new


def _check_replaceable(old: Fiber) -> None:
    if old.parent is None:
        raise ReplacementRefused("the root is no plugin that could be replaced")
    if old.held or old.being_replaced or old.disposing:
        message = f"plugin `{old.name}` is being replaced or ended already"
        raise ReplacementRefused(message, hint="wait for that")


async def _make_ready(old: Fiber, new: Fiber, check: Check | None) -> None:
    await wait_settled(new)
    if new.state is FiberState.ACTIVE and check is not None and new.run is not None:
        await check(new.base.of_run(new.run))
    if new.state is not FiberState.ACTIVE or new.going:
        lacking = ", ".join(f"`{each.service}` ({each.reason})" for each in describe(new).missing)
        because = f"it waits for {lacking}" if lacking else f"it is {new.state}"
        message = f"plugin `{new.name}` cannot replace `{old.name}`: {because}"
        raise ReplacementRefused(message, hint="the old one goes on")
    if old.disposing:
        raise ReplacementRefused(f"plugin `{old.name}` was ended before `{new.name}` could replace it")


def _take_over(old: Fiber, new: Fiber) -> None:
    affected = [*watchers_within(old), *watchers_within(new)]
    old.superseded = True
    old.disposing = True
    new.held = False
    new.replaces = None
    spread([old, *dict.fromkeys(affected)])


async def _end(fiber: Fiber) -> None:
    try:
        await fiber.dispose()
    except DisposalFailed as error:
        fiber.runtime.report(fiber.name, "unloading", error)
