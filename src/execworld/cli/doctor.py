"""``execworld doctor``."""

from __future__ import annotations

from collections import Counter

import click

from execworld.cli.compositions import chosen_composition, layer_options
from execworld.cli.descriptors import Sink
from execworld.cli.documents import encode_document
from execworld.cli.exits import WORLD_FAILURE
from execworld.cli.messages import is_terminal
from execworld.cli.supervision import run_supervised
from execworld.seams import ExecworldError, Probe
from execworld.seams.values import record
from execworld.world import environment_variable, list_providers, load_provider


@record
class Finding:
    """What is known of one world: its probe, or why there is none."""

    name: str
    summary: str
    probe: Probe

    def as_dict(self) -> dict[str, object]:
        probe = self.probe
        return {
            "world": self.name,
            "summary": self.summary,
            "available": probe.available,
            "reason": probe.reason,
            "hint": probe.hint,
            "boundary": str(probe.boundary),
            "enforceable": {
                str(dimension): {"state": str(state), "by": by}
                for dimension, (state, by) in (probe.enforceable or {}).items()
            },
        }


@click.command("doctor", epilog="Example: execworld doctor --json")
@layer_options
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def command(as_json: bool) -> int:
    """Tell which worlds can be opened here, what each could enforce, and why not.

    With a composition, that of its world alone, after what it lacks of its floor has been refused. The exit code is 125
    when no world can be opened.
    """
    names = _names()
    if (choice := chosen_composition()) is not None:
        from execworld.config import load

        names = [load(choice.wanted()).world.use]

    async def work() -> int:
        findings = [await _examine(name) for name in names]
        if as_json:
            data = encode_document([finding.as_dict() for finding in findings], indent=2)
        else:
            text = _table(findings) if is_terminal(1) else _plain(findings)
            data = text.encode("utf-8", "backslashreplace")
        await Sink(1).write(data)
        return 0 if any(finding.probe.available for finding in findings) else WORLD_FAILURE

    return run_supervised(work)


def _names() -> list[str]:
    return list(Counter(listing.name for listing in list_providers()))


async def _examine(name: str) -> Finding:
    summary = ""
    try:
        provider = load_provider(name)
        summary = provider.summary
        return Finding(name, summary, await provider.probe())
    except ExecworldError as error:
        return Finding(name, summary, Probe(False, reason=error.message, hint=error.hint))
    except Exception as error:  # noqa: BLE001 - one broken provider must not hide the others
        return Finding(
            name, summary, Probe(False, reason=f"its probe failed: {type(error).__name__}: {error}")
        )


def _plain(findings: list[Finding]) -> str:
    lines: list[str] = []
    for finding in findings:
        probe = finding.probe
        lines.append(
            f"{finding.name}: {'available' if probe.available else 'not available'}: {finding.summary}"
        )
        lines += [f"  reason: {probe.reason}"] if probe.reason else []
        lines += [f"  hint: {probe.hint}"] if probe.hint else []
        lines.append(f"  boundary: {probe.boundary}")
        lines += [f"  {row}" for row in _dimensions(probe)]
    return "".join(f"{line}\n" for line in lines)


def _dimensions(probe: Probe) -> list[str]:
    return [
        f"{dimension}: {state}" + (f" ({by})" if by else "")
        for dimension, (state, by) in (probe.enforceable or {}).items()
    ]


def _table(findings: list[Finding]) -> str:
    from io import StringIO
    from shutil import get_terminal_size

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("world", "available", "boundary", "could enforce", "why not")
    for finding in findings:
        probe = finding.probe
        available = Text("yes", "green") if probe.available else Text("no", "red")
        why_not = "\n".join(part for part in (probe.reason, probe.hint) if part)
        enforceable = "\n".join(_dimensions(probe)) or "nothing"
        table.add_row(
            Text(f"{finding.name}\n{finding.summary}"),
            available,
            str(probe.boundary),
            Text(enforceable),
            Text(why_not),
        )
    plain = environment_variable("NO_COLOR") is not None
    output = StringIO()
    width = get_terminal_size().columns
    Console(file=output, force_terminal=True, no_color=plain, width=width).print(table)
    return output.getvalue()
