"""`keep_one_world`: nobody sees the files of one world and the commands of another."""

from __future__ import annotations

from collections.abc import Mapping

from execworld.kernel import PROVIDING, STARTING, Context, Providing, Starting, plugin
from execworld.policies.parts import PART_NAMES, PARTS, world_id_of
from execworld.seams import WorldMismatch


@plugin()
def keep_one_world(ctx: Context) -> None:
    """Refuse what mixes worlds: a provider, in the realms in which it provides; and a plugin, before it starts.

    What is there when this guard starts is looked at as well.

    Raises:
        WorldMismatch: to whoever provides or starts.
    """
    ctx.on(PROVIDING, _check_provided)
    ctx.on(STARTING, _check_starting)
    present = {key.name: ctx.find(key) for key in PARTS}
    _check("the composition", {name: part for name, part in present.items() if part is not None})


def _check_provided(providing: Providing) -> None:
    if providing.key.name not in PART_NAMES:
        return
    beside = {key.name: providing.beside(key) for key in PARTS if key.name != providing.key.name}
    seen = {name: part for name, part in beside.items() if part is not None}
    _check(f"plugin `{providing.context.fiber.name}`", {providing.key.name: providing.value, **seen})


def _check_starting(starting: Starting) -> None:
    parts = {name: part for name, part in starting.services.items() if name in PART_NAMES}
    _check(f"plugin `{starting.fiber.name}`", parts)


def _check(who: str, parts: Mapping[str, object]) -> None:
    worlds = {name: world_id_of(part) for name, part in parts.items()}
    silent = [name for name, world in worlds.items() if world is None]
    if silent:
        raise WorldMismatch(
            f"{who}: service `{silent[0]}` does not say which world it is of", op="world.provide"
        )
    if len(set(worlds.values())) > 1:
        listing = ", ".join(f"`{name}` of {world}" for name, world in worlds.items())
        raise WorldMismatch(
            f"{who} mixes worlds: {listing}",
            op="world.provide",
            hint="one row provides the world and all of its parts; who isolates one of them isolates all",
        )
