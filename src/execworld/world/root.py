"""The sandbox of the root view of an open world: for whoever opened it, and never for tools."""

from __future__ import annotations

from execworld.seams import Sandbox, World


def root_sandbox(world: World) -> Sandbox | None:
    """What makes views of the world that *world* stands for, wider ones as well.

    It is for the host side alone: whoever has it can run anything in any view. Nothing that a tool calls hands it on.

    Args:
        world: As `open_world` gave it. A view that was made of it has no such sandbox.

    Returns:
        None where the world makes no views but the one that there is.
    """
    from execworld.machine.world import MachineWorld  # what is open has imported it

    return world.root_sandbox if isinstance(world, MachineWorld) else None
