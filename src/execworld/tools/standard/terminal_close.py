"""`terminal_close`: end a terminal and everything on it."""

from __future__ import annotations

from pydantic import BaseModel, Field

from execworld.kernel import Context, plugin
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.registry import TOOLS
from execworld.tools.standard.terminal_values import TerminalTools
from execworld.tools.terminals import TERMINALS, TerminalService


class TerminalCloseArguments(BaseModel, extra="forbid", frozen=True):
    session_id: str = Field(description="Which terminal.")


class TerminalClosed(BaseModel, frozen=True):
    session_id: str
    closed: bool = Field(description="by this call; false when another one was at it")


def terminal_close_tool(
    config: TerminalTools, terminals: TerminalService
) -> Tool[TerminalCloseArguments, TerminalClosed]:
    """The tool, over a service."""

    async def run(ctx: ToolContext, arguments: TerminalCloseArguments) -> TerminalClosed:
        closed = await terminals.close(ctx.session, arguments.session_id)
        return TerminalClosed(session_id=arguments.session_id, closed=closed)

    return Tool(
        name="terminal_close",
        description="End a terminal with every program that runs on it, also in the background.",
        arguments=TerminalCloseArguments,
        value=TerminalClosed,
        run=run,
        render=lambda _, value: _render(value),
        limit_bytes=config.limit_bytes,
    )


def _render(value: TerminalClosed) -> Content:
    return (
        Text(f"terminal {value.session_id} {'is closed' if value.closed else 'was being closed already'}"),
    )


@plugin(inject=[TOOLS, TERMINALS])
def terminal_close(ctx: Context, config: TerminalTools) -> None:
    """Give agents `terminal_close`."""
    ctx.get(TOOLS).add(ctx, terminal_close_tool(config, ctx.get(TERMINALS)))
