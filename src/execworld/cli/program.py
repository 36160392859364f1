"""The commands. Each is imported only when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Final

import click

from execworld.cli import exits
from execworld.cli.messages import keep_standard_descriptors, report

_COMMANDS: Final = (
    "run",
    "shell",
    "fs",
    "tool",
    "tools",
    "forward",
    "doctor",
    "check",
    "config",
    "floor",
    "graph",
    "conform",
    "bench",
    "clean",
)
_PASS_THROUGH: Final = ("run", "shell")
"""Commands whose exit code is that of another program, so that their own must not be taken for it."""


class LazyCommands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"execworld.cli.{cmd_name}")
        command: click.Command = module.command
        return command


@click.command(
    cls=LazyCommands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="A world is `local`, `landlock`, or whatever `execworld doctor` lists.",
)
@click.version_option(package_name="execworld", prog_name="execworld", message="%(prog)s %(version)s")
def commands() -> None:
    """Run commands and handle files in interchangeable execution worlds."""


def run_program(arguments: Sequence[str]) -> int:
    """Do what *arguments* say and return the exit code."""
    keep_standard_descriptors()
    try:
        outcome: object = commands.main(list(arguments), prog_name="execworld", standalone_mode=False)
    except click.UsageError as error:
        error.show()
        command = error.ctx.command.name if error.ctx is not None else None
        return exits.WORLD_FAILURE if command in _PASS_THROUGH else exits.USAGE
    except click.ClickException as error:
        error.show()
        return exits.FAILURE
    except (click.Abort, KeyboardInterrupt):
        return exits.SIGNAL_BASE + 2
    except BrokenPipeError:
        return exits.OUTPUT_CLOSED
    except Exception as error:  # noqa: BLE001 - the last resort: a message and a code instead of a traceback
        return report(error)
    return outcome if isinstance(outcome, int) else 0
