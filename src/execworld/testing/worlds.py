"""Local worlds with something in between: another machine below the semantics, another world above them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import anyio

from execworld.machine.base import ExitStatus, ForegroundState, Machine, SignalTarget, WatchRecord
from execworld.machine.batch import Batch, Results
from execworld.machine.cell import CellPlan, CellReport
from execworld.machine.local.machine import LocalMachine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState
from execworld.seams.errors import OutcomeUnknown, WorldLost
from execworld.seams.identity import Boundary, WorldIdentity
from execworld.seams.provider import OpenRequest, Probe, Provider
from execworld.seams.results import KillMethod, TreeReport
from execworld.seams.testing import BreakableWorld
from execworld.seams.world import World
from execworld.testing.forwarding import ForwardingMachine
from execworld.world import ResolvedWorld

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class _NoOptions:
    pass


def open_local(
    cwd: str, *, wrap: Callable[[Machine], Machine] | None = None, kind: str = "local"
) -> AbstractAsyncContextManager[World]:
    """A local world whose machine is what *wrap* makes of a `LocalMachine`, opened as any provider's world is."""

    @asynccontextmanager
    async def open_it(request: OpenRequest[_NoOptions]) -> AsyncGenerator[World]:
        machine: Machine = LocalMachine()
        identity = WorldIdentity(kind, machine.facts.host_instance)
        kill_tree = DimensionEnforcement(
            asked=False,
            required=False,
            state=EnforcementState.PARTIAL,
            by="sweep",
            why_not="user space alone",
        )
        settings = WorldSettings(
            identity=identity,
            policy=request.policy,
            enforcement=Enforcement({Dimension.KILL_TREE: kill_tree}),
            boundary=Boundary.NONE,
            cwd=request.cwd,
        )
        async with open_machine_world(machine if wrap is None else wrap(machine), settings) as world:
            yield world

    async def probe() -> Probe:
        return Probe(available=True)

    provider = Provider(name=kind, summary="", config_type=_NoOptions, open=open_it, probe=probe)
    return ResolvedWorld(provider, _NoOptions()).open(cwd=cwd)


class CuttableMachine(ForwardingMachine):
    """A machine behind a link that can be cut: what was under way has an unknown outcome, what comes later is lost."""

    def __init__(self, inner: Machine, world_id: str = "") -> None:
        super().__init__(inner)
        self._world_id = world_id
        self._cut = anyio.Event()

    async def cut(self) -> None:
        self._cut.set()

    @property
    def lost(self) -> bool:
        return self._cut.is_set()

    async def run(self, batch: Batch) -> Results:
        return await self._over_link(lambda: self.inner.run(batch))

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        return await self._over_link(lambda: self.inner.receive(handle, stream, max_bytes))

    async def send(self, handle: int, data: bytes) -> None:
        await self._over_link(lambda: self.inner.send(handle, data))

    async def close_input(self, handle: int) -> None:
        await self._over_link(lambda: self.inner.close_input(handle))

    async def signal(self, handle: int, number: int, target: SignalTarget) -> int:
        return await self._over_link(lambda: self.inner.signal(handle, number, target))

    async def wait(self, handle: int) -> ExitStatus:
        return await self._over_link(lambda: self.inner.wait(handle))

    async def wait_tree(self, handle: int) -> None:
        await self._over_link(lambda: self.inner.wait_tree(handle))

    async def kill_tree(self, handle: int) -> TreeReport:
        return await self._over_link(lambda: self.inner.kill_tree(handle))

    async def resize(self, handle: int, rows: int, columns: int) -> None:
        await self._over_link(lambda: self.inner.resize(handle, rows, columns))

    async def foreground(self, handle: int) -> ForegroundState | None:
        return await self._over_link(lambda: self.inner.foreground(handle))

    async def read_watch(self, handle: int) -> tuple[WatchRecord, ...]:
        return await self._over_link(lambda: self.inner.read_watch(handle))

    async def make_cell(self, plan: CellPlan) -> CellReport:
        return await self._over_link(lambda: self.inner.make_cell(plan))

    async def drop_cell(self, handle: int) -> TreeReport:
        return await self._over_link(lambda: self.inner.drop_cell(handle))

    async def release(self, handle: int) -> None:
        await self._over_link(lambda: self.inner.release(handle))

    async def ping(self) -> None:
        await self._over_link(self.inner.ping)

    async def aclose(self) -> TreeReport:
        report = await self.inner.aclose()
        if self._cut.is_set():  # the far side ends everything by itself; this side cannot see it
            return TreeReport(gone=False, method=KillMethod.NOT_NEEDED)
        return report

    async def _over_link(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        if self._cut.is_set():
            raise WorldLost("the link was cut", world=self._world_id)
        results: list[ResultT] = []
        errors: list[Exception] = []
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                await self._cut.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            try:
                results.append(await call())
            except Exception as error:  # noqa: BLE001 - raised again outside, where no group wraps it
                errors.append(error)
            tasks.cancel_scope.cancel()
        if errors:
            raise errors[0]
        if not results:
            raise OutcomeUnknown("the link was cut meanwhile", world=self._world_id)
        return results[0]


@asynccontextmanager
async def open_breakable_local(
    cwd: str, *, wrap: Callable[[Machine], Machine] | None = None
) -> AsyncGenerator[BreakableWorld]:
    """A local world behind a link that can be cut, and the way to cut it."""
    machines: list[CuttableMachine] = []

    def with_link(machine: Machine) -> Machine:
        identity = WorldIdentity("breakable", machine.facts.host_instance)
        machines.append(CuttableMachine(machine, identity.world_id))
        return machines[0] if wrap is None else wrap(machines[0])

    async with open_local(cwd, wrap=with_link, kind="breakable") as world:
        yield BreakableWorld(world, machines[0].cut)
