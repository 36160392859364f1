"""A look at the paths that decide about a plan: one round trip."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from typing import Protocol

from execworld.confinement.place import PathKind, PathKinds
from execworld.machine.batch import Batch, Results
from execworld.machine.operations import Stat
from execworld.machine.values import KindMask

_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP)


class BatchRunner(Protocol):
    async def run(self, batch: Batch) -> Results: ...


async def survey(machine: BatchRunner, paths: Iterable[bytes]) -> PathKinds:
    """What is at *paths*, links not followed. Only decides what is tried: the pins of the plan check it again."""
    wanted = tuple(paths)
    batch = Batch()
    steps = [batch.add(Stat(path, follow=False), tolerate=_ABSENT) for path in wanted]
    results = await machine.run(batch)
    kinds: dict[bytes, PathKind] = {}
    for path, step in zip(wanted, steps, strict=True):
        found = results.get(step)
        kinds[path] = PathKind.MISSING if found is None else _kind(found.kind)
    return kinds


def _kind(kind: KindMask) -> PathKind:
    if kind is KindMask.DIRECTORY:
        return PathKind.DIRECTORY
    return PathKind.LINK if kind is KindMask.SYMLINK else PathKind.OTHER
