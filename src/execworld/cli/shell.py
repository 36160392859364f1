"""``execworld shell``."""

from __future__ import annotations

import shlex
from contextlib import AbstractAsyncContextManager

import click

from execworld.cli import exits
from execworld.cli.execution import NOTHING_KEPT, STDIN, run_streaming
from execworld.cli.explaining import explain_world
from execworld.cli.messages import is_terminal
from execworld.cli.run import environment, seconds
from execworld.cli.supervision import run_supervised
from execworld.cli.worlds import WorldChoice, world_options
from execworld.seams import DEFAULT_GRACE_S, CommandNotFound, OutputCallback, Process, World

EPILOG = """\b
Examples:
  execworld shell -w local
  execworld shell -w docker://debian:bookworm
  execworld shell -w local < script.sh

\b
Without a terminal, commands are read from standard input to its end, as `sh -s` does; what they
read themselves is what follows them there.

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
    """Open the world's shell on this terminal, or run commands from standard input.

    Everything that it left running ends with it.
    """
    choice = WorldChoice(world_name, config, quiet)
    if choice.policy.explain:
        return explain_world(choice)
    interactive = is_terminal(STDIN)

    async def work() -> int:
        async with choice.open() as world:
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
            shell = f"exec {shlex.quote(_shell_of(world))} -s"

            def start(on_output: OutputCallback) -> AbstractAsyncContextManager[Process]:
                return world.shell.start(
                    shell,
                    cwd=cwd,
                    env=variables,
                    pipe_stdin=True,
                    limits=NOTHING_KEPT,
                    timeout_s=timeout_s,
                    grace_s=grace_s,
                    on_output=on_output,
                )

            result = await run_streaming(start, timeout_s=timeout_s, grace_s=grace_s)
            return exits.code_of_result(result)

    return run_supervised(work)


def _shell_of(world: World) -> str:
    if world.shell.path is None:
        message = f"world {world.identity.kind} has no shell"
        raise CommandNotFound(message, world=world.world_id, hint="run a program with `execworld run`")
    return world.shell.path
