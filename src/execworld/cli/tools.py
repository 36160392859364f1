"""``execworld tools``."""

from __future__ import annotations

from typing import Any, Final

import click

from execworld.cli.worlds import WorldChoice, world_options

_STDOUT: Final = 1


@click.command(
    "tools",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: execworld tools -w docker://debian:bookworm --json",
)
@world_options
@click.option("--json", "as_json", is_flag=True, help="Print the schemas, as a model is given them.")
def command(world_name: str | None, config: dict[str, str], quiet: bool, as_json: bool) -> int:
    """List the tools that an agent would have in a world."""
    from execworld.cli.supervision import run_supervised

    choice = WorldChoice(world_name, config, quiet or as_json)

    async def work() -> int:
        from execworld.cli.descriptors import Sink
        from execworld.cli.documents import encode_document
        from execworld.cli.toolsets import open_toolset

        async with open_toolset(choice) as tools:
            schemas = tools.schemas
        shown = encode_document(schemas, indent=2) if as_json else "".join(map(_line, schemas)).encode()
        await Sink(_STDOUT).write(shown)
        return 0

    return run_supervised(work)


def _line(schema: dict[str, Any]) -> str:
    required = schema["parameters"].get("required", ())
    names = [name if name in required else f"[{name}]" for name in schema["parameters"]["properties"]]
    return f"{schema['name']} {' '.join(names)}\n    {schema['description']}\n"
