"""The tool `bash`: run a command, and wait for it or leave it in the background."""

from __future__ import annotations

import posixpath
import signal as signals
from typing import Final, Literal

from anyio.abc import TaskStatus
from pydantic import BaseModel, Field

from execworld.seams import (
    CommandInvalid,
    CommandResult,
    CommandStatus,
    FileKind,
    Output,
    OutputLimits,
    OutputStream,
    SandboxMode,
    Unsupported,
    World,
)
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.escalation import Escalatable
from execworld.tools.jobs import JobOutcome, Jobs, JobSource, JobStatus
from execworld.tools.shown_paths import meant_path, shown_path
from execworld.tools.standard.plain_text import plain_text

JOB_KIND: Final = "bash"
NO_OUTPUT: Final = "(no output)"
_REFUSALS: Final = ("permission denied", "operation not permitted", "read-only file system")


class BashConfig(BaseModel, extra="forbid", frozen=True):
    """Limits of `bash`."""

    timeout_s: float = Field(default=120, gt=0, description="of a command that names none")
    max_timeout_s: float = Field(default=600, gt=0, description="the most that a command may name")
    head_bytes: int = Field(default=16 * 1024, ge=0, description="kept of the beginning of each stream")
    tail_bytes: int = Field(default=16 * 1024, ge=0, description="kept of the end of each stream")
    spill_bytes: int = Field(
        default=64 * 1024 * 1024, ge=0, description="of one stream, kept in a file of the world"
    )
    background: bool = Field(default=True, description="let commands run in the background")


class BashArguments(Escalatable, extra="forbid", frozen=True):
    command: str = Field(min_length=1, description="Run as it is by a fresh shell.")
    description: str = Field(default="", description="A few words for people about what it does.")
    timeout_s: float | None = Field(
        default=None, gt=0, description="Seconds until it is ended; not in the background."
    )
    workdir: str | None = Field(
        default=None,
        min_length=1,
        description="Where to run it, instead of `cd`; relative to the working directory.",
    )
    run_in_background: bool = Field(
        default=False, description="Return at once with a job; `job_output` reads what it prints."
    )


class BashOutput(BaseModel, frozen=True):
    """One stream. Where bytes were dropped, a line of the text says how many and where all of them are."""

    text: str = ""
    truncated: bool = False
    total_bytes: int = 0
    spill_path: str | None = None
    spill_error: str = ""


class BashValue(BaseModel, frozen=True):
    """What became of the command; of one in the background only its job."""

    kind: Literal["foreground", "background"]
    job_id: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    output_limit_hit: bool = False
    out_of_memory: bool | None = None
    background_processes: bool = False
    timeout_s: float | None = None
    stdout: BashOutput = BashOutput()
    stderr: BashOutput = BashOutput()
    sandbox: SandboxMode
    may_be_denied: bool = False
    survivors: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()


def bash_tool(config: BashConfig | None = None, jobs: Jobs | None = None) -> Tool[BashArguments, BashValue]:
    """`bash`; without *jobs* nothing runs in the background."""
    limits = config or BashConfig()

    async def run(ctx: ToolContext, arguments: BashArguments) -> BashValue:
        if not arguments.command.strip():
            raise CommandInvalid("the command is blank", op="tools.bash", world=ctx.world.world_id)
        cwd, notes = await _workdir(ctx, arguments)
        if arguments.run_in_background:
            return await _start(ctx, arguments, cwd, limits, jobs)
        timeout_s = min(arguments.timeout_s or limits.timeout_s, limits.max_timeout_s)
        result = await ctx.world.shell.run(
            arguments.command,
            cwd=cwd,
            limits=OutputLimits(limits.head_bytes, limits.tail_bytes, limits.spill_bytes),
            timeout_s=timeout_s,
        )
        return _finished(result, ctx.world, notes)

    return Tool(
        name="bash",
        description=(
            "Run a shell command in a fresh process: nothing of an earlier command is left but its files, so use "
            "workdir instead of cd. No input can be given; what waits for some gets the end of it. A result without an "
            "exit marker means exit code 0; any other is marked at the end and is worth a look before you go on. "
            "What a sandbox denies is policy: do not try another way around it."
        ),
        arguments=BashArguments,
        value=BashValue,
        run=run,
        render=render,
        limit_bytes=2 * (limits.head_bytes + limits.tail_bytes) + 16 * 1024,
        keep="both",
    )


async def _workdir(ctx: ToolContext, arguments: BashArguments) -> tuple[str | None, tuple[str, ...]]:
    """Where to run it, and what to say of that. None for where the world is, which the shell replaces."""
    session, world = ctx.session, ctx.world
    if arguments.workdir is not None:
        return (await world.fs.resolve(meant_path(arguments.workdir), cwd=session.cwd)).process_path, ()
    if session.cwd == world.facts.cwd:
        return None, ()
    path = session.cwd
    while path not in ("/", "") and not await _is_directory(world, path):
        path = posixpath.dirname(path)
    if path == session.cwd:
        return path, ()
    note = f"the working directory {shown_path(session.cwd)} is gone; {shown_path(path)} was used instead"
    return path, (note,)


async def _is_directory(world: World, path: str) -> bool:
    info = await world.fs.stat(path)
    return info is not None and info.kind is FileKind.DIRECTORY


def _finished(result: CommandResult, world: World, notes: tuple[str, ...]) -> BashValue:
    stdout, stderr = _output(result.stdout), _output(result.stderr)
    mode = world.policy.mode
    refused = f"{stdout.text}\n{stderr.text}".lower() if not result.ok else ""
    return BashValue(
        kind="foreground",
        exit_code=result.exit_code,
        signal=result.signal,
        timed_out=result.timed_out,
        output_limit_hit=result.output_limit_hit,
        out_of_memory=result.out_of_memory,
        background_processes=result.background,
        timeout_s=result.timeout_s,
        stdout=stdout,
        stderr=stderr,
        sandbox=mode,
        # Only a hint for the reader, so a guess will do: the kernel says no for other reasons in the same words.
        may_be_denied=mode is not SandboxMode.FULL_ACCESS and any(text in refused for text in _REFUSALS),
        survivors=result.tree.survivors if result.tree is not None else (),
        notes=(*notes, *result.notes),
    )


def _output(output: Output) -> BashOutput:
    return BashOutput(
        text=output.text,
        truncated=output.truncated,
        total_bytes=output.total_bytes,
        spill_path=output.spill_path,
        spill_error=output.spill_error,
    )


async def _start(
    ctx: ToolContext, arguments: BashArguments, cwd: str | None, limits: BashConfig, jobs: Jobs | None
) -> BashValue:
    if jobs is None or not limits.background:
        raise Unsupported(
            "commands cannot run in the background here", op="tools.bash", world=ctx.world.world_id
        )
    if arguments.timeout_s is not None:
        raise CommandInvalid(
            "a command in the background has no time limit", op="tools.bash", hint="`job_kill` ends it"
        )
    world = ctx.world

    async def run(task_status: TaskStatus[JobSource]) -> JobOutcome:
        async with world.shell.start(
            arguments.command,
            cwd=cwd,
            merge_stderr=True,
            limits=OutputLimits(limits.head_bytes, limits.tail_bytes, limits.spill_bytes),
        ) as process:
            result: CommandResult | None = None
            task_status.started(
                JobSource(
                    read=lambda offset: process.read_output(OutputStream.STDOUT, offset),
                    cancel=process.terminate,
                    spill_path=lambda: result.stdout.spill_path if result is not None else None,
                )
            )
            result = await process.wait()
        return _outcome(result)

    label = arguments.description.strip() or arguments.command.strip()
    job = await jobs.start(ctx.session, JOB_KIND, label, run)
    return BashValue(kind="background", job_id=job.id, sandbox=world.policy.mode)


def _outcome(result: CommandResult) -> JobOutcome:
    if result.status is CommandStatus.CANCELLED:
        detail = "" if result.signal is None else f"by {signal_name(result.signal)}"
        return JobOutcome(JobStatus.KILLED, detail)
    if result.signal is not None:
        return JobOutcome(JobStatus.KILLED, f"by {signal_name(result.signal)}")
    return JobOutcome(JobStatus.COMPLETED, f"exit code {result.exit_code}")


def signal_name(number: int) -> str:
    try:
        return signals.Signals(number).name
    except ValueError:
        return f"signal {number}"


def render(arguments: BashArguments, value: BashValue) -> Content:
    """Output, then one line for each fact, and the exit marker last."""
    if value.kind == "background":
        return (Text(f"running in the background as job {value.job_id}; read it with job_output"),)
    stdout, stderr = plain_text(value.stdout.text), plain_text(value.stderr.text)
    lines = [stdout.removesuffix("\n")] if stdout else []
    if stderr:
        lines += ["[stderr]", stderr.removesuffix("\n")]
    if not lines:
        lines.append(NO_OUTPUT)
    for stream in (value.stdout, value.stderr):
        if stream.truncated and stream.spill_path is None:
            why = f": {stream.spill_error}" if stream.spill_error else ""
            lines.append(f"[full output unavailable{why}]")
    lines += [f"[{note}]" for note in value.notes]
    lines += _markers(value)
    return (Text("\n".join(lines)),)


def _markers(value: BashValue) -> list[str]:
    lines: list[str] = []
    if value.background_processes:
        lines.append("[processes that it started in the background go on]")
    if value.survivors:
        lines.append(f"[still alive: {', '.join(map(str, value.survivors))}]")
    if value.may_be_denied:
        lines.append(f"[this ran in a sandbox ({value.sandbox}), which may be what refused it]")
        lines.append("[if it has to be done, ask for sandbox_permissions with a justification]")
    if value.output_limit_hit:
        lines.append("[ended because it wrote more than it may]")
    if value.out_of_memory:
        lines.append("[memory limit reached]")
    if value.timed_out:
        lines.append(f"[timed out after {value.timeout_s:g} s]")
    if value.signal is not None:
        lines.append(f"[killed by {signal_name(value.signal)}]")
    elif value.exit_code:
        lines.append(f"[exit code {value.exit_code}]")
    return lines
