"""Effects: whatever a plugin did is undone once, in reverse order, and to the end."""

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.lowlevel
import pytest

from execworld.kernel import Context, FiberState, open_kernel
from execworld.kernel.effects import Disposer, SyncDisposer
from execworld.seams import ContextInactive, DisposalFailed, PluginEnded

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]


class Broken(Exception):
    pass


def raise_broken() -> None:
    raise Broken


async def test_effects_are_undone_in_reverse_order_one_at_a_time() -> None:
    trace: list[str] = []

    async def start(ctx: Context) -> None:
        async def slow() -> None:
            trace.append("slow begins")
            await anyio.lowlevel.checkpoint()
            trace.append("slow ends")

        async def set_up() -> Disposer:
            return slow

        ctx.effect(lambda: lambda: trace.append("first"))
        await ctx.effect_async(set_up)
        ctx.effect(lambda: lambda: trace.append("last"))

    async with open_kernel() as root:
        await root.plugin(start)
    assert trace == ["last", "slow begins", "slow ends", "first"]


async def test_a_disposer_that_fails_does_not_stop_the_rest() -> None:
    trace: list[str] = []

    async def start(ctx: Context) -> None:
        async def set_up() -> Disposer:
            async def undo() -> None:
                raise Broken

            return undo

        ctx.effect(lambda: lambda: trace.append("first"))
        ctx.effect(lambda: raise_broken)
        await ctx.effect_async(set_up)
        ctx.plugin(child)

    def child(ctx: Context) -> None:
        ctx.effect(lambda: raise_broken)
        ctx.effect(lambda: lambda: trace.append("child"))

    async with open_kernel() as root:
        fiber = await root.plugin(start)
        await root.settle()
        for _ in range(2):
            with pytest.raises(DisposalFailed, match="`start`") as caught:
                await fiber.dispose()
            assert [type(error) for error in caught.value.errors] == [Broken] * 3
            places = [error.__notes__ for error in caught.value.errors]
            assert places[0] == ["while `effect` of plugin `child` was undone"]
        assert fiber.state == "DISPOSED"
    assert trace == ["child", "first"]


async def test_a_failed_disposer_reaches_who_closes_the_kernel() -> None:
    async def run(error: Exception | None) -> None:
        async with open_kernel() as root:
            root.effect(lambda: raise_broken)
            if error is not None:
                raise error

    with pytest.raises(DisposalFailed):
        await run(None)
    with pytest.raises(KeyError) as caught:
        await run(KeyError())
    assert "with errors" in caught.value.__notes__[0]


async def test_an_effect_can_be_undone_before_and_is_not_undone_twice() -> None:
    trace: list[str] = []
    async with open_kernel() as root:
        one = root.effect(lambda: lambda: trace.append("one"))
        root.effect(lambda: lambda: trace.append("two"))
        one.dispose()
        one.dispose()
        assert trace == ["one"]
    assert trace == ["one", "two"]


async def test_a_composite_effect_is_undone_in_reverse_and_takes_the_effects_it_is_given() -> None:
    trace: list[str] = []
    async with open_kernel() as root:

        def composite() -> Iterator[SyncDisposer]:
            yield lambda: trace.append("one")
            yield root.effect(lambda: lambda: trace.append("nested"))
            yield lambda: trace.append("three")

        effect = root.effect(composite)
        count = root.describe().effects
        effect.dispose()
        assert trace == ["three", "nested", "one"]
        assert (count, root.describe().effects) == (1, 0)
    assert len(trace) == 3


async def test_a_composite_async_effect_is_undone_in_reverse() -> None:
    trace: list[str] = []

    async def composite() -> AsyncIterator[Disposer]:
        async def one() -> None:
            trace.append("one")

        yield one
        await anyio.lowlevel.checkpoint()
        yield lambda: trace.append("two")

    async with open_kernel() as root:
        await root.effect_async(composite)
    assert trace == ["two", "one"]


async def test_a_setup_that_fails_midway_undoes_what_it_had_done() -> None:
    trace: list[str] = []

    def sync() -> Iterator[SyncDisposer]:
        yield lambda: trace.append("one")
        yield raise_broken
        yield lambda: trace.append("two")
        raise KeyError

    async def wait() -> AsyncIterator[Disposer]:
        for disposer in list(sync_without_error()):
            yield disposer
        raise KeyError

    def sync_without_error() -> Iterator[SyncDisposer]:
        yield lambda: trace.append("three")
        yield lambda: trace.append("four")

    async with open_kernel() as root:
        with pytest.raises(KeyError) as caught:
            root.effect(sync)
        assert "Broken" in caught.value.__notes__[0]
        with pytest.raises(KeyError):
            await root.effect_async(wait)
        assert trace == ["two", "one", "four", "three"]
        assert root.describe().effects == 0


async def test_what_gives_nothing_to_undo_it_is_no_effect() -> None:
    async with open_kernel() as root:
        with pytest.raises(TypeError):
            root.effect(lambda: None)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType] it is the error under test
        assert root.describe().effects == 0


async def test_an_effect_without_waiting_cannot_be_undone_by_a_coroutine() -> None:
    async def undo() -> None:
        raise AssertionError

    async with open_kernel() as root:
        effect = root.effect(lambda: undo)  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType] it is the error under test
        with pytest.raises(DisposalFailed, match="without waiting"):
            effect.dispose()


async def test_all_who_undo_an_effect_wait_for_the_same_completion() -> None:
    trace: list[str] = []
    go = anyio.Event()

    async def set_up() -> Disposer:
        async def undo() -> None:
            await go.wait()
            trace.append("undone")

        return undo

    async with open_kernel() as root, anyio.create_task_group() as group:
        effect = await root.effect_async(set_up)

        async def dispose() -> None:
            await effect.dispose()
            trace.append("returned")

        group.start_soon(dispose)
        group.start_soon(dispose)
        await anyio.wait_all_tasks_blocked()
        assert trace == []
        go.set()
        await effect.dispose()
    assert trace[0] == "undone"
    assert trace.count("undone") == 1


async def test_undoing_goes_to_its_end_although_the_caller_is_cancelled() -> None:
    trace: list[str] = []

    async def set_up() -> Disposer:
        async def undo() -> None:
            await anyio.lowlevel.checkpoint()
            trace.append("undone")

        return undo

    async with open_kernel() as root:
        effect = await root.effect_async(set_up)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await effect.dispose()
        assert trace == ["undone"]


async def test_an_async_setup_is_cancelled_when_its_plugin_ends_and_what_it_did_is_undone() -> None:
    trace: list[str] = []
    contexts: list[Context] = []

    async def set_up() -> AsyncIterator[Disposer]:
        yield lambda: trace.append("undone")
        try:
            await anyio.sleep_forever()
        finally:
            trace.append("cancelled")

    def start(ctx: Context) -> None:
        contexts.append(ctx)

    async with open_kernel() as root, anyio.create_task_group() as group:
        fiber = await root.plugin(start)

        async def register() -> None:
            with pytest.raises(ContextInactive, match="unloaded meanwhile"):
                await contexts[0].effect_async(set_up)
            trace.append("refused")

        group.start_soon(register)
        await anyio.wait_all_tasks_blocked()
        await fiber.dispose()
        assert trace[:2] == ["cancelled", "undone"]
    assert trace == ["cancelled", "undone", "refused"]


async def test_a_setup_that_disposes_its_owner_is_undone() -> None:
    trace: list[str] = []

    async def start(ctx: Context) -> None:
        async def set_up() -> AsyncIterator[Disposer]:
            yield lambda: trace.append("undone")
            await ctx.fiber.dispose()

        await ctx.effect_async(set_up)

    async with open_kernel() as root:
        fiber = await root.plugin(start)
        assert fiber.state == "DISPOSED"
    assert trace == ["undone"]


async def test_nothing_is_registered_while_a_plugin_is_unloaded() -> None:
    refused: list[Exception] = []

    def start(ctx: Context) -> None:
        def undo() -> None:
            try:
                ctx.effect(lambda: lambda: None)
            except ContextInactive as error:
                refused.append(error)

        ctx.effect(lambda: undo)

    async with open_kernel() as root:
        await root.plugin(start)
    assert len(refused) == 1


@asynccontextmanager
async def noted(trace: list[str], name: str) -> AsyncGenerator[str]:
    """Fails unless it is left in the task in which it was entered."""
    trace.append(f"enter {name}")
    async with anyio.create_task_group():
        yield name
    trace.append(f"leave {name}")


async def test_a_manager_is_entered_and_left_in_one_task_whoever_asks() -> None:
    trace: list[str] = []
    contexts: list[Context] = []

    async def start(ctx: Context) -> None:
        assert await ctx.enter(noted(trace, "a")) == "a"
        await ctx.enter(noted(trace, "b"))
        contexts.append(ctx)

    async with open_kernel() as root:
        fiber = await root.plugin(start)
        await contexts[0].enter(noted(trace, "from outside"))
        await fiber.dispose()
    assert trace[3:] == ["leave from outside", "leave b", "leave a"]


async def test_a_manager_that_cannot_be_entered_raises_and_leaves_nothing() -> None:
    @asynccontextmanager
    async def broken() -> AsyncGenerator[None]:
        await anyio.lowlevel.checkpoint()
        raise Broken
        yield

    async with open_kernel() as root:
        with pytest.raises(Broken):
            await root.enter(broken())
        assert root.describe().effects == 0


async def test_entering_is_cancelled_with_its_caller_and_with_its_plugin() -> None:
    trace: list[str] = []

    @asynccontextmanager
    async def endless() -> AsyncGenerator[None]:
        try:
            await anyio.sleep_forever()
            yield
        finally:
            trace.append("cancelled")

    async def start(ctx: Context) -> None:
        await ctx.enter(endless())

    async with open_kernel() as root:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(root.enter, endless())
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
        assert trace == ["cancelled"]
        assert root.describe().effects == 0
        fiber = root.plugin(start)
        await anyio.wait_all_tasks_blocked()
        await fiber.dispose()
        assert trace == ["cancelled"] * 2


async def test_a_manager_that_fails_or_ends_by_itself_fails_its_plugin() -> None:
    scopes: list[anyio.CancelScope] = []
    go = anyio.Event()

    async def work() -> None:
        await go.wait()
        raise Broken

    @asynccontextmanager
    async def ending() -> AsyncGenerator[None]:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            yield

    @asynccontextmanager
    async def failing() -> AsyncGenerator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            yield

    async def one(ctx: Context) -> None:
        await ctx.enter(ending())

    async def other(ctx: Context) -> None:
        await ctx.enter(failing())

    async with open_kernel(on_error=lambda report: None) as root:
        ended, failed = await root.plugin(one), await root.plugin(other)
        scopes[0].cancel()
        go.set()
        await anyio.wait_all_tasks_blocked()
        assert (ended.state, failed.state) == (FiberState.FAILED, FiberState.FAILED)
        assert isinstance(ended.error, PluginEnded)
        assert isinstance(failed.error, ExceptionGroup)


async def test_a_background_task_ends_with_its_plugin_or_by_itself() -> None:
    trace: list[str] = []

    async def work(name: str) -> None:
        with noted_end(trace, name):
            if name == "endless":
                await anyio.sleep_forever()

    async with open_kernel() as root:

        def start(ctx: Context) -> None:
            ctx.start_soon(work, "endless")
            ctx.start_soon(work, "short")

        fiber = await root.plugin(start)
        await anyio.wait_all_tasks_blocked()
        assert trace == ["short"]
        assert root.describe().children[0].effects == 1
        await fiber.dispose()
        assert trace == ["short", "endless"]


@contextmanager
def noted_end(trace: list[str], name: str) -> Generator[None]:
    try:
        yield
    finally:
        trace.append(name)
