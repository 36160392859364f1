"""A machine that hands everything on to another one; base of machines that differ from it in one thing."""

from __future__ import annotations

from execworld.machine.base import (
    ExitStatus,
    ForegroundState,
    Machine,
    MachineFacts,
    SignalTarget,
    WatchRecord,
)
from execworld.machine.batch import Batch, Results
from execworld.machine.cell import CellPlan, CellReport
from execworld.seams.results import TreeReport


class ForwardingMachine(Machine):
    """The machine *inner*, unchanged."""

    def __init__(self, inner: Machine) -> None:
        self.inner = inner

    @property
    def facts(self) -> MachineFacts:
        return self.inner.facts

    @property
    def lost(self) -> bool:
        return self.inner.lost

    async def run(self, batch: Batch) -> Results:
        return await self.inner.run(batch)

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        return await self.inner.receive(handle, stream, max_bytes)

    async def send(self, handle: int, data: bytes) -> None:
        await self.inner.send(handle, data)

    async def close_input(self, handle: int) -> None:
        await self.inner.close_input(handle)

    async def signal(self, handle: int, number: int, target: SignalTarget) -> int:
        return await self.inner.signal(handle, number, target)

    async def wait(self, handle: int) -> ExitStatus:
        return await self.inner.wait(handle)

    async def wait_tree(self, handle: int) -> None:
        await self.inner.wait_tree(handle)

    async def kill_tree(self, handle: int) -> TreeReport:
        return await self.inner.kill_tree(handle)

    async def resize(self, handle: int, rows: int, columns: int) -> None:
        await self.inner.resize(handle, rows, columns)

    async def foreground(self, handle: int) -> ForegroundState | None:
        return await self.inner.foreground(handle)

    async def read_watch(self, handle: int) -> tuple[WatchRecord, ...]:
        return await self.inner.read_watch(handle)

    async def make_cell(self, plan: CellPlan) -> CellReport:
        return await self.inner.make_cell(plan)

    async def drop_cell(self, handle: int) -> TreeReport:
        return await self.inner.drop_cell(handle)

    async def release(self, handle: int) -> None:
        await self.inner.release(handle)

    async def ping(self) -> None:
        await self.inner.ping()

    async def aclose(self) -> TreeReport:
        return await self.inner.aclose()
