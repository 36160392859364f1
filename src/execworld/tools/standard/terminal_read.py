"""`terminal_read`: read what a terminal showed, without typing."""

from __future__ import annotations

from pydantic import BaseModel, Field

from execworld.kernel import Context, plugin
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content
from execworld.tools.definition import Tool
from execworld.tools.registry import TOOLS
from execworld.tools.standard.terminal_values import (
    TerminalState,
    TerminalText,
    TerminalTools,
    shown,
    state_of,
    text_of,
)
from execworld.tools.terminals import TERMINALS, TerminalService


class TerminalReadArguments(BaseModel, extra="forbid", frozen=True):
    session_id: str = Field(description="Which terminal.")
    offset: int = Field(default=0, ge=0, description="How many of the newest lines to leave out.")
    count: int = Field(default=500, ge=0, le=10_000, description="How many lines to read.")


class TerminalPage(BaseModel, frozen=True):
    output: TerminalText
    state: TerminalState


def terminal_read_tool(
    config: TerminalTools, terminals: TerminalService
) -> Tool[TerminalReadArguments, TerminalPage]:
    """The tool, over a service."""

    async def run(ctx: ToolContext, arguments: TerminalReadArguments) -> TerminalPage:
        session = terminals.get(ctx.session, arguments.session_id)
        viewport = session.read(arguments.offset, arguments.count)
        return TerminalPage(output=text_of(viewport), state=state_of(session.status))

    return Tool(
        name="terminal_read",
        description=(
            "Read the newest lines of a terminal, or the screen of a full-screen program. Nothing is typed, and what "
            "is read stays there to be read again."
        ),
        arguments=TerminalReadArguments,
        value=TerminalPage,
        run=run,
        render=_render,
        parallel_safe=True,
        limit_bytes=config.limit_bytes,
        keep="tail",
    )


def _render(_: TerminalReadArguments, value: TerminalPage) -> Content:
    output = value.output
    where = f"no lines, of {output.total_lines}"
    if output.first_line:
        last = output.first_line + output.text.count("\n")
        where = f"lines {output.first_line}-{last} of {output.total_lines}"
    return shown(output, "(nothing there)", where, str(value.state))


@plugin(inject=[TOOLS, TERMINALS])
def terminal_read(ctx: Context, config: TerminalTools) -> None:
    """Give agents `terminal_read`."""
    ctx.get(TOOLS).add(ctx, terminal_read_tool(config, ctx.get(TERMINALS)))
