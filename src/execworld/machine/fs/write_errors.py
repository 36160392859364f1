"""What a failed step of a write means to its caller."""

from __future__ import annotations

import errno

from execworld.machine.batch import (
    Batch,
    BatchFailed,
)
from execworld.machine.fs.access import Call
from execworld.machine.fs.errors import MOVED_HINT, kind_words
from execworld.machine.fs.write_plan import Role, WritePlan
from execworld.machine.operations import (
    Stat,
)
from execworld.machine.values import (
    CheckStatus,
    FileStat,
    KindMask,
)
from execworld.seams.errors import FileError, NotObserved, NotRegularFile, StaleVersion
from execworld.seams.files import FileVersion


async def write_error(call: Call, plan: WritePlan, failure: BatchFailed) -> FileError:
    status, expected = failure.error.status, plan.demand.expected
    role = plan.roles.get(failure.step, Role.OTHER)
    before = None
    if plan.before is not None and plan.before.index < len(failure.results.values):
        before = failure.results.get(plan.before)
    if role is Role.PARENT and status == errno.ENOENT and isinstance(expected, FileVersion):
        return call.refusal(StaleVersion, "it does not exist any more", hint=MOVED_HINT)
    if role is Role.PARENT and status == errno.ENOENT and not plan.demand.parents:
        hint = "make the directory first, or ask for parents to be made"
        return call.error(status, text="its directory does not exist", hint=hint)
    if role is Role.PARENT and status == errno.ELOOP:
        return call.error(errno.ENOTDIR)
    if role is Role.TARGET and status == CheckStatus.KIND:
        if before is None:
            return call.refusal(StaleVersion, "it does not exist any more", hint=MOVED_HINT)
        if expected == "absent":
            return await _in_the_way(call, before)
        return call.failure(failure)
    if role is Role.STAGING and status in (errno.ENOENT, errno.EINVAL):
        text = "no file can be made in its directory, so it cannot be replaced as a whole"
        return call.error(status, kind=FileError, text=text, hint="write to it with a command")
    if role is Role.DISPLACED and status in (CheckStatus.KIND, errno.ENOENT):
        return call.error(CheckStatus.VERSION)
    if role is Role.PUBLICATION:
        if isinstance(expected, FileVersion) and status == errno.ENOENT:
            return call.refusal(StaleVersion, "it was removed meanwhile", hint=MOVED_HINT)
        if expected == "absent" and status == errno.EEXIST:
            return await _in_the_way(call, None)
        if status in (errno.EISDIR, errno.ENOTEMPTY, errno.EEXIST):
            return call.error(errno.EISDIR)
    return call.failure(failure)


async def _in_the_way(call: Call, found: FileStat | None) -> FileError:
    """What to say of something that was demanded to be absent."""
    batch = Batch()
    own = batch.add(Stat(call.display, follow=False), tolerate=(errno.ENOENT, errno.ENOTDIR, errno.EACCES))
    target = batch.add(Stat(call.display), tolerate=(errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP))
    results = await call.run_plain(batch)
    itself, behind = results.get(own) or found, results.get(target)
    if itself is None or (behind is not None and behind.kind is KindMask.FILE):
        return call.refusal(NotObserved, "it exists", hint="read it, then write with its version")
    text = f"it exists and is {kind_words(itself.kind)}"
    if itself.kind is KindMask.SYMLINK and behind is None:
        text += " that leads nowhere"
    return call.refusal(NotRegularFile, text)
