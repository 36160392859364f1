"""``execworld forward``."""

from __future__ import annotations

import re
from typing import Final

import click

from execworld.cli.explaining import explain_world
from execworld.cli.messages import say
from execworld.cli.supervision import run_supervised
from execworld.cli.worlds import WorldChoice, world_options
from execworld.machine.forwarding import Target, forward_port
from execworld.machine.world import MachineWorld
from execworld.seams import Unsupported, World

_PORTS: Final = re.compile(r"(?:(?P<here>\d{1,5}):)?(?P<there>\d{1,5})", re.ASCII)
_MAX_PORT: Final = 65535

EPILOG = """\b
Examples:
  execworld forward -w docker+attach://web 8080
  execworld forward -w ssh://build@host 9000:8080

\b
The port is open on 127.0.0.1 alone, until Ctrl-C.
"""


def ports(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, int]:
    """``THERE`` or ``HERE:THERE``; 0 for HERE is any free port."""
    match = _PORTS.fullmatch(value)
    if match is None:
        raise click.BadParameter("write it as PORT or HERE:THERE", context, parameter)
    there = int(match["there"])
    here = there if match["here"] is None else int(match["here"])
    if not 1 <= there <= _MAX_PORT or here > _MAX_PORT:
        raise click.BadParameter(f"a port lies between 1 and {_MAX_PORT}", context, parameter)
    return here, there


@click.command("forward", epilog=EPILOG)
@world_options
@click.argument("pair", metavar="[HERE:]PORT", callback=ports)
def command(world_name: str | None, config: dict[str, str], quiet: bool, pair: tuple[int, int]) -> int:
    """Show a server of a world on this host's loopback."""
    choice = WorldChoice(world_name, config, quiet)
    if choice.policy.explain:
        return explain_world(choice)
    here, there = pair

    async def work() -> int:
        async with choice.open() as world:
            if not isinstance(world, MachineWorld):
                raise _unsupported(world)
            async with forward_port(world.machine, Target(there), port=here) as forwarding:
                say(f"execworld: http://127.0.0.1:{forwarding.port} is port {there} of {world.identity.kind}")
                await forwarding.wait()
        return 0

    return run_supervised(work)


def _unsupported(world: World) -> Unsupported:
    return Unsupported(
        f"a world of kind {world.identity.kind} opens no connections", op="forward", world=world.world_id
    )
