"""``execworld graph``."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import click

from execworld.cli.compositions import CompositionChoice, composition_options
from execworld.cli.descriptors import Sink
from execworld.cli.documents import encode_document
from execworld.cli.exits import FAILURE
from execworld.cli.messages import report
from execworld.cli.supervision import run_supervised
from execworld.seams import ExecworldError

if TYPE_CHECKING:
    from execworld.assembly import RunningComposition
    from execworld.config import Composition
    from execworld.kernel import FiberDescription

EPILOG = """\b
Examples:
  execworld graph
  execworld graph --patch docker.patch.yml --json
  execworld graph --follow

\b
Exit codes: 0 every row is ACTIVE; 1 one is not; 125 the composition was refused.
"""


@click.command("graph", epilog=EPILOG)
@composition_options
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
@click.option("--follow", is_flag=True, help="Stay, and take edits of config.yml and profiles, until Ctrl-C.")
def command(as_json: bool, follow: bool, **options: Any) -> int:
    """Start a composition, print which rows are in which state, and end it.

    What provides what is told for each row, and for one that is PENDING what it waits for. Where the composition is
    refused, the rows are shown that had been started by then, and the refusal is told on standard error.

    With --follow the rows are printed again after each edit that was taken. One that is wrong, or that would guarantee
    less than what runs, is told on standard error and changes nothing.
    """
    from execworld.assembly import RunningComposition
    from execworld.cli.composed import report_of_plugin
    from execworld.config import hold_floor, load
    from execworld.kernel import FiberState, open_kernel

    wanted = CompositionChoice(**options).wanted()
    composition = load(wanted)

    async def show(running: RunningComposition) -> int:
        rows = running.describe().children
        if as_json:
            data = encode_document({"rows": [_as_dict(row) for row in rows]}, indent=2)
        else:
            lines = "".join(f"{line}\n" for row in rows for line in _lines(row, ""))
            data = lines.encode("utf-8", "backslashreplace")
        await Sink(1).write(data)
        return 0 if all(row.state is FiberState.ACTIVE for row in rows) else FAILURE

    async def work() -> int:
        code = 0
        hold_floor(composition)
        async with open_kernel(on_error=report_of_plugin) as root:
            running = RunningComposition(root, composition)
            try:
                await running.start()
            except ExecworldError as error:
                code = report(error)
            not_active = await show(running)
            if follow and not code:
                await _follow(running, partial(load, wanted), show)
            return code or not_active

    return run_supervised(work)


async def _follow(
    running: RunningComposition,
    load: Callable[[], Composition],
    show: Callable[[RunningComposition], Awaitable[int]],
) -> None:
    """Take what the user edits, and tell of each time, until cancelled."""
    from execworld.assembly import RELOADED, DocumentFollower, Reloaded
    from execworld.world.locations import user_locations

    send, receive = anyio.create_memory_object_stream[Reloaded](math.inf)
    running.context.on(RELOADED, send.send_nowait)
    with send, receive:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(DocumentFollower(running, load, user_locations()).run)
            async for reloaded in receive:
                if reloaded.error is None:
                    await show(running)
                elif isinstance(reloaded.error, ExecworldError):
                    report(reloaded.error)
                else:
                    raise reloaded.error


def _lines(row: FiberDescription, indent: str) -> Iterator[str]:
    yield f"{indent}{row.name}: {row.state}"
    inner = f"{indent}  "
    if row.provides:
        yield f"{inner}provides {', '.join(_place(each.service, each.realm) for each in row.provides)}"
    for use in row.uses:
        if use.provider:
            yield f"{inner}uses {_place(use.service, use.realm)} of {use.provider}"
    for missing in row.missing:
        yield f"{inner}waits for {_place(missing.service, missing.realm)}: {missing.reason}"
    if row.error:
        yield f"{inner}{row.error}"
    for child in row.children:
        yield from _lines(child, inner)


def _place(service: str, realm: str) -> str:
    return f"{service} (realm {realm})" if realm else service


def _as_dict(row: FiberDescription) -> dict[str, object]:
    return {
        "name": row.name,
        "state": str(row.state),
        "error": row.error,
        "provides": [{"service": each.service, "realm": each.realm} for each in row.provides],
        "uses": [
            {
                "service": each.service,
                "realm": each.realm,
                "provider": each.provider,
                "required": each.required,
            }
            for each in row.uses
        ],
        "missing": [
            {"service": each.service, "realm": each.realm, "reason": each.reason} for each in row.missing
        ],
        "children": [_as_dict(child) for child in row.children],
    }
