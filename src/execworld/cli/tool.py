"""``execworld tool``."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

import click

from execworld.cli.worlds import WorldChoice, world_options

if TYPE_CHECKING:
    from execworld.tools.calls import ToolResult

_STDOUT: Final = 1
_STDIN: Final = 0
_ARGUMENT_BYTES: Final = 64 << 20

EPILOG = """\b
Examples:
  execworld tool read '{"file_path": "notes.md"}'
  execworld tool bash '{"command": "make test"}' -w docker://debian:bookworm
  generate | execworld tool write - --json

\b
Exit codes: 0 done, whatever a command in it exited with; 1 it failed; 2 the command line is wrong;
124 its time is over; 125 the world or its configuration failed; 126 denied; 127 there is no such tool;
128+N when signal N ended it.
"""


@click.command("tool", context_settings={"help_option_names": ["-h", "--help"]}, epilog=EPILOG)
@world_options
@click.option("--json", "as_json", is_flag=True, help="Print one object with everything that is known.")
@click.argument("name")
@click.argument("arguments", metavar="[JSON|-]", default="")
def command(
    world_name: str | None, config: dict[str, str], quiet: bool, as_json: bool, name: str, arguments: str
) -> int:
    """Call a tool once, as an agent would: policies, guards and questions included.

    It takes a JSON object, or reads one with `-`. What has to be allowed is asked on the terminal; without one it is
    denied.
    """
    from execworld.cli.explaining import explain_world
    from execworld.cli.supervision import run_supervised

    choice = WorldChoice(world_name, config, quiet or as_json)
    if choice.policy.explain:
        return explain_world(choice, as_json=as_json)

    async def work() -> int:
        from execworld.cli.toolsets import open_toolset

        text = await _read_all() if arguments == "-" else arguments
        async with open_toolset(choice) as tools:
            result = await tools.call(name, text)
        await _show(result, as_json=as_json)
        return _exit_code(result)

    return run_supervised(work)


async def _read_all() -> str:
    from execworld.cli.descriptors import read_chunks

    data = bytearray()
    async for chunk in read_chunks(_STDIN):
        data += chunk
        if len(data) > _ARGUMENT_BYTES:
            raise click.UsageError(f"the arguments have more than {_ARGUMENT_BYTES} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise click.UsageError("the arguments are not UTF-8") from None


async def _show(result: ToolResult, *, as_json: bool) -> None:
    from execworld.cli.descriptors import Sink
    from execworld.cli.documents import encode_document
    from execworld.cli.messages import note
    from execworld.tools.content import Image, encode_text

    images = [part for part in result.content if isinstance(part, Image)]
    if as_json:
        shown = [
            {"media_type": image.media_type, "base64": base64.b64encode(image.data).decode("ascii")}
            for image in images
        ]
        await Sink(_STDOUT).write(encode_document({**result.as_dict(), "images": shown}))
        return
    if result.text:
        await Sink(_STDOUT).write(encode_text(result.text.rstrip("\n") + "\n"))
    for image in images:
        note(f"an image is not shown: {image.media_type}, {len(image.data)} bytes; --json has it")
    for context in result.contexts:
        note(context)


def _exit_code(result: ToolResult) -> int:
    from execworld.cli import exits
    from execworld.seams import ErrorCode

    codes: dict[str | None, int] = {
        None: 0,
        ErrorCode.TOOL_TIMEOUT: exits.TIME_LIMIT,
        ErrorCode.TOOL_DENIED: exits.NOT_EXECUTABLE,
        ErrorCode.TOOL_BLOCKED: exits.NOT_EXECUTABLE,
        ErrorCode.FLOOR_VIOLATED: exits.NOT_EXECUTABLE,
        ErrorCode.UNKNOWN_TOOL: exits.NOT_FOUND,
    }
    codes |= dict.fromkeys(
        (
            ErrorCode.SANDBOX_UNAVAILABLE,
            ErrorCode.WORLD_UNAVAILABLE,
            ErrorCode.WORLD_LOST,
            ErrorCode.WORLD_CLOSED,
            ErrorCode.OUTCOME_UNKNOWN,
        ),
        exits.WORLD_FAILURE,
    )
    return codes.get(result.code, exits.FAILURE)
