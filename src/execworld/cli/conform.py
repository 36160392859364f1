"""``execworld conform``."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from execworld.cli import exits
from execworld.cli.documents import encode_document
from execworld.cli.messages import say
from execworld.cli.worlds import parse_config
from execworld.seams import ConfigurationError, ProviderNotInstalled, SandboxPolicy
from execworld.world import resolve_world
from execworld.world.machine_floor import hold_machine_floor


@click.command("conform", epilog="Example: execworld conform local -k 'F-*' --junit report.xml")
@click.option(
    "--config",
    metavar="NAME=VALUE",
    multiple=True,
    callback=parse_config,
    help="An option of the world; a list or mapping as JSON. Repeatable.",
)
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="Write a JUnit file.")
@click.option(
    "--deviations",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Declared deviations from the contracts.",
)
@click.option("--cwd", metavar="DIR", help="Directory in the world that may be written to.")
@click.option("-k", "select", metavar="CLAUSES", help="Only these: ids or patterns, separated by commas.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@click.argument("world")
def command(
    config: dict[str, str],
    junit: Path | None,
    deviations: Path | None,
    cwd: str | None,
    select: str | None,
    as_json: bool,
    world: str,
) -> int:
    """Run the published contract suites in a world. The exit code is 1 when it does not conform."""
    try:
        from execworld.testing.conform import ClauseOutcome, run_conformance
    except ModuleNotFoundError as error:
        message = f"the contract suites need the Python package `{error.name}`"
        hint = "install it: pip install 'execworld[testing]'"
        raise ProviderNotInstalled(message, hint=hint) from error
    hold_machine_floor(resolve_world(world, config, text=True), SandboxPolicy.full_access())
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what was made is removed on the way out
    report = run_conformance(world, config, junit=junit, deviations=deviations, select=select, cwd=cwd)
    counts = {str(outcome): report.count(outcome) for outcome in ClauseOutcome}
    if as_json:
        document = {
            "world": report.world,
            "conforms": report.conforms,
            "counts": counts,
            "clauses": {clause: str(outcome) for clause, outcome in report.clauses.items()},
            "failed_tests": list(report.failed_tests),
        }
        click.echo(encode_document(document, indent=2), nl=False)
    else:
        if not report.conforms:
            click.echo(report.output)
        for clause, outcome in report.clauses.items():
            click.echo(f"{clause}: {outcome}")
        listing = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
        say(
            f"execworld: world {report.world} {'conforms' if report.conforms else 'does not conform'}: {listing}"
        )
    if not report.clauses and select is not None:
        raise ConfigurationError(f"no clause matches `{select}`")
    return 0 if report.conforms else exits.FAILURE
