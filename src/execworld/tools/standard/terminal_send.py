"""`terminal_send`: type to a terminal, and read the answer."""

from __future__ import annotations

from typing import Final

import anyio
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
from execworld.tools.terminals import TERMINALS, TerminalService, WaitReason

_INTERRUPT_S: Final = 5.0  # for a program to end after it was interrupted

_REASONS: Final = {
    WaitReason.PROMPT: "the shell is at its prompt",
    WaitReason.STDIN_READ: "it waits for input",
    WaitReason.SESSION_EXIT: "it ended",
    WaitReason.INFERRED_IDLE: "nothing was written for a while; it may be waiting, or busy in silence",
    WaitReason.TIMEOUT: "the time of this call is over, and it goes on",
}


class TerminalSendArguments(BaseModel, extra="forbid", frozen=True):
    session_id: str = Field(description="Which terminal.")
    text: str = Field(
        description="What to type, key by key; may be empty. Control characters are keys: \\u0003 interrupts, "
        "\\u0004 ends the input, \\u001b is Escape, \\u001b[A the arrow up."
    )
    submit: bool = Field(default=True, description="Press Enter after it.")
    timeout_s: float | None = Field(default=None, gt=0, description="How long to wait for the answer.")


class TerminalSent(BaseModel, frozen=True):
    output: TerminalText
    reason: WaitReason
    state: TerminalState
    last_exit_code: int | None = Field(
        description="of the last command of the shell, if this call saw it end"
    )
    typed: bool = Field(description="the terminal took all of the text")


def terminal_send_tool(
    config: TerminalTools, terminals: TerminalService
) -> Tool[TerminalSendArguments, TerminalSent]:
    """The tool, over a service."""

    async def run(ctx: ToolContext, arguments: TerminalSendArguments) -> TerminalSent:
        session = terminals.get(ctx.session, arguments.session_id)
        timeout_s = min(arguments.timeout_s or config.send_timeout_s, config.max_send_timeout_s)
        operation = session.begin_send(arguments.text, submit=arguments.submit, timeout_s=timeout_s)
        try:
            result = await operation.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(_INTERRUPT_S, shield=True):
                await operation.interrupt()
                await operation.over()
            raise
        return TerminalSent(
            output=text_of(result.viewport),
            reason=result.reason,
            state=state_of(result.status),
            last_exit_code=result.last_exit_code,
            typed=result.typed,
        )

    return Tool(
        name="terminal_send",
        description=(
            "Type to a terminal and wait until its program wants more, at most for the time given. The result is what "
            "was written since, or the screen of a full-screen program, and why the waiting ended."
        ),
        arguments=TerminalSendArguments,
        value=TerminalSent,
        run=run,
        render=_render,
        limit_bytes=config.limit_bytes,
        keep="tail",
    )


def _render(_: TerminalSendArguments, value: TerminalSent) -> Content:
    markers = [_REASONS[value.reason]]
    if not value.typed:
        markers.insert(0, "not all of the text was taken")
    if value.last_exit_code is not None:
        markers.append(f"exit code of the last command: {value.last_exit_code}")
    return shown(value.output, "(no new output)", *markers, str(value.state))


@plugin(inject=[TOOLS, TERMINALS])
def terminal_send(ctx: Context, config: TerminalTools) -> None:
    """Give agents `terminal_send`."""
    ctx.get(TOOLS).add(ctx, terminal_send_tool(config, ctx.get(TERMINALS)))
