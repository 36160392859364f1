"""The tools `job_output`, `job_list` and `job_kill`."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.jobs import Job, Jobs, JobStatus
from execworld.tools.standard.plain_text import plain_text

WAIT_S: Final = 30.0
MAX_WAIT_S: Final = 600.0


class JobStateValue(BaseModel, frozen=True):
    id: str
    kind: str
    label: str
    status: JobStatus
    detail: str = ""


class JobOutputArguments(BaseModel, extra="forbid", frozen=True):
    job_id: str = Field(min_length=1)
    wait: bool = Field(default=False, description="Wait for its end first.")
    timeout_s: float = Field(default=WAIT_S, gt=0, le=MAX_WAIT_S, description="How long to wait at most.")


class JobOutputValue(BaseModel, frozen=True):
    """What the job printed since the last time."""

    job: JobStateValue
    text: str
    lost_bytes: int = 0
    spill_path: str | None = None
    notice: str = ""


class JobListArguments(BaseModel, extra="forbid", frozen=True):
    pass


class JobListValue(BaseModel, frozen=True):
    jobs: tuple[JobStateValue, ...]


class JobKillArguments(BaseModel, extra="forbid", frozen=True):
    job_id: str = Field(min_length=1)
    reason: str = Field(default="", description="For people who read the log.")


class JobKillValue(BaseModel, frozen=True):
    job: JobStateValue
    requested: bool


def job_output_tool(jobs: Jobs) -> Tool[JobOutputArguments, JobOutputValue]:
    """`job_output`."""

    async def run(ctx: ToolContext, arguments: JobOutputArguments) -> JobOutputValue:
        job = jobs.get(ctx.session, arguments.job_id)
        if arguments.wait:
            await job.wait(arguments.timeout_s)
        part = job.read_on()
        return JobOutputValue(
            job=_state(job),
            text=part.data.decode("utf-8", "replace"),
            lost_bytes=part.lost_bytes,
            spill_path=job.source.spill_path(),
            notice=job.outcome.notice,
        )

    return Tool(
        name="job_output",
        description=(
            "Read what a job in the background printed since the last time, and how it stands. With wait, wait for its "
            "end first; if that takes too long the job goes on."
        ),
        arguments=JobOutputArguments,
        value=JobOutputValue,
        run=run,
        render=_render_output,
        keep="tail",
    )


def job_list_tool(jobs: Jobs) -> Tool[JobListArguments, JobListValue]:
    """`job_list`."""

    async def run(ctx: ToolContext, arguments: JobListArguments) -> JobListValue:
        return JobListValue(jobs=tuple(map(_state, jobs.of(ctx.session))))

    return Tool(
        name="job_list",
        description="List the jobs in the background, running and ended.",
        arguments=JobListArguments,
        value=JobListValue,
        run=run,
        render=_render_list,
        parallel_safe=True,
    )


def job_kill_tool(jobs: Jobs) -> Tool[JobKillArguments, JobKillValue]:
    """`job_kill`."""

    async def run(ctx: ToolContext, arguments: JobKillArguments) -> JobKillValue:
        requested = await jobs.kill(ctx.session, arguments.job_id)
        return JobKillValue(job=_state(jobs.get(ctx.session, arguments.job_id)), requested=requested)

    return Tool(
        name="job_kill",
        description="End a job in the background, with all that it started.",
        arguments=JobKillArguments,
        value=JobKillValue,
        run=run,
        render=_render_kill,
    )


def _state(job: Job) -> JobStateValue:
    known = job.snapshot()
    return JobStateValue(
        id=known.id, kind=known.kind, label=known.label, status=known.status, detail=known.detail
    )


def _status(job: JobStateValue) -> str:
    return f"{job.status}, {job.detail}" if job.detail else str(job.status)


def _render_output(arguments: JobOutputArguments, value: JobOutputValue) -> Content:
    lines = [plain_text(value.text).removesuffix("\n") or "(no new output)"]
    if value.lost_bytes:
        where = f"; all of it: {value.spill_path}" if value.spill_path else ""
        lines.insert(0, f"[{value.lost_bytes} bytes before this were dropped{where}]")
    if value.notice:
        lines.append(f"[{value.notice}]")
    lines.append(f"[job {value.job.id}: {_status(value.job)}]")
    return (Text("\n".join(lines)),)


def _render_list(arguments: JobListArguments, value: JobListValue) -> Content:
    lines = [f"{job.id} {job.kind} {_status(job)}: {job.label}" for job in value.jobs]
    return (Text("\n".join(lines) or "no jobs"),)


def _render_kill(arguments: JobKillArguments, value: JobKillValue) -> Content:
    if value.requested:
        return (Text(f"asked job {value.job.id} to end"),)
    return (Text(f"job {value.job.id} has ended already: {_status(value.job)}"),)
