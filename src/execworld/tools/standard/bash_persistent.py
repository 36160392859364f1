"""`bash_persistent`: commands for one shell that goes on between the calls."""

from __future__ import annotations

from pydantic import BaseModel, Field, field_validator

from execworld.kernel import Context, plugin
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.registry import TOOLS
from execworld.tools.session import ToolSession
from execworld.tools.terminals import TERMINALS, PersistentShell, TerminalService, WaitReason


class BashPersistentTool(BaseModel, extra="forbid", frozen=True):
    """Configuration of `bash_persistent`."""

    timeout_s: float = Field(default=300, gt=0, description="how long a command may take")
    output_chars: int = Field(
        default=16_000, ge=64, description="how much of its output is shown, from the start"
    )


class BashPersistentArguments(BaseModel, extra="forbid", frozen=True):
    command: str = Field(description="What the shell is to run; one line or more.")

    @field_validator("command")
    @classmethod
    def _is_a_command(cls, command: str) -> str:
        if not command.strip() or "\0" in command:
            raise ValueError("a command must not be blank, nor hold a NUL")
        return command


class BashPersistentValue(BaseModel, frozen=True):
    output: str = Field(description="what it wrote, from the start")
    omitted_chars: int = Field(description="how much came after that")
    lost_beginning: bool = Field(description="the terminal no longer had the beginning")
    reason: WaitReason
    exit_code: int | None = Field(description="of the command, if it ended and the shell did not")
    shell_exit_code: int | None = Field(description="of the shell, if the command ended it")
    shell_ended: bool = Field(description="the next command gets a new shell")
    timeout_s: float


def bash_persistent_tool(
    config: BashPersistentTool, terminals: TerminalService
) -> Tool[BashPersistentArguments, BashPersistentValue]:
    """The tool, over a service; one shell for each session."""
    shells: dict[ToolSession, PersistentShell] = {}

    async def run(ctx: ToolContext, arguments: BashPersistentArguments) -> BashPersistentValue:
        shell = shells.get(ctx.session)
        if shell is None:
            shell = _owned_shell(ctx.session)
        result = await shell.run(ctx.world, ctx.session.cwd, arguments.command, config.timeout_s)
        output = result.viewport.text
        return BashPersistentValue(
            output=output[: config.output_chars],
            omitted_chars=max(0, len(output) - config.output_chars),
            lost_beginning=result.viewport.truncated,
            reason=result.reason,
            exit_code=result.exit_code,
            shell_exit_code=result.shell_exit_code,
            shell_ended=result.shell_ended,
            timeout_s=config.timeout_s,
        )

    def _owned_shell(session: ToolSession) -> PersistentShell:
        shell = PersistentShell(terminals)

        async def end() -> None:
            shells.pop(session, None)
            await shell.aclose()

        session.own("persistent shell", end)
        shells[session] = shell
        return shell

    return Tool(
        name="bash_persistent",
        description=(
            "Run a command in a shell that stays: directory, variables, functions and jobs are there for the next "
            "command. It cannot be asked anything; use a terminal for programs that ask. Look at the exit code, and at "
            "what a failed command wrote, before you go on."
        ),
        arguments=BashPersistentArguments,
        value=BashPersistentValue,
        run=run,
        render=_render,
        limit_bytes=4 * config.output_chars + 1024,
        keep="both",
    )


def _render(_: BashPersistentArguments, value: BashPersistentValue) -> Content:
    parts = [value.output if value.output.strip() else "(no output)"]
    if value.lost_beginning:
        parts.insert(0, "[the beginning was dropped: the terminal keeps only the newest lines]")
    if value.omitted_chars:
        parts.append(f"[{value.omitted_chars} characters more were written]")
    match value.reason:
        case WaitReason.TIMEOUT:
            parts.append(
                f"[not over after {value.timeout_s:g} s: the shell was closed; the next command gets a new one]"
            )
        case WaitReason.SESSION_EXIT:
            code = "" if value.shell_exit_code is None else f" with code {value.shell_exit_code}"
            parts.append(f"[the shell ended{code}; the next command gets a new one]")
        case WaitReason.PROMPT:
            if value.exit_code:
                parts.append(f"[exit code: {value.exit_code}]")
        case _:
            parts.append("[it waits for input, which cannot be given here; the next command interrupts it]")
    return (Text("\n".join(parts)),)


@plugin(inject=[TOOLS, TERMINALS])
def bash_persistent(ctx: Context, config: BashPersistentTool) -> None:
    """Give agents `bash_persistent`."""
    ctx.get(TOOLS).add(ctx, bash_persistent_tool(config, ctx.get(TERMINALS)))
