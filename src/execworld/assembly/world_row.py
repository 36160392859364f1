"""The row `world`: opens a world, has it looked at, and provides it with its parts."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from execworld.config import Composition
from execworld.kernel import WORLD, WORLD_OPENED, WORLD_OPENING, Context, Key, OpenedWorld, Plugin
from execworld.policies.parts import PARTS
from execworld.seams import OnProgress, PolicyRefused, SandboxPolicy, World
from execworld.seams.open_floor import refuse_below_floor
from execworld.seams.policy_order import policy_losses
from execworld.tools.escalation import WIDER_VIEWS, HostViews
from execworld.world import ResolvedWorld, root_sandbox


def world_plugin(
    composition: Composition,
    *,
    elsewhere: Iterable[Key[Any]] = (),
    before: OpenedWorld | None = None,
    on_progress: OnProgress | None = None,
) -> Plugin:
    """The plugin that the row `world` of *composition* stands for.

    Whoever listens to `WORLD_OPENING` may tighten its policy. The open world is compared with the floor, and then put
    before whoever listens to `WORLD_OPENED`. Only then is it provided. The floor is compared here whatever other rows
    there are.

    Args:
        composition: Of which it is the world.
        elsewhere: Parts that rows of their own provide.
        before: What was opened for the same row, when it is opened again.
        on_progress: As of `execworld.world.open_world`.
    """
    left_out = frozenset(elsewhere)
    keys = tuple(key for key in PARTS if key not in left_out)
    resolved = ResolvedWorld(composition.provider, composition.world.config)
    documents = tuple(
        os.path.abspath(layer.file) for layer in composition.layers if layer.name not in ("defaults", "set")
    )
    usual = None if composition.provider.default_policy is None else resolved.default_policy(None)

    @asynccontextmanager
    async def body(ctx: Context) -> AsyncGenerator[None]:
        policy = await ctx.waterfall(WORLD_OPENING, composition.policy, lambda tightened: tightened)
        _refuse_loosened(composition.policy, policy)
        async with resolved.open_composed(
            policy=policy, on_progress=on_progress, documents=documents
        ) as world:
            opened = OpenedWorld(
                row=composition.world.name,
                world=world,
                asked=policy,
                usual=usual,
                mode_is_said=composition.mode_is_said,
                claims=composition.claims(),
                floor=composition.floor,
                before=_last(before, opened_before),
            )
            refuse_below_floor(opened.floor, world, opened.claims)
            await ctx.serial(WORLD_OPENED, opened)
            opened_before[:] = [opened]
            for key in keys:
                ctx.provide(key, part_of(world, key))
            if (sandbox := root_sandbox(world)) is not None:
                ctx.provide(WIDER_VIEWS, HostViews(world, sandbox, opened.floor, opened.claims))
            yield

    opened_before: list[OpenedWorld] = []
    return Plugin(composition.world.name, body, provides=(*keys, WIDER_VIEWS))


def part_of(world: World, key: Key[Any]) -> Any:
    """What *world* provides under *key*."""
    return world if key == WORLD else getattr(world, key.name)


def _refuse_loosened(policy: SandboxPolicy, tightened: SandboxPolicy) -> None:
    if lost := policy_losses(policy, tightened):
        message = "a plugin would loosen the policy of the world\n" + "\n".join(map(str, lost))
        raise PolicyRefused(message, op="world.open")


def _last(before: OpenedWorld | None, opened: list[OpenedWorld]) -> OpenedWorld | None:
    return opened[0] if opened else before
