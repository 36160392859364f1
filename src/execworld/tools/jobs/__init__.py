"""Work that goes on beside the calls of an agent, and belongs to its session."""

from execworld.tools.jobs.job import Job, JobOutcome, JobSnapshot, JobSource, JobStatus, OutputOf
from execworld.tools.jobs.service import JOB_SETTLED, JOBS, JOBS_CHANGED, Jobs, JobsConfig, jobs

__all__ = [
    "JOBS",
    "JOBS_CHANGED",
    "JOB_SETTLED",
    "Job",
    "JobOutcome",
    "JobSnapshot",
    "JobSource",
    "JobStatus",
    "Jobs",
    "JobsConfig",
    "OutputOf",
    "jobs",
]
