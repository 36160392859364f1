"""How a world is confined: what ``--explain`` prints."""

from __future__ import annotations

import json

from execworld.cli.descriptors import Sink
from execworld.cli.supervision import run_supervised
from execworld.cli.worlds import WorldChoice
from execworld.machine.world import MachineWorld
from execworld.seams import World

_STDOUT = 1


def explain_world(choice: WorldChoice, *, as_json: bool = False) -> int:
    """Open the world, print its policy, its report and the plan of its cell, and run nothing in it."""

    async def work() -> int:
        async with choice.open() as world:
            text = json.dumps(_as_dict(world), indent=2) if as_json else _text(world)
            await Sink(_STDOUT).write(text.rstrip("\n").encode("utf-8", "backslashreplace") + b"\n")
        return 0

    return run_supervised(work)


def _as_dict(world: World) -> dict[str, object]:
    return {
        "world": world.world_id,
        "view": world.view_id,
        "boundary": str(world.facts.boundary),
        "crossings": list(world.facts.crossings),
        "policy": world.policy.as_dict(),
        "enforcement": world.enforcement.as_dict(),
        "plan": dict(world.details) if isinstance(world, MachineWorld) else {},
    }


def _text(world: World) -> str:
    lines = [
        f"world: {world.identity.kind}",
        f"mode: {world.policy.mode}",
        f"boundary: {world.facts.boundary}",
    ]
    lines += [f"crosses it: {crossing}" for crossing in world.facts.crossings]
    plan = world.explanation if isinstance(world, MachineWorld) else ""
    return "\n".join(lines) + "\n" + (plan or "nothing is confined\n")
