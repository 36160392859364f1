"""``execworld shell``."""

from __future__ import annotations

import sys
from typing import Final

import click

from execworld.cli import exits
from execworld.cli.execution import NOTHING_KEPT, STDIN, Streams, tell_of
from execworld.cli.messages import is_terminal
from execworld.cli.run import environment, seconds
from execworld.cli.supervision import run_supervised
from execworld.cli.worlds import WorldChoice, world_options
from execworld.seams import DEFAULT_GRACE_S, CommandNotFound, World

_SCRIPT_LIMIT_BYTES: Final = 100_000
"""One argument of a program may have 131,072 bytes (execve(2)), and that is how a script gets to the shell."""

EPILOG = """\b
Examples:
  execworld shell -w local
  execworld shell -w docker://debian:bookworm
  echo 'uname -a; id' | execworld shell -w local

Exit codes are those of `execworld run`.
"""


@click.command("shell", epilog=EPILOG)
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
@click.option("--cwd", metavar="DIR", help="Directory in the world to start in.")
def command(
    world_name: str | None,
    config: dict[str, str],
    quiet: bool,
    timeout_s: float | None,
    grace_s: float,
    variables: dict[str, str],
    cwd: str | None,
) -> int:
    """Open the world's shell on this terminal, or run a script from standard input.

    Everything that it left running ends with it.
    """
    choice = WorldChoice(world_name, config, quiet)
    interactive = is_terminal(STDIN)
    script = "" if interactive else _read_script()

    async def work() -> int:
        async with choice.open() as world:
            choice.announce(world)
            if interactive:
                from execworld.cli.terminals import run_on_terminal  # a script needs no termios

                result = await run_on_terminal(
                    world,
                    [_shell_of(world)],
                    cwd=cwd,
                    env=variables,
                    timeout_s=timeout_s,
                    grace_s=grace_s,
                    forward_stdin=True,
                )
                return exits.code_of_result(result)
            if not script.strip():
                return 0
            with Streams() as streams:
                result = await world.shell.run(
                    script,
                    cwd=cwd,
                    env=variables,
                    limits=NOTHING_KEPT,
                    timeout_s=timeout_s,
                    grace_s=grace_s,
                    on_output=streams.deliver,
                )
            tell_of(result)
            return exits.code_of_result(result)

    return run_supervised(work)


def _shell_of(world: World) -> str:
    if world.shell.path is None:
        message = f"world {world.identity.kind} has no shell"
        raise CommandNotFound(message, world=world.world_id, hint="run a program with `execworld run`")
    return world.shell.path


def _read_script() -> str:
    data = sys.stdin.buffer.read(_SCRIPT_LIMIT_BYTES + 1)
    if len(data) > _SCRIPT_LIMIT_BYTES:
        message = (
            f"the script is longer than {_SCRIPT_LIMIT_BYTES} bytes; "
            "put it into the world with `execworld fs put` and run it with `execworld run`"
        )
        raise click.UsageError(message)
    return data.decode("utf-8", "surrogateescape")
