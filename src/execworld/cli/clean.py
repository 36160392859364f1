"""``execworld clean``."""

from __future__ import annotations

from dataclasses import dataclass

import click

from execworld.cli.descriptors import Sink
from execworld.cli.documents import encode_document
from execworld.cli.exits import FAILURE
from execworld.cli.hints import hint_of
from execworld.cli.messages import note
from execworld.cli.supervision import run_supervised
from execworld.seams import ExecworldError, Leftover, LeftoverState
from execworld.world import list_providers, load_provider
from execworld.world.discovery import missing_package_refused

_WORDS = {
    LeftoverState.REMOVED: "removed",
    LeftoverState.REMOVABLE: "would remove",
    LeftoverState.KEPT: "kept",
    LeftoverState.FAILED: "cannot remove",
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """What was found of one kind of worlds.

    Attributes:
        not_searched: Why its leftovers were not looked for; empty when they were.
    """

    world: str
    leftovers: tuple[Leftover, ...] = ()
    not_searched: str = ""
    failed: bool = False

    def as_dict(self) -> dict[str, object]:
        return {
            "world": self.world,
            "not_searched": self.not_searched,
            "leftovers": [
                {"kind": item.kind, "name": item.name, "state": str(item.state), "reason": item.reason}
                for item in self.leftovers
            ],
        }


@click.command("clean", epilog="Example: execworld clean --dry-run")
@click.option("--dry-run", is_flag=True, help="Only tell what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def command(dry_run: bool, as_json: bool) -> int:
    """Remove what worlds left behind because the program that had opened them was killed.

    That is little: worlds remove what they made, and end with their program. What is in use is kept, and so is what
    cannot be told from that, such as what another host made.

    The exit code is 1 when something that should be removed could not be.
    """

    async def work() -> int:
        names = dict.fromkeys(listing.name for listing in list_providers())
        sweeps = [await _sweep(name, dry_run=dry_run) for name in names]
        if as_json:
            data = encode_document([sweep.as_dict() for sweep in sweeps], indent=2)
        else:
            for sweep in sweeps:
                if sweep.not_searched:
                    note(f"{sweep.world}: nothing was looked for: {sweep.not_searched}")
            data = "".join(map(_plain, sweeps)).encode("utf-8", "backslashreplace")
        await Sink(1).write(data)
        failed = any(
            sweep.failed or any(item.state is LeftoverState.FAILED for item in sweep.leftovers)
            for sweep in sweeps
        )
        return FAILURE if failed else 0

    return run_supervised(work)


async def _sweep(name: str, *, dry_run: bool) -> Sweep:
    try:
        provider = load_provider(name)
        if provider.clean is None:
            return Sweep(name)
        with missing_package_refused(provider):
            return Sweep(name, tuple(await provider.clean(dry_run=dry_run)))
    except ExecworldError as error:
        # Where no world of this kind can be opened none left anything that could be reached.
        hint = hint_of(error)
        return Sweep(name, not_searched=error.message + (f" (hint: {hint})" if hint else ""))
    except Exception as error:  # noqa: BLE001 - one broken provider must not keep the others from being asked
        return Sweep(name, not_searched=f"{type(error).__name__}: {error}", failed=True)


def _plain(sweep: Sweep) -> str:
    lines: list[str] = []
    for item in sweep.leftovers:
        name = "".join(
            character if character.isprintable() else ascii(character)[1:-1] for character in item.name
        )
        lines.append(f"{sweep.world}: {_WORDS[item.state]} {item.kind} {name}: {item.reason}\n")
    return "".join(lines)
