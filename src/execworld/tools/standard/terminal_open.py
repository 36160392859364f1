"""`terminal_open`: start a program on a terminal."""

from __future__ import annotations

import posixpath
from functools import partial
from typing import Annotated

from pydantic import BaseModel, Field

from execworld.kernel import Context, plugin
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content
from execworld.tools.definition import Tool
from execworld.tools.escalation import Escalatable
from execworld.tools.registry import TOOLS
from execworld.tools.session import ToolSession
from execworld.tools.standard.terminal_values import (
    TerminalState,
    TerminalText,
    TerminalTools,
    shown,
    state_of,
    text_of,
)
from execworld.tools.terminals import TERMINALS, TerminalService


class TerminalOpenArguments(Escalatable, extra="forbid", frozen=True):
    argv: list[str] | None = Field(
        default=None, min_length=1, description="A program and its arguments. Leave it out for a shell."
    )
    name: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="A name for it, unlike that of your other terminals."
    )
    cwd: str | None = Field(default=None, description="Directory to start in; yours by default.")
    rows: int | None = Field(default=None, ge=2, le=500, description="Height of the screen.")
    columns: int | None = Field(default=None, ge=20, le=1000, description="Width of the screen.")


class TerminalOpened(BaseModel, frozen=True):
    session_id: str
    name: str | None
    command: str
    pid: int
    state: TerminalState
    output: TerminalText


def terminal_open_tool(
    config: TerminalTools, terminals: TerminalService
) -> Tool[TerminalOpenArguments, TerminalOpened]:
    """The tool, over a service."""
    owners: set[ToolSession] = set()

    async def end(owner: ToolSession) -> None:
        owners.discard(owner)
        await terminals.close_all(owner)

    async def run(ctx: ToolContext, arguments: TerminalOpenArguments) -> TerminalOpened:
        owner = ctx.session
        if owner not in owners:
            owner.own("terminals", partial(end, owner))
            owners.add(owner)
        session, started = await terminals.open(
            owner,
            ctx.world,
            argv=arguments.argv,
            name=arguments.name,
            cwd=posixpath.join(owner.cwd, arguments.cwd or ""),
            rows=arguments.rows or config.rows,
            columns=arguments.columns or config.columns,
            grace_s=config.close_grace_s,
        )
        info = session.info
        return TerminalOpened(
            session_id=info.id,
            name=info.name,
            command=info.command,
            pid=info.pid,
            state=state_of(started.status),
            output=text_of(started.viewport),
        )

    return Tool(
        name="terminal_open",
        description=(
            "Start a shell, or another program, on a terminal of its own, and keep it for later calls. Use it for what "
            "needs one: interpreters, debuggers, editors, programs that ask, and work whose state must stay. For a "
            "plain command use the shell tool."
        ),
        arguments=TerminalOpenArguments,
        value=TerminalOpened,
        run=run,
        render=_render,
        limit_bytes=config.limit_bytes,
        keep="head",
    )


def _render(_: TerminalOpenArguments, value: TerminalOpened) -> Content:
    name = f" ({value.name})" if value.name else ""
    return shown(
        value.output,
        "(no output yet)",
        f"terminal {value.session_id}{name}: {value.command}",
        str(value.state),
    )


@plugin(inject=[TOOLS, TERMINALS])
def terminal_open(ctx: Context, config: TerminalTools) -> None:
    """Give agents `terminal_open`."""
    ctx.get(TOOLS).add(ctx, terminal_open_tool(config, ctx.get(TERMINALS)))
