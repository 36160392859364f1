"""Directories that are missing on the way to a path."""

from __future__ import annotations

import errno

from execworld.machine.batch import Batch
from execworld.machine.fs.access import Call
from execworld.machine.fs.paths import parent_of
from execworld.machine.operations import Stat


async def missing_directories(call: Call, directory: bytes) -> list[bytes]:
    """*directory* and the directories above it that do not exist, from the top down."""
    chain = [directory]
    while chain[-1] != b"/":
        chain.append(parent_of(chain[-1]))
    batch = Batch()
    steps = [batch.add(Stat(path), tolerate=(errno.ENOENT, errno.ENOTDIR)) for path in chain]
    results = await call.run_plain(batch)
    missing: list[bytes] = []
    for path, step in zip(chain, steps, strict=True):
        if results.get(step) is not None:
            break
        missing.append(path)
    return missing[::-1]
