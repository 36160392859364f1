"""`terminal_list`: which terminals there are."""

from __future__ import annotations

from pydantic import BaseModel

from execworld.kernel import Context, plugin
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.registry import TOOLS
from execworld.tools.standard.terminal_values import TerminalState, TerminalTools, state_of
from execworld.tools.terminals import TERMINALS, TerminalService


class TerminalListArguments(BaseModel, extra="forbid", frozen=True):
    pass


class ListedTerminal(BaseModel, frozen=True):
    session_id: str
    name: str | None
    command: str
    state: TerminalState
    pid: int


class TerminalListing(BaseModel, frozen=True):
    terminals: tuple[ListedTerminal, ...]


def terminal_list_tool(
    config: TerminalTools, terminals: TerminalService
) -> Tool[TerminalListArguments, TerminalListing]:
    """The tool, over a service."""

    async def run(ctx: ToolContext, _: TerminalListArguments) -> TerminalListing:
        return TerminalListing(
            terminals=tuple(
                ListedTerminal(
                    session_id=info.id,
                    name=info.name,
                    command=info.command,
                    state=state_of(info.status),
                    pid=info.pid,
                )
                for info in terminals.list(ctx.session)
            )
        )

    return Tool(
        name="terminal_list",
        description="List your terminals.",
        arguments=TerminalListArguments,
        value=TerminalListing,
        run=run,
        render=lambda _, value: _render(value),
        parallel_safe=True,
        limit_bytes=config.limit_bytes,
    )


def _render(value: TerminalListing) -> Content:
    lines = [
        f"{each.session_id}{f' ({each.name})' if each.name else ''}: {each.command}; {each.state}; pid {each.pid}"
        for each in value.terminals
    ]
    return (Text("\n".join(lines) or "(no terminals)"),)


@plugin(inject=[TOOLS, TERMINALS])
def terminal_list(ctx: Context, config: TerminalTools) -> None:
    """Give agents `terminal_list`."""
    ctx.get(TOOLS).add(ctx, terminal_list_tool(config, ctx.get(TERMINALS)))
