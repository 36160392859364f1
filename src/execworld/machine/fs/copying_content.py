"""Copy the content of one open file to another."""

from __future__ import annotations

from typing import Final

from execworld.machine.batch import Batch, BatchFailed, Step
from execworld.machine.fs.access import Call
from execworld.machine.operations import (
    Check,
    CopyRange,
    Open,
    Stat,
    StatHandle,
)
from execworld.machine.values import (
    FileStat,
    Handle,
    KindMask,
    OpenFlag,
)

COPY_BYTES: Final = 16 * 1024 * 1024
_COPIES_A_BATCH: Final = 8


def add_open_source(batch: Batch, path: bytes, base: Handle | None) -> tuple[Step[int], Step[FileStat]]:
    before = batch.add(Stat(path, follow=False, base=base))
    batch.add(Check(before.index, KindMask.FILE))
    opened = batch.add(Open(path, OpenFlag.READ | OpenFlag.NO_FOLLOW, base=base))
    stat = batch.add(StatHandle(opened.handle))
    batch.add(Check(stat.index, KindMask.FILE))
    return opened, stat


async def copy_content(call: Call, source: int, copy: int, target: bytes) -> None:
    while True:
        batch = Batch()
        steps = [batch.add(CopyRange(source, copy, COPY_BYTES)) for _ in range(_COPIES_A_BATCH)]
        try:
            results = await call.run(batch)
        except BatchFailed as failure:
            raise call.error(failure.error.status, path=target) from failure
        if results[steps[-1]] == 0:
            return
