"""Opening a kernel, and the many ways in which it ends: nothing outlives it, and dependents go before providers."""

import logging
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from execworld.kernel import Context, ErrorReport, Fiber, Key, Plugin, open_kernel, plugin
from execworld.kernel.effects import Disposer

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

CLOCK = Key[str]("clock")


class Broken(Exception):
    pass


def pair(trace: list[str]) -> tuple[Plugin, Plugin]:
    """A provider and a dependent, whose ends take a while."""

    async def undo(name: str) -> None:
        await anyio.lowlevel.checkpoint()
        trace.append(name)

    @plugin(provides=(CLOCK,))
    async def provider(ctx: Context) -> None:
        async def set_up() -> Disposer:
            return partial(undo, "provider")

        await ctx.effect_async(set_up)
        ctx.provide(CLOCK, "tick")

    @plugin(inject=(CLOCK,))
    async def dependent(ctx: Context) -> None:
        async def set_up() -> Disposer:
            return partial(undo, "dependent")

        await ctx.effect_async(set_up)

    return provider, dependent


async def test_leaving_ends_dependents_before_their_providers_whatever_the_order_of_rows() -> None:
    for reverse in (False, True):
        trace: list[str] = []
        async with open_kernel() as root:
            for each in sorted(pair(trace), key=lambda each: each.name, reverse=reverse):
                root.plugin(each)
            await root.settle()
        assert trace == ["dependent", "provider"]


async def test_an_error_of_the_body_passes_unchanged_and_ends_all() -> None:
    trace: list[str] = []
    error = Broken()

    async def run() -> None:
        async with open_kernel() as root:
            for each in pair(trace):
                root.plugin(each)
            await root.settle()
            raise error

    with pytest.raises(Broken) as caught:
        await run()
    assert caught.value is error
    assert trace == ["dependent", "provider"]


async def test_cancellation_from_outside_undoes_all_in_order_and_to_the_end() -> None:
    trace: list[str] = []
    with anyio.CancelScope() as scope:
        async with open_kernel() as root:
            for each in pair(trace):
                root.plugin(each)
            await root.settle()
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert trace == ["dependent", "provider"]


async def test_cancellation_from_outside_ends_a_start_that_hangs() -> None:
    trace: list[str] = []

    async def hang(ctx: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            trace.append("cancelled")

    with anyio.CancelScope() as scope:
        async with open_kernel() as root:
            fiber = root.plugin(hang)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
            await fiber
    assert trace == ["cancelled"]


async def test_what_is_no_mere_error_ends_the_kernel_in_order() -> None:
    trace: list[str] = []

    async def interrupted(ctx: Context) -> None:
        await anyio.lowlevel.checkpoint()
        raise SystemExit(3)

    fibers: list[Fiber] = []

    async def run() -> None:
        async with open_kernel() as root:
            for each in pair(trace):
                root.plugin(each)
            await root.settle()
            fibers.append(root.plugin(interrupted))
            await anyio.sleep_forever()

    with pytest.raises(SystemExit):
        await run()
    assert fibers[0].state == "DISPOSED"
    assert trace == ["dependent", "provider"]


async def test_errors_that_nobody_waits_for_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(ctx: Context) -> None:
        raise Broken("why")

    with caplog.at_level(logging.ERROR, "execworld.kernel"):
        async with open_kernel() as root:
            root.plugin(broken)
            await anyio.wait_all_tasks_blocked()
    assert [record.getMessage() for record in caplog.records] == ["plugin `broken`, starting: why"]


async def test_kernels_in_one_another_do_not_mix() -> None:
    async with open_kernel() as outer, open_kernel() as inner:
        outer.provide(CLOCK, "tick")
        assert inner.find(CLOCK) is None


async def test_a_kernel_that_is_opened_in_a_cancelled_scope_ends() -> None:
    trace: list[str] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with open_kernel() as root:
            for each in pair(trace):
                root.plugin(each)
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert trace in ([], ["provider"], ["dependent", "provider"])  # the event loop may have let them start


async def test_an_error_in_reporting_an_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def broken(ctx: Context) -> None:
        raise Broken("why")

    def fail(report: ErrorReport) -> None:
        raise Broken("further")

    with caplog.at_level(logging.ERROR, "execworld.kernel"):
        async with open_kernel(on_error=fail) as root:
            root.plugin(broken)
            await anyio.wait_all_tasks_blocked()
    assert [record.getMessage() for record in caplog.records] == [
        "plugin `broken`, starting: why",
        "plugin `broken`, reporting an error: further",
    ]
