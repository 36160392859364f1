"""``execworld config``."""

from __future__ import annotations

import os
from typing import Any

import click

from execworld.cli.compositions import CompositionChoice, composition_options
from execworld.cli.descriptors import Sink
from execworld.cli.documents import encode_document
from execworld.cli.supervision import run_supervised

SHOW_EPILOG = """\b
Examples:
  execworld config show --patch docker.patch.yml
  execworld config show --profile work --set world.config.image=debian:bookworm
"""

TEMPLATE = """\
# Layers, each laid over the one before: defaults, profile, config.yml, --patch, --set.
# `execworld config show` prints what they amount to, `execworld config schema` the form for editors.
#
# world:
#   use: docker
#   config: {image: "debian:bookworm", env: {TOKEN: !env TOKEN}}
#
# policy:
#   mode: workspace-write
#   workspace: /workspace
#   network: none
#
# floor:
#   boundary: kernel-policy
#   mode: workspace-write
"""


@click.group("config", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show, begin and describe compositions: which world, with which options, under which policy."""


@command.command("show", epilog=SHOW_EPILOG)
@composition_options
@click.option("--json", "as_json", is_flag=True, help="Print one object: layers, document and origins.")
def show_command(as_json: bool, **options: Any) -> int:
    """Print what all layers amount to, with the place of every value.

    What stands for a secret, `!env` and `!file`, is printed as it is written. Read again with --alone --patch, the
    output is the same composition.
    """
    from execworld.config import show_document, show_places
    from execworld.config.nodes import plain_value

    composition = CompositionChoice(**options).load(reads=False)
    if not as_json:
        return _print(show_document(composition.document).encode("utf-8"))
    return _print(
        encode_document(
            {
                "layers": [{"layer": layer.name, "file": layer.file} for layer in composition.layers],
                "document": plain_value(composition.document),
                "origins": show_places(composition.document),
            },
            indent=2,
        )
    )


@command.command("path", epilog="Example: execworld config path --json")
@click.option("--profile", metavar="NAME", help="With the document of this profile.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects.")
def path_command(profile: str | None, as_json: bool) -> int:
    """Name the documents that are looked for, and say which of them exist."""
    from execworld.config.layers import DEFAULTS, check_profile_name
    from execworld.config.system_floor import PATH
    from execworld.world.locations import user_locations

    places = user_locations()
    documents = [("system", PATH), ("defaults", DEFAULTS)]
    if profile is not None:
        check_profile_name(profile, places)
        documents.append((f"profile {profile}", places.profile(profile)))
    documents.append(("home", places.home))
    if as_json:
        found = [{"layer": layer, "file": path, "exists": os.path.lexists(path)} for layer, path in documents]
        return _print(encode_document(found, indent=2))
    lines = [f"{layer}: {path}{'' if os.path.lexists(path) else ' (absent)'}\n" for layer, path in documents]
    return _print("".join(lines).encode("utf-8", "surrogateescape"))


@command.command("init", epilog="Example: execworld config init --profile work")
@click.option("--profile", metavar="NAME", help="Begin this profile instead of config.yml.")
def init_command(profile: str | None) -> int:
    """Write a document to begin with, in which everything is a comment, and print its path.

    A document that is there already is left as it is, and that is an error.
    """
    from execworld.config.layers import begin_document, check_profile_name
    from execworld.world.locations import user_locations

    places = user_locations()
    path = places.home
    if profile is not None:
        check_profile_name(profile, places)
        path = places.profile(profile)
    begin_document(path, TEMPLATE)
    return _print(os.fsencode(path) + b"\n")


@command.command("schema", epilog="Example: execworld config schema > execworld.schema.json")
def schema_command() -> int:
    """Print the form of a document as JSON Schema, with the options of all installed worlds."""
    from execworld.config import installed_registry, json_schema

    return _print(encode_document(json_schema(installed_registry()), indent=2))


def _print(data: bytes) -> int:
    async def work() -> int:
        await Sink(1).write(data)
        return 0

    return run_supervised(work)
