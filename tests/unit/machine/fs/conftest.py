"""A file system on this host into whose single steps a test can reach."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from pathlib import Path, PosixPath
from typing import Any

import pytest

from execworld.machine.base import WatchRecord
from execworld.machine.batch import Batch, Results
from execworld.machine.fs import MachineFileSystem
from execworld.machine.local.batch import BatchRun
from execworld.machine.local.file_operations import FILE_EXECUTORS
from execworld.machine.local.files import LocalFiles
from execworld.machine.local.machine import LocalMachine
from execworld.machine.operations import Operation
from execworld.testing.forwarding import ForwardingMachine

Executor = Callable[[BatchRun, Any], object]


class StagedMachine(ForwardingMachine):
    """The real operations on this host. ``before`` is called in the worker thread before each single step,
    undo included, and may act as another process would, or fail the step.
    """

    def __init__(self, inner: LocalMachine) -> None:
        super().__init__(inner)
        self.before: Callable[[Operation[Any]], None] | None = None
        self.batches = 0
        staged: Mapping[type[Operation[Any]], Executor] = {
            kind: partial(self._execute, executor) for kind, executor in FILE_EXECUTORS.items()
        }
        self.files = LocalFiles(executors=staged)

    def _execute(self, executor: Executor, run: BatchRun, operation: Operation[Any]) -> object:
        if self.before is not None:
            self.before(operation)
        return executor(run, operation)

    async def run(self, batch: Batch) -> Results:
        self.batches += 1
        return await self.files.run(batch)

    async def read_watch(self, handle: int) -> tuple[WatchRecord, ...]:
        return await self.files.read_watch(handle)

    async def release(self, handle: int) -> None:
        self.files.release(handle)


@pytest.fixture
def tmp_path(tmp_path: Path) -> PosixPath:
    """A path that is one of the world as well, since the world is this host."""
    return PosixPath(tmp_path)


@pytest.fixture
async def staged(machine: LocalMachine) -> AsyncGenerator[StagedMachine]:
    staged = StagedMachine(machine)
    yield staged
    staged.files.close()


@pytest.fixture
def fs(staged: StagedMachine, tmp_path: PosixPath) -> MachineFileSystem:
    return MachineFileSystem(staged, world_id="w", view_id="v", cwd=str(tmp_path), check=lambda op: None)
