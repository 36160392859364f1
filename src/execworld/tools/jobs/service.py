"""The service of jobs."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Final, Self

import anyio
from anyio.abc import TaskGroup, TaskStatus
from pydantic import BaseModel, Field

from execworld.kernel import Context, Event, Key, plugin
from execworld.seams import CleanupIncomplete, ExecworldError, ForeignSession, JobLimit, NoJob
from execworld.tools.jobs.job import Job, JobOutcome, JobSnapshot, JobSource, JobStatus, RunJob
from execworld.tools.session import ToolSession

JOBS_CHANGED: Final = Event[ToolSession, None]("jobs/changed")
"""A job of the session came, changed its status, or went."""
JOB_SETTLED: Final = Event[JobSnapshot, None]("jobs/settled")
"""A job ended that nobody was waiting for; dispatched in the scope of its session."""


class JobsConfig(BaseModel, extra="forbid", frozen=True):
    """Bounds of jobs."""

    running: int = Field(default=10, gt=0, description="how many jobs of one session may run at a time")
    end_timeout_s: float = Field(
        default=15, gt=0, description="how long the end of a session waits for its jobs"
    )


class Jobs:
    """All jobs of all sessions. An async context manager: leaving it ends them.

    A session sees its own jobs and no others. When it ends, its jobs are ended and joined, for a bounded time; one that
    cannot be ended is `lost`, and said to be.
    """

    def __init__(
        self,
        config: JobsConfig | None = None,
        *,
        on_changed: Callable[[ToolSession], None] = lambda _: None,
        on_settled: Callable[[ToolSession, JobSnapshot], None] = lambda _, __: None,
    ) -> None:
        self._config = config or JobsConfig()
        self._on_changed = on_changed
        self._on_settled = on_settled
        self._jobs: dict[ToolSession, dict[str, Job]] = {}
        self._starting: dict[ToolSession, int] = {}
        self._counters: dict[str, int] = {}
        self._releases: dict[ToolSession, Callable[[], None]] = {}
        self._group: TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._group = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group, self._group = self._group, None
        assert group is not None
        try:
            with anyio.CancelScope(shield=True):
                for session in list(self._jobs):
                    await self._end_session(session)
        finally:
            group.cancel_scope.cancel()
            await group.__aexit__(kind, error, trace)

    async def start(self, owner: ToolSession, kind: str, label: str, run: RunJob) -> Job:
        """Start a job. If it does not start, nothing is left of it, not even its number.

        Raises:
            JobLimit: as many jobs of the session run already; none is queued.
            Exception: what *run* raised before it had started.
        """
        if not kind.strip() or not label.strip():
            raise ValueError("a job has a kind and a label")
        owner.check_open()
        self._admit(owner)
        group = self._running_group()
        if owner not in self._releases:
            self._releases[owner] = owner.own("jobs", lambda: self._end_session(owner))
        self._starting[owner] = self._starting.get(owner, 0) + 1
        try:
            job: Job = await group.start(self._drive, owner, kind, label, run)
        finally:
            self._starting[owner] -= 1
        return job

    def get(self, session: ToolSession, job_id: str) -> Job:
        """A job of this session.

        Raises:
            NoJob, ForeignSession
        """
        job = self._jobs.get(session, {}).get(job_id)
        if job is not None:
            return job
        if any(job_id in jobs for jobs in self._jobs.values()):
            raise ForeignSession(f"job {job_id} belongs to another session", op="tools.jobs")
        raise NoJob(f"there is no job {job_id!r}", op="tools.jobs", hint="`job_list` lists the jobs")

    def of(self, session: ToolSession) -> tuple[Job, ...]:
        """The jobs of a session, in the order in which they started."""
        return tuple(self._jobs.get(session, {}).values())

    async def kill(self, session: ToolSession, job_id: str) -> bool:
        """Ask a job to end; False when it has ended already, which counts as its report.

        It is asked first: if that fails, nothing has changed.
        """
        job = self.get(session, job_id)
        if job.status.terminal:
            job.reported = True
            return False
        if job.status is JobStatus.RUNNING:
            await job.source.cancel()
            if job.status is JobStatus.RUNNING:
                job.outcome = JobOutcome(JobStatus.STOPPING)
                self._on_changed(session)
        return True

    def _admit(self, owner: ToolSession) -> None:
        running = sum(not job.status.terminal for job in self.of(owner)) + self._starting.get(owner, 0)
        if running >= self._config.running:
            raise JobLimit(
                f"{running} jobs of this session run already, which is the limit",
                op="tools.jobs",
                hint="wait for one by `job_output`, or end one by `job_kill`",
            )

    def _running_group(self) -> TaskGroup:
        if self._group is None:
            raise RuntimeError("the service of jobs is not open")
        return self._group

    async def _drive(
        self, owner: ToolSession, kind: str, label: str, run: RunJob, *, task_status: TaskStatus[Job]
    ) -> None:
        registered: list[Job] = []

        def register(source: JobSource) -> None:
            job = self._register(owner, kind, label, source)
            registered.append(job)
            task_status.started(job)

        try:
            outcome = await run(_Started(register))
        except Exception as error:
            if not registered:
                raise
            outcome = JobOutcome(JobStatus.FAILED, str(error))
        if registered:
            self._settle(registered[0], outcome)

    def _register(self, owner: ToolSession, kind: str, label: str, source: JobSource) -> Job:
        self._counters[kind] = number = self._counters.get(kind, 0) + 1
        job = Job(f"{kind}-{number}", kind, label, owner, source)
        self._jobs.setdefault(owner, {})[job.id] = job
        self._on_changed(owner)
        return job

    def _settle(self, job: Job, outcome: JobOutcome) -> None:
        """The first outcome counts: recorded, then those who wait, then those who listen."""
        if job.status.terminal:
            return
        job.outcome = outcome
        waited_for = job.settled.statistics().tasks_waiting > 0
        job.reported = job.reported or waited_for
        job.settled.set()
        self._on_changed(job.owner)
        if not job.reported:
            self._on_settled(job.owner, job.snapshot())

    async def _end_session(self, session: ToolSession) -> None:
        release = self._releases.pop(session, None)
        if release is not None:
            release()
        jobs = self._jobs.get(session, {})
        for job in jobs.values():
            job.reported = True
        with anyio.move_on_after(self._config.end_timeout_s):
            async with anyio.create_task_group() as group:
                for job in jobs.values():
                    if not job.status.terminal:
                        group.start_soon(self._end, job)
        lost = tuple(job for job in jobs.values() if not job.status.terminal)
        for job in lost:
            self._settle(job, JobOutcome(JobStatus.LOST, "it did not end when the session did"))
        self._jobs.pop(session, None)
        self._starting.pop(session, None)
        self._on_changed(session)
        if lost:
            names = tuple(f"{job.id} ({job.label})" for job in lost)
            raise CleanupIncomplete(f"jobs did not end: {', '.join(names)}", leftovers=names, op="tools.jobs")

    async def _end(self, job: Job) -> None:
        try:
            await job.source.cancel()
        except (ExecworldError, OSError) as error:
            self._settle(job, JobOutcome(JobStatus.FAILED, f"it could not be ended: {error}"))
        await job.settled.wait()


class _Started(TaskStatus[JobSource]):
    """What a job tells that it runs."""

    def __init__(self, register: Callable[[JobSource], None]) -> None:
        self._register = register

    def started(self, value: JobSource | None = None) -> None:
        assert value is not None
        self._register(value)


JOBS: Final = Key[Jobs]("jobs")


@plugin(provides=(JOBS,))
async def jobs(ctx: Context, config: JobsConfig) -> AsyncGenerator[None]:
    """Let agents have jobs in the background."""

    def settled(session: ToolSession, job: JobSnapshot) -> None:
        ctx.scoped(session.scope).emit(JOB_SETTLED, job)

    def changed(session: ToolSession) -> None:
        ctx.scoped(session.scope).emit(JOBS_CHANGED, session)

    ctx.provide(JOBS, await ctx.enter(Jobs(config, on_changed=changed, on_settled=settled), name="jobs"))
    yield
