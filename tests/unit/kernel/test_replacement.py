"""Replacing a plugin while others run on it: the new one is ready before the old one goes, or nothing changes."""

from collections.abc import AsyncGenerator
from typing import cast

import anyio
import anyio.lowlevel
import pytest
from pydantic import BaseModel

from execworld.kernel import (
    CONFIG_UPDATE,
    ConfigUpdate,
    Context,
    ErrorReport,
    Event,
    Fiber,
    FiberState,
    Key,
    Next,
    Plugin,
    Registry,
    open_kernel,
    plugin,
)
from execworld.seams import ConfigurationError, PluginInvalid, ReplacementRefused, ServiceConflict

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

WORLD = Key[str]("place")
FILES = Key[str]("files")
OTHER = Key[str]("other")
PING = Event[str, None]("ping")


class Broken(Exception):
    pass


class Place(BaseModel, extra="forbid"):
    name: str = "old"


def world(trace: list[str]) -> Plugin:
    """Provides two services, one of them by a child, and tells what happens to it."""

    @plugin(name="files", inject=(WORLD,), provides=(FILES,))
    def files(ctx: Context) -> None:
        ctx.provide(FILES, f"files of {ctx.get(WORLD)}")

    @plugin(name="world", provides=(WORLD, FILES))
    async def place(ctx: Context, config: Place) -> AsyncGenerator[None]:
        trace.append(f"{config.name} opens")
        await anyio.lowlevel.checkpoint()
        ctx.provide(WORLD, config.name)
        if config.name == "bad":
            raise Broken
        ctx.plugin(files)
        await ctx.settle()
        trace.append(f"{config.name} is ready")
        yield
        trace.append(f"{config.name} closes")

    return place


def tool(trace: list[str], name: str = "tool") -> Plugin:
    @plugin(name=name, inject=(WORLD, FILES))
    def use(ctx: Context) -> None:
        trace.append(f"{name} on {ctx.get(WORLD)}, {ctx.get(FILES)}")
        ctx.effect(lambda: lambda: trace.append(f"{name} leaves {ctx.get(WORLD)}"))

    return use


async def test_the_new_one_is_ready_before_the_old_one_goes_and_dependents_move_once() -> None:
    trace: list[str] = []
    async with open_kernel() as root:
        old = root.plugin(world(trace), {"name": "old"})
        user = root.plugin(tool(trace))
        await root.settle()
        del trace[:]
        new = await old.replace(world(trace), {"name": "new"})
        await root.settle()
        assert (old.state, new.state, user.state) == (
            FiberState.DISPOSED,
            FiberState.ACTIVE,
            FiberState.ACTIVE,
        )
        assert [each.name for each in root.describe().children] == ["tool", "world"]
        assert trace[:3] == ["new opens", "new is ready", "tool leaves old"]
        assert sorted(trace[3:]) == ["old closes", "tool on new, files of new"]
    assert trace[-2:] == ["tool leaves new", "new closes"]


async def test_who_stands_on_a_long_way_and_on_a_short_one_moves_once() -> None:
    """What is far away goes at the same moment as what is near, though it takes its time to end."""
    trace: list[str] = []
    length = 12
    links = [Key[str](f"link_{number}") for number in range(length)]

    def source(value: str) -> Plugin:
        @plugin(name=value, provides=(links[0],))
        def provide(ctx: Context) -> None:
            ctx.provide(links[0], value)

        return provide

    def link(number: int, below: Key[str]) -> Plugin:
        @plugin(inject=(below,), provides=(links[number],))
        def provide(ctx: Context) -> None:
            ctx.provide(links[number], ctx.get(below))

        return provide

    @plugin(inject=(links[1], links[-1]))
    def user(ctx: Context) -> None:
        trace.append(f"{ctx.get(links[1])} {ctx.get(links[-1])}")

    async with open_kernel() as root:
        old = root.plugin(source("old"))
        root.plugin(link(1, links[0]))
        root.plugin(link(2, links[0]))
        for number in range(3, length):
            root.plugin(link(number, links[number - 1]))
        root.plugin(user)
        await root.settle()
        await old.replace(source("new"))
        await root.settle()
    assert trace == ["old old", "new new"]


@pytest.mark.parametrize("how", ["start", "check", "pending", "conflict"])
async def test_a_new_one_that_does_not_become_ready_changes_nothing(how: str) -> None:
    trace: list[str] = []
    checked: list[str] = []

    async def check(ctx: Context) -> None:
        checked.append(ctx.get(WORLD))
        raise Broken

    @plugin(name="pending", inject=(OTHER,), provides=(WORLD, FILES))
    def pending(ctx: Context) -> None:
        raise AssertionError

    @plugin(name="conflict", provides=(WORLD, OTHER))
    def conflict(ctx: Context) -> None:
        raise AssertionError

    async with open_kernel(on_error=lambda report: None) as root:
        old = root.plugin(world(trace))
        await root.plugin(tool(trace))
        before = list(trace)
        if how == "start":
            with pytest.raises(Broken):
                await old.replace(world([]), {"name": "bad"})
        elif how == "check":
            with pytest.raises(Broken):
                await old.replace(world([]), {"name": "new"}, check=check)
            assert checked == ["new"]
        elif how == "pending":
            with pytest.raises(ReplacementRefused, match="waits for `other` \\(no plugin provides it\\)"):
                await old.replace(pending)
        else:
            root.provide(OTHER, "x")
            with pytest.raises(ServiceConflict):
                await old.replace(conflict)
        assert trace == before
        assert root.get(WORLD) == "old"
        assert (await old.replace(world([]), {"name": "new"})).state is FiberState.ACTIVE


async def test_a_cancelled_replacement_changes_nothing() -> None:
    trace: list[str] = []

    @plugin(provides=(WORLD, FILES))
    async def endless(ctx: Context) -> None:
        ctx.provide(WORLD, "endless")
        try:
            await anyio.sleep_forever()
        finally:
            trace.append("cancelled")

    async with open_kernel() as root:
        old = root.plugin(world([]))
        await root.settle()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(old.replace, endless)
                await anyio.wait_all_tasks_blocked()
                assert root.get(WORLD) == "old"
                with pytest.raises(ReplacementRefused, match="being replaced or ended already"):
                    await old.replace(world([]))
                scope.cancel()
        assert trace == ["cancelled"]
        assert root.get(WORLD) == "old"


async def test_what_the_new_one_lacks_makes_its_dependents_wait() -> None:
    @plugin(provides=(WORLD,))
    def half(ctx: Context) -> None:
        ctx.provide(WORLD, "half")

    trace: list[str] = []
    async with open_kernel() as root:
        old = root.plugin(world([]))
        user = await root.plugin(tool(trace))
        await old.replace(half)
        await root.settle()
        assert user.state == "PENDING"
        assert root.describe().children[0].missing[0].service == "files"


async def test_listeners_and_registrations_change_hands_in_the_same_step() -> None:
    trace: list[str] = []
    registry = Registry[str]("tool")

    def make(name: str) -> Plugin:
        @plugin(name=name)
        async def listening(ctx: Context) -> AsyncGenerator[None]:
            ctx.on(PING, lambda payload: trace.append(f"{name} hears {payload}"))
            registry.add(ctx, "bash", name)
            yield
            ctx.emit(PING, f"end of {name}")

        return listening

    async def check(ctx: Context) -> None:
        root.emit(PING, "outside")
        ctx.emit(PING, "inside")
        assert registry.get(root, "bash") == "one"
        assert registry.get(ctx, "bash") == "two"

    async with open_kernel() as root:
        old = await root.plugin(make("one"))
        await old.replace(make("two"), check=check)
        assert registry.get(root, "bash") == "two"
        root.emit(PING, "after")
    assert trace == [
        "one hears outside",
        "one hears inside",
        "two hears inside",
        "two hears end of one",
        "two hears after",
    ]


async def test_a_dependent_that_is_slow_to_leave_keeps_the_old_one_until_then() -> None:
    trace: list[str] = []
    leave = anyio.Event()

    @plugin(inject=(WORLD,))
    async def slow(ctx: Context) -> AsyncGenerator[None]:
        trace.append(f"on {ctx.get(WORLD)}")
        yield
        await leave.wait()
        trace.append(f"leaves {ctx.get(WORLD)}")

    async with open_kernel() as root, anyio.create_task_group() as group:
        old = root.plugin(world(trace))
        await root.plugin(slow)
        group.start_soon(old.replace, world(trace), {"name": "new"})
        await anyio.wait_all_tasks_blocked()
        assert root.get(WORLD) == "new"
        assert "old closes" not in trace
        leave.set()
    assert trace[-4:] == ["on new", "old closes", "leaves new", "new closes"] or trace.index(
        "leaves old"
    ) < trace.index("old closes")


async def test_errors_of_the_old_one_are_reported() -> None:
    reports: list[ErrorReport] = []

    def fail() -> None:
        raise Broken

    def old(ctx: Context) -> None:
        ctx.effect(lambda: fail)

    def new(ctx: Context) -> None:
        pass

    async with open_kernel(on_error=reports.append) as root:
        fiber = await root.plugin(old)
        await fiber.replace(new)
    assert [(each.plugin, each.during) for each in reports] == [("old", "unloading")]


async def test_the_root_and_what_is_ended_cannot_be_replaced() -> None:
    async with open_kernel() as root:
        with pytest.raises(ReplacementRefused):
            await root.fiber.replace(world([]))
        fiber = await root.plugin(world([]))
        with pytest.raises(PluginInvalid):
            await fiber.replace("no plugin")
        await fiber.dispose()
        with pytest.raises(ReplacementRefused):
            await fiber.replace(world([]))


async def test_a_plugin_may_replace_itself() -> None:
    states: list[FiberState] = []

    def new(ctx: Context) -> None:
        states.append(ctx.fiber.state)

    async def old(ctx: Context) -> None:
        await ctx.fiber.replace(new)
        raise AssertionError

    async with open_kernel() as root:
        fiber: Fiber = root.plugin(old)
        await root.settle()
        await fiber
        assert [(each.name, each.state) for each in root.describe().children] == [("new", FiberState.ACTIVE)]


async def test_an_update_that_is_wrong_changes_nothing() -> None:
    trace: list[str] = []
    async with open_kernel() as root:
        fiber = await root.plugin(world(trace))
        before = list(trace)
        with pytest.raises(ConfigurationError, match="no key `title`"):
            await fiber.update({"title": "x"})
        assert trace == before
        assert fiber.state == "ACTIVE"


async def test_a_listener_can_prevent_an_update_or_change_it() -> None:
    trace: list[str] = []

    async def guard(update: ConfigUpdate, go_on: Next[ConfigUpdate, bool]) -> bool:
        name = cast("Place", update.config).name
        if name == "silent":
            return False
        if name == "loud":
            raise Broken
        return await go_on(ConfigUpdate(update.fiber, Place(name=name.upper())))

    async with open_kernel() as root:
        fiber = await root.plugin(world(trace))
        root.on(CONFIG_UPDATE, guard)
        assert not await fiber.update({"name": "silent"})
        with pytest.raises(Broken):
            await fiber.update({"name": "loud"})
        assert root.get(WORLD) == "old"
        assert await fiber.update({"name": "new"})
        assert root.get(WORLD) == "NEW"
