"""``execworld floor``."""

from __future__ import annotations

from typing import Any

import click

from execworld.cli.compositions import CompositionChoice, composition_options
from execworld.cli.descriptors import Sink
from execworld.cli.documents import encode_document
from execworld.cli.messages import note
from execworld.cli.supervision import run_supervised


@click.group("floor", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Floors: what every layer above must hold, too."""


@command.command("show", epilog="Example: execworld floor show --json")
@composition_options
@click.option("--json", "as_json", is_flag=True, help="Print one object: floor and origins.")
def show_command(as_json: bool, **options: Any) -> int:
    """Print what is demanded at the least, by this machine and by all layers, and who demands it."""
    from execworld.config import show_document, show_places
    from execworld.config.nodes import MappingNode, plain_value

    document = CompositionChoice(**options).load(reads=False).document
    floor = document.entries.get("floor")
    if floor is None:
        note("no layer has a floor, and this machine has none")
    entries = {} if floor is None else {"floor": floor}
    shown = MappingNode(entries, {name: document.keys[name] for name in entries}, document.origin)
    if as_json:
        found = {"floor": {} if floor is None else plain_value(floor), "origins": show_places(shown)}
        data = encode_document(found, indent=2)
    else:
        data = show_document(shown).encode("utf-8")

    async def work() -> int:
        await Sink(1).write(data)
        return 0

    return run_supervised(work)
