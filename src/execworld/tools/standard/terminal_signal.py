"""`terminal_signal`: signal the foreground program of a terminal."""

from __future__ import annotations

import signal
from typing import Literal

from pydantic import BaseModel, Field

from execworld.kernel import Context, plugin
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.registry import TOOLS
from execworld.tools.standard.terminal_values import TerminalTools
from execworld.tools.terminals import TERMINALS, TerminalService


class TerminalSignalArguments(BaseModel, extra="forbid", frozen=True):
    session_id: str = Field(description="Which terminal.")
    signal: Literal["INT", "TERM", "KILL", "TSTP", "HUP"] = Field(description="Which signal.")


class TerminalSignalled(BaseModel, frozen=True):
    signal: str
    group_id: int


def terminal_signal_tool(
    config: TerminalTools, terminals: TerminalService
) -> Tool[TerminalSignalArguments, TerminalSignalled]:
    """The tool, over a service."""

    async def run(ctx: ToolContext, arguments: TerminalSignalArguments) -> TerminalSignalled:
        session = terminals.get(ctx.session, arguments.session_id)
        number = int(signal.Signals[f"SIG{arguments.signal}"])
        return TerminalSignalled(signal=arguments.signal, group_id=await session.signal(number))

    return Tool(
        name="terminal_signal",
        description=(
            "Send a signal to the program in the foreground of a terminal. KILL never reaches the shell itself: close "
            "the terminal instead."
        ),
        arguments=TerminalSignalArguments,
        value=TerminalSignalled,
        run=run,
        render=lambda _, value: _render(value),
        limit_bytes=config.limit_bytes,
    )


def _render(value: TerminalSignalled) -> Content:
    return (Text(f"{value.signal} was sent to process group {value.group_id}"),)


@plugin(inject=[TOOLS, TERMINALS])
def terminal_signal(ctx: Context, config: TerminalTools) -> None:
    """Give agents `terminal_signal`."""
    ctx.get(TOOLS).add(ctx, terminal_signal_tool(config, ctx.get(TERMINALS)))
