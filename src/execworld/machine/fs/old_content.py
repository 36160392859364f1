"""What a file held before a write, read from the file that the write displaces."""

from __future__ import annotations

import errno
from typing import Final

from execworld.machine.batch import (
    Batch,
    BatchFailed,
    Results,
)
from execworld.machine.fs.access import Call
from execworld.machine.fs.information import file_version
from execworld.machine.fs.write_plan import WritePlan
from execworld.machine.operations import (
    Open,
    Read,
    Stat,
    StatHandle,
)
from execworld.machine.values import (
    MAX_TRANSFER_BYTES,
    Handle,
    OpenFlag,
    RawPath,
)

_NO_OLD_TEXT: Final = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.EBADF,
    errno.EIO,
    errno.EISDIR,
)


def add_old(plan: WritePlan, parent: Handle, name: RawPath, limit: int) -> None:
    """Read the old content from the file that will be displaced. It stays open when there is more of it."""
    add = plan.batch.add
    opened = add(Open(name, OpenFlag.READ | OpenFlag.NO_FOLLOW, base=parent), tolerate=_NO_OLD_TEXT)
    stat = add(StatHandle(opened.handle), tolerate=_NO_OLD_TEXT)
    size = min(limit, MAX_TRANSFER_BYTES)
    content = add(Read(opened.handle, size, close_at_end=True), tolerate=(*_NO_OLD_TEXT, errno.EAGAIN))
    after = add(Stat(name, follow=False, base=parent), tolerate=_NO_OLD_TEXT)
    plan.old = (opened, stat, content, after)


async def read_old(call: Call, plan: WritePlan, results: Results, limit: int) -> bytes | None:
    """The old content, None when there was none, it reached the limit, or it changed while it was read."""
    if plan.old is None or plan.before is None:
        return None
    opened, stat, content, after = plan.old
    handle, data = results.get(opened), results.get(content)
    size = min(limit, MAX_TRANSFER_BYTES)
    if handle is not None and (data is None or len(data) == size):
        # Not closed by the read, since that did not meet the end.
        data = await _rest(call, handle, data, limit)
    seen = results.get(plan.before), results.get(stat), results.get(after)
    if data is None or None in seen or len({file_version(found) for found in seen if found}) != 1:
        return None
    return data


async def _rest(call: Call, handle: int, data: bytes | None, limit: int) -> bytes | None:
    """Read on from the displaced file, which has no name any more but keeps its content."""
    try:
        if data is None:
            return None
        parts = [data]
        left = limit - len(data)
        while left:
            batch = Batch()
            size = min(left, MAX_TRANSFER_BYTES)
            content = batch.add(Read(handle, size))
            data = (await call.run(batch))[content]
            parts.append(data)
            left -= len(data)
            if len(data) < size:
                return b"".join(parts)
    except BatchFailed:
        return None  # the write has succeeded; only its description is missing
    finally:
        await call.access.release(handle)
    return None
