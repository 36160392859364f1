"""Random histories of random graphs: all is where a plain model says, nothing is undone twice, nothing is left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import anyio
import anyio.lowlevel
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from pydantic import BaseModel

from execworld.kernel import Context, ErrorReport, Fiber, FiberState, Key, Plugin, open_kernel, plugin
from execworld.kernel.effects import Disposer
from execworld.seams import DisposalFailed, ReplacementRefused, ServiceConflict

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

FULL = bool(os.environ.get("EXECWORLD_FULL"))
SERVICES = [Key[int](f"service_{index}") for index in range(5)]
ResultT = TypeVar("ResultT")


class Behaviour(BaseModel, extra="forbid"):
    fails: bool = False
    bad_undo: bool = False
    waits: int = 0


class Broken(Exception):
    pass


@dataclass
class Row:
    """A plugin of the model: it provides the service of its number, and needs others with lower numbers."""

    number: int
    needs: frozenset[int]
    behaviour: Behaviour
    fiber: Fiber


class Ledger:
    """Counts what is open, and refuses to close anything twice."""

    def __init__(self) -> None:
        self.open: Counter[str] = Counter()

    def begin(self, owner: Fiber) -> Callable[[], None]:
        self.open[str(id(owner))] += 1
        ended = False

        def end() -> None:
            nonlocal ended
            assert not ended, "undone twice"
            ended = True
            self.open[str(id(owner))] -= 1

        return end


class Graphs(RuleBasedStateMachine):
    backend: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.portal: BlockingPortal = self.stack.enter_context(start_blocking_portal(self.backend))
        self.ledger = Ledger()
        self.rows: list[Row] = []
        self.root = self.stack.enter_context(self.portal.wrap_async_context_manager(kernel()))

    def call(self, function: Callable[[], Awaitable[ResultT]]) -> ResultT:
        return self.portal.call(function)

    def make(self, number: int, needs: frozenset[int]) -> Plugin:
        ledger = self.ledger

        @asynccontextmanager
        async def held(owner: Fiber) -> AsyncGenerator[None]:
            end = ledger.begin(owner)
            try:
                async with anyio.create_task_group():
                    yield
            finally:
                end()

        async def work(owner: Fiber) -> None:
            end = ledger.begin(owner)
            try:
                await anyio.sleep_forever()
            finally:
                end()

        def child(ctx: Context) -> None:
            ctx.effect(lambda: ledger.begin(ctx.fiber))

        @plugin(
            name=f"plugin_{number}",
            inject=[SERVICES[need] for need in sorted(needs)],
            provides=[SERVICES[number]],
        )
        async def start(ctx: Context, config: Behaviour) -> AsyncGenerator[None]:
            values = {need: ctx.get(SERVICES[need]) for need in needs}

            async def set_up() -> Disposer:
                end = ledger.begin(ctx.fiber)

                async def undo() -> None:
                    await anyio.lowlevel.checkpoint()
                    assert values == {need: ctx.get(SERVICES[need]) for need in needs}
                    end()
                    if config.bad_undo:
                        raise Broken

                return undo

            ctx.effect(lambda: ledger.begin(ctx.fiber))
            await ctx.effect_async(set_up)
            ctx.start_soon(work, ctx.fiber)
            await ctx.enter(held(ctx.fiber))
            ctx.plugin(child)
            for _ in range(config.waits):
                await anyio.lowlevel.checkpoint()
            ctx.provide(SERVICES[number], number)
            if config.fails:
                raise Broken
            async with held(ctx.fiber):
                yield

        return start

    # --- what happens ---

    numbers = st.integers(0, len(SERVICES) - 1)
    behaviours = st.builds(
        Behaviour,
        fails=st.sampled_from([False, False, True]),
        bad_undo=st.booleans(),
        waits=st.integers(0, 3),
    )

    @rule(number=numbers, needs=st.frozensets(numbers), behaviour=behaviours, patient=st.booleans())
    def apply(self, number: int, needs: frozenset[int], behaviour: Behaviour, patient: bool) -> None:
        needs = frozenset(need for need in needs if need < number)

        async def act() -> None:
            try:
                fiber = self.root.plugin(self.make(number, needs), behaviour)
            except ServiceConflict:
                assert any(row.number == number for row in self.rows)
                return
            self.rows.append(Row(number, needs, behaviour, fiber))
            if patient:
                await settle(self.root)

        self.call(act)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), patient=st.booleans())
    def dispose(self, data: st.DataObject, patient: bool) -> None:
        row = data.draw(st.sampled_from(self.rows))
        self.rows.remove(row)

        async def act() -> None:
            row.fiber.request_disposal()
            if patient:
                await dispose(row.fiber)

        self.call(act)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), behaviour=behaviours, patient=st.booleans())
    def restart(self, data: st.DataObject, behaviour: Behaviour, patient: bool) -> None:
        row = data.draw(st.sampled_from(self.rows))
        if sum(other.number == row.number for other in self.rows) > 1:
            return  # of two that may provide the same the model does not know which one is first
        row.behaviour = behaviour

        async def act() -> None:
            row.fiber.restart_with(behaviour)
            if patient:
                await settle(self.root)

        self.call(act)

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), needs=st.frozensets(numbers), behaviour=behaviours)
    def replace(self, data: st.DataObject, needs: frozenset[int], behaviour: Behaviour) -> None:
        row = data.draw(st.sampled_from(self.rows))
        if sum(other.number == row.number for other in self.rows) > 1:
            return
        needs = frozenset(need for need in needs if need < row.number)

        async def act() -> None:
            try:
                fiber = await row.fiber.replace(self.make(row.number, needs), behaviour)
            except (Broken, ReplacementRefused):
                return
            assert not behaviour.fails
            row.fiber, row.needs, row.behaviour = fiber, needs, behaviour

        self.call(act)

    # --- what holds ---

    @invariant()
    def all_is_as_the_model_says(self) -> None:
        self.call(self.check)

    async def check(self) -> None:
        await settle(self.root)
        states = {id(row): row.fiber.state for row in self.rows}
        providing = {
            row.number
            for row in self.rows
            if states[id(row)] is FiberState.ACTIVE and not row.behaviour.fails
        }
        for row in self.rows:
            expected = FiberState.ACTIVE if row.needs <= providing else FiberState.PENDING
            state = states[id(row)]
            if row.behaviour.fails:
                assert state in (FiberState.FAILED, FiberState.PENDING)
            elif state is FiberState.FAILED:
                assert isinstance(row.fiber.error, ServiceConflict)
            else:
                assert state is expected
            # two effects, a task, two managers; the child has its own
            assert self.ledger.open[str(id(row.fiber))] == (5 if state is FiberState.ACTIVE else 0)
        assert self.ledger.open.total() == 6 * sum(state is FiberState.ACTIVE for state in states.values())
        graph = self.root.describe()
        assert len(graph.children) == len(self.rows)
        assert self.root.fiber.runtime.busy == {}

    def teardown(self) -> None:
        self.stack.close()
        assert self.ledger.open.total() == 0


@asynccontextmanager
async def kernel() -> AsyncGenerator[Context]:
    reports: list[ErrorReport] = []
    with expected_errors():
        async with open_kernel(on_error=reports.append) as root:
            yield root
    assert all(is_expected(report.error) for report in reports)


async def settle(root: Context) -> None:
    runtime = root.fiber.runtime
    while runtime.busy:
        await runtime.changed.wait()


async def dispose(fiber: Fiber) -> None:
    with expected_errors():
        await fiber.dispose()


@contextmanager
def expected_errors() -> Generator[None]:
    try:
        yield
    except DisposalFailed as error:
        if not is_expected(error):
            raise


def is_expected(error: Exception) -> bool:
    if isinstance(error, DisposalFailed):
        return all(is_expected(each) for each in error.errors)
    return isinstance(error, (Broken, ServiceConflict))


class OnAsyncio(Graphs):
    backend = "asyncio"


class OnTrio(Graphs):
    backend = "trio"


# The same histories every time, so that a failure is a failure; other ones with the long tests.
_SETTINGS = settings(
    max_examples=400 if FULL else 10,
    stateful_step_count=40 if FULL else 20,
    deadline=None,
    derandomize=not FULL,
    database=None,
)

TestOnAsyncio = OnAsyncio.TestCase
TestOnAsyncio.settings = _SETTINGS
TestOnTrio = OnTrio.TestCase
TestOnTrio.settings = _SETTINGS
