"""One job: what runs, what is known of it, and what was read of its output."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Final, TypeAlias

import anyio
from anyio.abc import TaskStatus

from execworld.seams import OutputSlice
from execworld.seams.values import value_class
from execworld.tools.session import ToolSession


class JobStatus(StrEnum):
    """`lost`: it was to end and did not within the time for that; nothing more is known of it."""

    RUNNING = "running"
    STOPPING = "stopping"
    COMPLETED = "completed"
    KILLED = "killed"
    FAILED = "failed"
    LOST = "lost"

    @property
    def terminal(self) -> bool:
        return self not in (JobStatus.RUNNING, JobStatus.STOPPING)


@value_class
class JobOutcome:
    """How it ended.

    Attributes:
        detail: For people: the exit code, the signal, the error.
        notice: A sentence to show behind the output; empty for none.
    """

    status: JobStatus
    detail: str = ""
    notice: str = ""


OutputOf: TypeAlias = Callable[[int], OutputSlice]
"""What is kept of the output from an offset on; waits for nothing, and works after the end."""


@value_class
class JobSource:
    """What a job is once it has started.

    Attributes:
        read: Its output.
        cancel: Ask it to end; returns when it was asked.
        spill_path: Path in the world of all its output, where there is such a file and the output is not kept whole.
    """

    read: OutputOf
    cancel: Callable[[], Awaitable[object]]
    spill_path: Callable[[], str | None] = lambda: None


RunJob: TypeAlias = Callable[["TaskStatus[JobSource]"], Awaitable[JobOutcome]]
"""Starts the work, tells by ``task_status.started(source)`` that it runs, waits for its end and says what that was."""


@value_class
class JobSnapshot:
    """What everybody may know of a job."""

    id: str
    kind: str
    label: str
    status: JobStatus
    detail: str = ""


class Job:
    """A job of one session. Its output is read by offset; the place where the session goes on is kept here."""

    def __init__(self, id_: str, kind: str, label: str, owner: ToolSession, source: JobSource) -> None:
        self.id: Final = id_
        self.kind: Final = kind
        self.label: Final = label
        self.owner: Final = owner
        self.source: Final = source
        self.outcome = JobOutcome(JobStatus.RUNNING)
        self.reported = False
        self.offset = 0
        self.settled = anyio.Event()

    @property
    def status(self) -> JobStatus:
        return self.outcome.status

    def snapshot(self) -> JobSnapshot:
        return JobSnapshot(self.id, self.kind, self.label, self.outcome.status, self.outcome.detail)

    def read_on(self) -> OutputSlice:
        """What came since the last time. A read of a job that has ended counts as its report."""
        part = self.source.read(self.offset)
        if not part.ended:
            # The rest of a character that has not arrived whole comes next time, with its beginning.
            cut = _cut_character(part.data)
            whole = part.data[: len(part.data) - cut]
            part = OutputSlice(whole, part.offset, part.next_offset - cut, part.lost_bytes, ended=False)
        self.offset = part.next_offset
        if self.status.terminal:
            self.reported = True
        return part

    async def wait(self, timeout_s: float) -> JobSnapshot:
        """Wait for the end, at most so long. The limit is no error and changes nothing."""
        with anyio.move_on_after(timeout_s):
            await self.settled.wait()
            self.reported = True
        return self.snapshot()


def _cut_character(data: bytes) -> int:
    """How many bytes at the end are the beginning of a character whose end is missing."""
    for length in range(1, min(3, len(data)) + 1):
        lead = data[-length]
        if lead >= 0xC0:
            needed = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
            return length if length < needed else 0
        if lead < 0x80:
            break
    return 0
