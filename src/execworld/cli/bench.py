"""``execworld bench``."""

from __future__ import annotations

import json
import os

import click

from execworld.cli.compositions import chosen_composition
from execworld.cli.descriptors import Sink
from execworld.cli.messages import say
from execworld.cli.supervision import run_supervised
from execworld.cli.worlds import DEFAULT_WORLD, VARIABLE, WorldChoice, world_options
from execworld.world import environment_variable


@click.command(
    "bench",
    epilog="Example: execworld bench -w local --row spawn,read. "
    "The world `warden` is one over a child of this program, without a policy.",
)
@world_options
@click.option("--row", "chosen", metavar="ROWS", help="Only these, separated by commas; --list names them.")
@click.option("--list", "only_list", is_flag=True, help="Name the rows, and measure nothing.")
@click.option(
    "--scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="How many rounds, as a factor.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def command(
    world_name: str | None,
    config: dict[str, str],
    quiet: bool,
    chosen: str | None,
    only_list: bool,
    scale: float,
    as_json: bool,
) -> int:
    """Measure what a world costs beside the plain way to do the same, which is measured in the same run.

    It decides nothing: the exit code is 0 whatever the numbers say.
    """
    from execworld.testing.bench import CAVEATS, ROWS, as_document, as_table, measure_rows
    from execworld.testing.bench.source import WARDEN, named_world

    if only_list:
        click.echo("\n".join(ROWS))
        return 0
    if chosen_composition() is not None:
        raise click.UsageError("this measures a world by its name, and no composition: use -w")
    names = list(ROWS) if chosen is None else [name.strip() for name in chosen.split(",")]
    for row in names:
        if row not in ROWS:
            raise click.BadParameter(f"there is no row `{row}`; --list names them", param_hint="--row")
    name = world_name or environment_variable(VARIABLE) or DEFAULT_WORLD
    world = name if name == WARDEN else WorldChoice(world_name, config, quiet).resolve().provider.name
    source = named_world(name, config, workspace=os.getcwd() if world == DEFAULT_WORLD else None)

    async def work() -> int:
        measured = await measure_rows(
            source, names, scale=scale, progress=lambda title: None if quiet else say(f"bench: {title}")
        )
        if as_json:
            text = json.dumps(as_document(world, measured), indent=2) + "\n"
        else:
            text = f"{CAVEATS}\n{as_table(world, measured)}"
        await Sink(1).write(text.encode())
        return 0

    return run_supervised(work)
