"""Fibers: from PENDING to DISPOSED, and what whoever waits for one gets."""

from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from execworld.kernel import Context, ErrorReport, Fiber, Key, open_kernel, plugin
from execworld.kernel.effects import Disposer
from execworld.seams import ContextInactive, PluginDisposed, PluginEnded, PluginsFailed, WaitCycle

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

CLOCK = Key[str]("clock")


class Settings(BaseModel, extra="forbid"):
    text: str = "default"


class Broken(Exception):
    pass


async def until_failed(fiber: Fiber) -> None:
    while True:
        await fiber
        await anyio.lowlevel.checkpoint()


async def test_a_plugin_that_needs_nothing_becomes_active() -> None:
    seen: list[Context] = []
    async with open_kernel() as root:
        fiber = root.plugin(_noter(seen))
        assert fiber.state == "PENDING"
        await fiber
        assert fiber.state == "ACTIVE"
        assert seen[0].fiber is fiber
    assert fiber.state == "DISPOSED"


def _noter(seen: list[Context]) -> object:
    def note(ctx: Context) -> None:
        seen.append(ctx)

    return note


async def test_numbers_count_from_the_root_and_a_disposed_fiber_has_none() -> None:
    async with open_kernel() as root:
        assert root.fiber.uid == 0
        first, second = root.plugin(_noter([])), root.plugin(_noter([]))
        assert (first.uid, second.uid) == (1, 2)
        await first.dispose()
        assert first.uid is None
        assert root.plugin(_noter([])).uid == 3


async def test_the_start_runs_in_the_task_in_which_the_plugin_ends() -> None:
    tasks: list[int] = []

    async def body(ctx: Context) -> AsyncGenerator[None]:
        tasks.append(anyio.get_current_task().id)
        with anyio.CancelScope():
            yield
        tasks.append(anyio.get_current_task().id)

    async with open_kernel() as root:
        fiber = await root.plugin(body)
        assert fiber.state == "ACTIVE"
    assert tasks[0] == tasks[1] != anyio.get_current_task().id


async def test_a_start_error_is_raised_to_whoever_waits_and_leaves_siblings_alone() -> None:
    undone: list[str] = []
    reports: list[ErrorReport] = []
    error = Broken("no")

    async def fail(ctx: Context) -> None:
        ctx.effect(lambda: lambda: undone.append("effect"))
        raise error

    async with open_kernel(on_error=reports.append) as root:
        sibling = root.plugin(_noter([]))
        fiber = root.plugin(fail)
        for _ in range(2):
            with pytest.raises(Broken) as caught:
                await fiber
            assert caught.value is error
        assert fiber.state == "FAILED"
        assert fiber.error is error
        assert undone == ["effect"]
        assert (await sibling).state == "ACTIVE"
    assert [(each.plugin, each.during, each.error) for each in reports] == [("fail", "starting", error)]


async def test_disposing_ends_children_and_is_shared_by_all_callers() -> None:
    trace: list[str] = []
    release = anyio.Event()

    def child(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trace.append("child"))

    async def parent(ctx: Context) -> None:
        async def slow() -> None:
            await release.wait()
            trace.append("slow")

        async def set_up() -> Disposer:
            return slow

        await ctx.effect_async(set_up)
        await ctx.plugin(child)

    async with open_kernel() as root, anyio.create_task_group() as group:
        fiber = await root.plugin(parent)

        async def dispose() -> None:
            await fiber.dispose()
            trace.append("disposed")

        group.start_soon(dispose)
        group.start_soon(dispose)
        await anyio.wait_all_tasks_blocked()
        assert trace == ["child"]
        assert fiber.state == "UNLOADING"
        release.set()
        await fiber.dispose()
        assert trace[:2] == ["child", "slow"]
        assert fiber.state == "DISPOSED"
    assert trace == ["child", "slow", "disposed", "disposed"]


async def test_disposing_while_loading_cancels_the_start_and_undoes_what_it_did() -> None:
    trace: list[str] = []

    async def start(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trace.append("undone"))
        try:
            await anyio.sleep_forever()
        finally:
            trace.append("cancelled")

    async with open_kernel() as root:
        fiber = root.plugin(start)
        await anyio.wait_all_tasks_blocked()
        assert fiber.state == "LOADING"
        await fiber.dispose()
        assert fiber.state == "DISPOSED"
    assert trace == ["cancelled", "undone"]


async def test_a_fiber_that_is_disposed_before_it_started_never_starts() -> None:
    seen: list[Context] = []
    async with open_kernel() as root:
        await root.plugin(_noter(seen)).dispose()
    assert seen == []


async def test_a_plugin_may_dispose_itself_in_its_start() -> None:
    trace: list[str] = []

    async def start(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trace.append("undone"))
        await ctx.fiber.dispose()
        trace.append("unreachable")

    async with open_kernel() as root:
        fiber = root.plugin(start)
        await fiber
        assert fiber.state == "DISPOSED"
        assert root.describe().children == ()
    assert trace == ["undone"]


async def test_a_plugin_may_dispose_itself_while_it_is_undone() -> None:
    @plugin(provides=(CLOCK,))
    async def itself(ctx: Context) -> None:
        ctx.start_soon(anyio.sleep_forever)
        ctx.provide(CLOCK, "now")

        async def set_up() -> Disposer:
            return ctx.fiber.dispose

        await ctx.effect_async(set_up)

    async with open_kernel() as root:
        fiber = await root.plugin(itself)
        await fiber.dispose()
        assert fiber.state == "DISPOSED"


async def test_a_dependent_that_is_undone_may_dispose_its_provider() -> None:
    @plugin(provides=(CLOCK,))
    def provider(ctx: Context) -> None:
        ctx.provide(CLOCK, "now")

    @plugin(inject=(CLOCK,))
    async def dependent(ctx: Context) -> AsyncGenerator[None]:
        yield
        await fiber.dispose()

    async with open_kernel() as root:
        fiber = await root.plugin(provider)
        user = await root.plugin(dependent)
        await user.dispose()
        assert user.state == "DISPOSED"
        await fiber.dispose()
        assert fiber.state == "DISPOSED"


async def test_waiting_for_its_own_start_is_an_error() -> None:
    async def start(ctx: Context) -> None:
        await ctx.fiber

    async with open_kernel(on_error=lambda report: None) as root:
        with pytest.raises(WaitCycle, match="`start` is LOADING"):
            await root.plugin(start)


async def test_a_background_task_may_wait_for_the_start_of_its_plugin() -> None:
    done = anyio.Event()

    async def start(ctx: Context) -> None:
        async def wait() -> None:
            await ctx.fiber.wait_active()
            done.set()

        ctx.start_soon(wait)

    async with open_kernel() as root:
        root.plugin(start)
        await done.wait()


async def test_waiting_until_active_ends_with_the_fiber() -> None:
    @plugin(inject=(CLOCK,))
    def dependent(ctx: Context) -> None:
        raise AssertionError

    async with open_kernel() as root:
        fiber = root.plugin(dependent)
        raised: list[Exception] = []

        async def wait() -> None:
            try:
                await fiber.wait_active()
            except PluginDisposed as error:
                raised.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await fiber.dispose()
        assert len(raised) == 1


async def test_a_void_context_takes_nothing() -> None:
    contexts: list[Context] = []
    async with open_kernel() as root:
        fiber = await root.plugin(_noter(contexts))
        await fiber.dispose()
        (ctx,) = contexts
        with pytest.raises(ContextInactive):
            ctx.effect(lambda: lambda: None)
        with pytest.raises(ContextInactive):
            ctx.plugin(_noter([]))
        with pytest.raises(ContextInactive):
            ctx.provide(CLOCK, "x")
        with pytest.raises(ContextInactive):
            ctx.find(CLOCK)


async def test_an_update_restarts_with_the_new_configuration_in_a_new_context() -> None:
    seen: list[tuple[Context, str]] = []
    trace: list[str] = []

    def start(ctx: Context, config: Settings) -> None:
        seen.append((ctx, config.text))
        ctx.effect(lambda: lambda: trace.append(config.text))

    async with open_kernel() as root:
        fiber = await root.plugin(start)
        assert await fiber.update({"text": "other"})
        assert [text for _, text in seen] == ["default", "other"]
        assert seen[0][0] is not seen[1][0]
        assert trace == ["default"]
        assert fiber.state == "ACTIVE"


async def test_a_plugin_that_updates_itself_in_its_start_is_started_again() -> None:
    texts: list[str] = []

    async def start(ctx: Context, config: Settings) -> None:
        texts.append(config.text)
        if config.text == "default":
            await ctx.fiber.update({"text": "other"})
            texts.append("unreachable")

    async with open_kernel() as root:
        await root.plugin(start)
    assert texts == ["default", "other"]


async def test_a_failed_plugin_starts_again_with_another_configuration() -> None:
    def start(ctx: Context, config: Settings) -> None:
        if config.text == "default":
            raise Broken

    async with open_kernel(on_error=lambda report: None) as root:
        fiber = root.plugin(start)
        with pytest.raises(Broken):
            await fiber
        await fiber.update({"text": "good"})
        assert fiber.state == "ACTIVE"
        assert fiber.error is None
        with pytest.raises(Broken):
            await fiber.update({})
        assert fiber.state == "FAILED"


async def test_a_failing_background_task_fails_its_plugin() -> None:
    trace: list[str] = []
    go = anyio.Event()
    error = Broken("later")

    async def start(ctx: Context) -> None:
        ctx.effect(lambda: lambda: trace.append("undone"))

        async def work() -> None:
            await go.wait()
            raise error

        ctx.start_soon(work)

    async with open_kernel(on_error=lambda report: trace.append(report.during)) as root:
        fiber = await root.plugin(start)
        go.set()
        with pytest.raises(Broken):
            await until_failed(fiber)
        assert fiber.state == "FAILED"
    assert trace == ["undone", "running"]


async def test_a_task_group_around_the_yield_fails_the_plugin_with_its_error() -> None:
    go = anyio.Event()

    async def work() -> None:
        await go.wait()
        raise Broken

    async def body(ctx: Context) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            yield
            group.cancel_scope.cancel()

    async with open_kernel(on_error=lambda report: None) as root:
        good = await root.plugin(body)
        await good.dispose()
        fiber = await root.plugin(body)
        go.set()
        with pytest.raises(ExceptionGroup) as caught:
            await until_failed(fiber)
        assert caught.group_contains(Broken)
        assert fiber.state == "FAILED"


async def test_a_body_that_ends_by_itself_is_a_failure() -> None:
    async def body(ctx: Context) -> AsyncGenerator[None]:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            yield

    scopes: list[anyio.CancelScope] = []
    async with open_kernel(on_error=lambda report: None) as root:
        fiber = await root.plugin(body)
        scopes[0].cancel()
        with pytest.raises(PluginEnded):
            await until_failed(fiber)


async def test_a_body_is_left_uncancelled_even_if_it_was_disposed_at_the_end_of_its_start() -> None:
    trace: list[str] = []

    async def body(ctx: Context) -> AsyncGenerator[None]:
        ctx.fiber.request_disposal()  # the start is cancelled, and has nothing more to wait for
        yield
        await anyio.lowlevel.checkpoint()
        trace.append("left")

    async with open_kernel() as root:
        fiber = await root.plugin(body)
        assert fiber.state == "DISPOSED"
    assert trace == ["left"]


async def test_settling_waits_for_all_and_tells_who_failed() -> None:
    async def good(ctx: Context) -> None:
        await anyio.lowlevel.checkpoint()

    async def bad(ctx: Context) -> None:
        await anyio.lowlevel.checkpoint()
        raise Broken("why")

    async with open_kernel(on_error=lambda report: None) as root:
        fiber = root.plugin(good)
        root.plugin(_pending())
        await root.settle()
        assert fiber.state == "ACTIVE"
        root.plugin(bad)
        with pytest.raises(PluginsFailed, match="`bad`: why") as caught:
            await root.settle()
        assert isinstance(caught.value.errors[0], Broken)


def _pending() -> object:
    @plugin(inject=(CLOCK,))
    def waiting(ctx: Context) -> None:
        raise AssertionError

    return waiting


async def test_a_start_may_wait_for_its_children() -> None:
    trace: list[str] = []

    @plugin(inject=(CLOCK,))
    def child(ctx: Context) -> None:
        trace.append(ctx.get(CLOCK))

    @plugin(provides=(CLOCK,))
    async def parent(ctx: Context) -> None:
        early = await ctx.plugin(child, name="early")
        assert early.state == "PENDING"  # only the caller itself could provide what it lacks
        ctx.provide(CLOCK, "now")
        await early
        assert early.state == "ACTIVE"
        await ctx.settle()
        trace.append("parent")

    async with open_kernel() as root:
        await root.plugin(parent)
    assert trace == ["now", "parent"]


async def test_errors_of_an_end_that_nobody_waits_for_are_reported() -> None:
    reports: list[ErrorReport] = []

    def fail() -> None:
        raise Broken

    def start(ctx: Context) -> None:
        ctx.effect(lambda: fail)

    async with open_kernel(on_error=reports.append) as root:
        fiber = await root.plugin(start)
        fiber.request_disposal()
        await fiber
    assert [(each.plugin, each.during) for each in reports] == [("start", "unloading")]


async def test_a_dependent_may_dispose_its_provider_in_its_start() -> None:
    @plugin(provides=(CLOCK,))
    def provider(ctx: Context) -> None:
        ctx.provide(CLOCK, "now")

    @plugin(inject=(CLOCK,))
    async def dependent(ctx: Context) -> None:
        await fiber.dispose()
        raise AssertionError

    async with open_kernel() as root:
        fiber = await root.plugin(provider)
        user = root.plugin(dependent)
        assert (await user).state == "PENDING"
        assert (await fiber).state == "DISPOSED"


async def test_what_is_undone_for_a_plugin_cannot_wait_for_where_that_gets() -> None:
    raised: list[WaitCycle] = []

    @plugin(provides=(CLOCK,))
    def provider(ctx: Context) -> None:
        ctx.provide(CLOCK, "now")

    @plugin(inject=(CLOCK,))
    async def dependent(ctx: Context) -> AsyncGenerator[None]:
        yield
        for each in (fiber, ctx.fiber):
            try:
                await each
            except WaitCycle as error:
                raised.append(error)

    async with open_kernel() as root:
        fiber = await root.plugin(provider)
        await root.plugin(dependent)
        await fiber.dispose()
    assert len(raised) == 2


async def test_a_failed_plugin_with_another_configuration_waits_for_what_it_lacks() -> None:
    @plugin(inject=(CLOCK,))
    def start(ctx: Context, config: Settings) -> None:
        raise Broken

    async with open_kernel(on_error=lambda report: None) as root:
        effect = root.provide(CLOCK, "now")
        fiber = root.plugin(start)
        with pytest.raises(Broken):
            await fiber
        await effect.dispose()
        await fiber.update({"text": "other"})
        assert (fiber.state, fiber.error) == ("PENDING", None)
