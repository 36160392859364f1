"""``execworld run``."""

from __future__ import annotations

import math
import os
from typing import Any

import click

from execworld.cli.execution import Command, run_command
from execworld.cli.explaining import explain_world
from execworld.cli.worlds import WorldChoice, world_options
from execworld.seams import DEFAULT_GRACE_S

EPILOG = """\b
Examples:
  execworld run -- make test
  execworld run --net none --limit memory=2G,pids=500 -- make test
  execworld run --mode read-only --explain
  execworld run -w docker://debian:bookworm --timeout 60 -- ls -l
  execworld run -w local --json -- sh -c 'exit 3'
  execworld run -w local -t -- top

\b
Exit codes: the command's own; 128+N when signal N ended it; 124 the time limit;
125 the world or its configuration failed; 126 not executable; 127 not found.
"""


def seconds(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise click.BadParameter("a positive number of seconds", context, parameter)
    return value


def environment(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, str]:
    """``NAME=VALUE`` sets a value; ``NAME`` passes on our own, which keeps a secret off the command line."""
    variables: dict[str, str] = {}
    for value in values:
        name, separator, text = value.partition("=")
        if not name:
            raise click.BadParameter("write it as NAME=VALUE or NAME", context, parameter)
        if not separator and name not in os.environ:
            raise click.BadParameter(f"`{name}` is not set here", context, parameter)
        variables[name] = text if separator else os.environ[name]
    return variables


@click.command(
    "run",
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
    epilog=EPILOG,
)
@world_options
@click.option("--timeout", "timeout_s", type=float, callback=seconds, metavar="SECONDS", help="Time limit.")
@click.option(
    "--grace",
    "grace_s",
    type=float,
    default=DEFAULT_GRACE_S,
    show_default=True,
    callback=seconds,
    metavar="SECONDS",
    help="Time between TERM and KILL.",
)
@click.option(
    "-e",
    "--env",
    "variables",
    multiple=True,
    callback=environment,
    metavar="NAME[=VALUE]",
    help="Set a variable; without a value, pass on ours. Repeatable.",
)
@click.option("--cwd", metavar="DIR", help="Directory in the world to run in.")
@click.option("--json", "as_json", is_flag=True, help="Print one object with everything that is known.")
@click.option("-t", "--tty", is_flag=True, help="Give the command a terminal.")
@click.option(
    "-i/-n",
    "--stdin/--no-stdin",
    "forward_stdin",
    default=None,
    help="Pass our input on, or none; by default only a pipe or file.",
)
@click.argument("argv", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND...")
def command(
    world_name: str | None,
    config: dict[str, str],
    quiet: bool,
    as_json: bool,
    tty: bool,
    argv: tuple[str, ...],
    **options: Any,
) -> int:
    """Run a command in a world.

    Its output arrives as it is written. Everything that it left running ends with it.
    """
    if tty and as_json:
        raise click.UsageError(
            "--tty and --json do not go together: a terminal has one stream for everything"
        )
    choice = WorldChoice(world_name, config, quiet or as_json)
    if choice.policy.explain:
        return explain_world(choice, as_json=as_json)
    if not argv:
        raise click.UsageError("name the command to run, after --")
    return run_command(
        choice,
        Command(tuple(os.fsencode(argument) for argument in argv), tty=tty, **options),
        as_json=as_json,
    )
