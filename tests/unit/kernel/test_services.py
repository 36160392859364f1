"""Services: who may provide and read them, and what happens to dependents when a provider comes and goes."""

from collections.abc import AsyncGenerator

import anyio
import anyio.lowlevel
import pytest

from execworld.kernel import AsyncEffect, Context, Fiber, FiberState, Key, Plugin, open_kernel, plugin
from execworld.kernel.effects import Disposer
from execworld.seams import (
    ConfigurationError,
    InjectCycle,
    ServiceConflict,
    ServiceUnavailable,
    ServiceUndeclared,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

CLOCK = Key[str]("clock")
RADIO = Key[str]("radio")
LAMP = Key[str]("lamp")


class Broken(Exception):
    pass


def nothing(ctx: Context) -> None: ...


def provider_of(key: Key[str], value: str = "value", *, inject: tuple[Key[str], ...] = ()) -> Plugin:
    @plugin(name=f"{key}_provider", inject=inject, provides=(key,))
    def provide(ctx: Context) -> None:
        ctx.provide(key, value)

    return provide


def user_of(*keys: Key[str], trace: list[str], name: str = "user") -> Plugin:
    @plugin(name=name, inject=keys)
    def use(ctx: Context) -> None:
        trace.append("+".join(ctx.get(key) for key in keys))
        ctx.effect(lambda: lambda: trace.append("-".join(ctx.get(key) for key in keys)))

    return use


async def test_the_order_of_provider_and_dependent_does_not_matter() -> None:
    trace: list[str] = []
    async with open_kernel() as root:
        early = root.plugin(user_of(CLOCK, RADIO, trace=trace))
        await early
        assert early.state == "PENDING"
        root.plugin(provider_of(CLOCK, "tick"))
        await early
        assert early.state == "PENDING"
        root.plugin(provider_of(RADIO, "noise"))
        late = root.plugin(user_of(CLOCK, RADIO, trace=trace))
        await root.settle()
        assert early.state == late.state == "ACTIVE"
        assert trace == ["tick+noise", "tick+noise"]


async def test_waiting_for_a_dependent_waits_for_a_provider_that_is_starting() -> None:
    ready = anyio.Event()

    @plugin(provides=(CLOCK,))
    async def slow(ctx: Context) -> None:
        await ready.wait()
        ctx.provide(CLOCK, "tick")

    trace: list[str] = []
    async with open_kernel() as root, anyio.create_task_group() as group:
        root.plugin(provider_of(RADIO, "noise", inject=(CLOCK,)))
        root.plugin(slow)
        user = root.plugin(user_of(RADIO, trace=trace))

        async def wait() -> None:
            await user
            trace.append("waited")

        group.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert trace == []
        ready.set()
        await user
    assert trace[:2] == ["noise", "waited"]


async def test_a_service_is_seen_once_the_start_of_its_provider_is_over() -> None:
    started = anyio.Event()

    @plugin(provides=(CLOCK,))
    async def slow(ctx: Context) -> None:
        ctx.provide(CLOCK, "tick")
        assert ctx.get(CLOCK) == "tick"
        await started.wait()

    async with open_kernel() as root:
        fiber = root.plugin(slow)
        await anyio.wait_all_tasks_blocked()
        assert fiber.state == "LOADING"
        assert root.find(CLOCK) is None
        started.set()
        await fiber
        assert root.find(CLOCK) == "tick"
        await fiber.dispose()
        assert root.find(CLOCK) is None


async def test_a_provider_that_goes_unloads_its_dependents_while_the_value_still_works() -> None:
    trace: list[str] = []

    @plugin(provides=(CLOCK,))
    def clock(ctx: Context) -> None:
        ctx.provide(CLOCK, "tick")
        ctx.effect(lambda: lambda: trace.append("clock stops"))

    async with open_kernel() as root:
        provider = root.plugin(clock)
        user = await root.plugin(user_of(CLOCK, trace=trace))
        await provider.dispose()
        assert trace == ["tick", "tick", "clock stops"]
        await user
        assert user.state == "PENDING"
        root.plugin(provider_of(CLOCK, "tock"))
        await user
        assert user.state == "ACTIVE"
    assert trace == ["tick", "tick", "clock stops", "tock", "tock"]


async def test_a_provider_waits_until_its_dependents_are_unloaded() -> None:
    leave = anyio.Event()

    @plugin(inject=(CLOCK,))
    async def reluctant(ctx: Context) -> None:
        async def undo() -> None:
            await leave.wait()
            assert ctx.get(CLOCK) == "value"

        async def set_up() -> Disposer:
            return undo

        await ctx.effect_async(set_up)

    async with open_kernel() as root, anyio.create_task_group() as group:
        provider = root.plugin(provider_of(CLOCK))
        user = await root.plugin(reluctant)
        group.start_soon(provider.dispose)
        await anyio.wait_all_tasks_blocked()
        assert (provider.state, user.state) == (FiberState.UNLOADING, FiberState.UNLOADING)
        leave.set()
        await provider.dispose()
        await user
        assert user.state == "PENDING"


async def test_withdrawing_one_service_leaves_the_rest_of_its_provider() -> None:
    trace: list[str] = []
    contexts: list[Context] = []

    @plugin(provides=(CLOCK, RADIO))
    def both(ctx: Context) -> None:
        contexts.append(ctx)
        ctx.provide(RADIO, "noise")

    async with open_kernel() as root:
        provider = await root.plugin(both)
        clock = root.plugin(user_of(CLOCK, trace=trace))
        radio = root.plugin(user_of(RADIO, trace=trace))
        effect = contexts[0].provide(CLOCK, "tick")
        await root.settle()
        await effect.dispose()
        await effect.dispose()
        await root.settle()
        assert (provider.state, clock.state, radio.state) == (
            FiberState.ACTIVE,
            FiberState.PENDING,
            FiberState.ACTIVE,
        )
        assert sorted(trace) == ["noise", "tick", "tick"]


async def test_a_diamond_is_restarted_once() -> None:
    trace: list[str] = []

    async def restart(fiber: Fiber) -> None:
        fiber.restart_with(None)
        await root.settle()

    async with open_kernel() as root:
        source = root.plugin(provider_of(CLOCK, "tick"))
        root.plugin(provider_of(RADIO, "noise", inject=(CLOCK,)))
        root.plugin(provider_of(LAMP, "light", inject=(CLOCK,)))
        root.plugin(user_of(LAMP, CLOCK, RADIO, trace=trace))
        await root.settle()
        await restart(source)
        assert trace == ["light+tick+noise", "light-tick-noise", "light+tick+noise"]


async def test_an_optional_service_restarts_when_it_comes_and_goes() -> None:
    trace: list[str | None] = []

    @plugin(optional=(CLOCK,))
    def use(ctx: Context) -> None:
        trace.append(ctx.find(CLOCK))
        if ctx.find(CLOCK) is None:
            with pytest.raises(ServiceUnavailable, match="`clock`"):
                ctx.get(CLOCK)

    async with open_kernel() as root:
        await root.plugin(use)
        provider = await root.plugin(provider_of(CLOCK, "tick"))
        await root.settle()
        await provider.dispose()
        await root.settle()
    assert trace[:3] == [None, "tick", None]


async def test_what_is_not_declared_can_be_neither_read_nor_provided() -> None:
    def undeclared(ctx: Context) -> None:
        with pytest.raises(ServiceUndeclared, match="reads service `clock` without injecting"):
            ctx.get(CLOCK)
        with pytest.raises(AttributeError, match="`clock`"):
            ctx.clock  # noqa: B018 - reading it is the test
        assert not hasattr(ctx, "clock")
        assert ctx.find(CLOCK) == "value"
        with pytest.raises(ServiceUndeclared, match="without having declared"):
            ctx.provide(RADIO, "noise")

    async with open_kernel() as root:
        await root.plugin(provider_of(CLOCK))
        await root.plugin(undeclared)
        assert root.get(CLOCK) == "value"
        with pytest.raises(ServiceUnavailable):
            root.get(RADIO)


async def test_a_service_is_an_attribute_of_the_context() -> None:
    @plugin(inject=(CLOCK,))
    def use(ctx: Context) -> None:
        assert ctx.clock == "value"

    async with open_kernel() as root:
        await root.plugin(provider_of(CLOCK))
        await root.plugin(use)


@pytest.mark.parametrize("name", ["get", "_clock", "a-b", "", "emit"])
async def test_a_service_cannot_have_a_name_that_is_no_attribute(name: str) -> None:
    with pytest.raises(ConfigurationError):
        Key[str](name)


async def test_every_public_name_of_a_context_is_kept_from_services() -> None:
    five = {"world", "fs", "subprocess", "shell", "sandbox"}
    for name in dir(Context):
        if not name.startswith("_") and name not in five:
            with pytest.raises(ConfigurationError):
                Key[str](name)


async def test_a_second_provider_is_refused_with_the_name_of_the_first() -> None:
    async with open_kernel() as root:
        first = await root.plugin(provider_of(CLOCK))
        with pytest.raises(ServiceConflict, match="`clock_provider`"):
            root.plugin(provider_of(CLOCK), name="second")
        with pytest.raises(ServiceConflict):
            root.provide(CLOCK, "x")
        await first.dispose()
        await root.plugin(provider_of(CLOCK))


async def test_of_two_that_may_provide_the_one_that_failed_does_not_count() -> None:
    @plugin(provides=(CLOCK,))
    def broken(ctx: Context) -> None:
        raise Broken

    async with open_kernel(on_error=lambda report: None) as root:
        failed = root.plugin(broken)
        with pytest.raises(Broken):
            await failed
        await root.plugin(provider_of(CLOCK, "tick"))
        assert root.get(CLOCK) == "tick"


async def test_a_circle_of_injections_is_refused() -> None:
    async with open_kernel() as root:
        root.plugin(provider_of(CLOCK, inject=(RADIO,)))
        root.plugin(provider_of(LAMP, inject=(CLOCK,)))
        with pytest.raises(InjectCycle, match="radio_provider` -> `clock_provider` -> `lamp_provider"):
            root.plugin(provider_of(RADIO, inject=(LAMP,)))
        with pytest.raises(InjectCycle):
            root.plugin(plugin(name="self", inject=(RADIO,), provides=(RADIO,))(nothing))
        assert len(root.describe().children) == 2


async def test_a_start_that_fails_after_it_provided_leaves_no_service_and_started_nobody() -> None:
    trace: list[str] = []

    @plugin(provides=(CLOCK,))
    async def broken(ctx: Context) -> None:
        ctx.provide(CLOCK, "tick")
        await anyio.lowlevel.checkpoint()
        raise Broken

    async with open_kernel(on_error=lambda report: None) as root:
        user = root.plugin(user_of(CLOCK, trace=trace))
        with pytest.raises(Broken):
            await root.plugin(broken)
        assert user.state == "PENDING"
        assert trace == []


async def test_a_dependent_that_is_loading_is_cancelled_when_its_provider_goes() -> None:
    trace: list[str] = []

    @plugin(inject=(CLOCK,))
    async def slow(ctx: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            trace.append(ctx.get(CLOCK))

    async with open_kernel() as root:
        provider = await root.plugin(provider_of(CLOCK, "tick"))
        user = root.plugin(slow)
        await anyio.wait_all_tasks_blocked()
        assert user.state == "LOADING"
        await provider.dispose()
        await user
        assert user.state == "PENDING"
        assert trace == ["tick"]


async def test_a_child_sees_what_its_parent_provides_before_others_do() -> None:
    trace: list[str] = []
    go = anyio.Event()

    @plugin(provides=(CLOCK,))
    async def parent(ctx: Context) -> None:
        ctx.provide(CLOCK, "tick")
        await ctx.plugin(user_of(CLOCK, trace=trace, name="child"))
        await go.wait()

    outside: list[str] = []
    async with open_kernel() as root:
        root.plugin(user_of(CLOCK, trace=outside))
        root.plugin(parent)
        await anyio.wait_all_tasks_blocked()
        assert (trace, outside) == (["tick"], [])
        go.set()
        await root.settle()
        assert (trace, outside) == (["tick"], ["tick"])


async def test_two_realms_do_not_know_each_other() -> None:
    trace: list[str] = []
    async with open_kernel() as root:
        root.plugin(provider_of(CLOCK, "outer"))
        inner = root.isolate(CLOCK)
        waiting = inner.plugin(user_of(CLOCK, trace=trace))
        await root.settle()
        assert waiting.state == "PENDING"
        inner.plugin(provider_of(CLOCK, "inner"))
        await root.settle()
        assert trace == ["inner"]
        assert (root.get(CLOCK), inner.get(CLOCK)) == ("outer", "inner")
        assert inner.find(RADIO) is None
        root.plugin(provider_of(RADIO, "noise"))
        await root.settle()
        assert inner.get(RADIO) == "noise"


async def test_a_label_is_one_realm_and_still_takes_one_provider() -> None:
    async with open_kernel() as root:
        one, two = root.isolate(CLOCK, label="shared"), root.isolate(CLOCK, label="shared")
        await one.plugin(provider_of(CLOCK, "tick"))
        assert two.get(CLOCK) == "tick"
        with pytest.raises(ServiceConflict, match="of realm `shared`"):
            two.plugin(provider_of(CLOCK))


async def test_a_plugin_is_isolated_as_where_it_was_applied() -> None:
    """What a plugin applies lives in the realms of the plugin."""
    trace: list[str] = []

    def group(ctx: Context) -> None:
        ctx.plugin(provider_of(CLOCK, "inner"))
        ctx.plugin(user_of(CLOCK, trace=trace))

    async with open_kernel() as root:
        root.isolate(CLOCK).plugin(group)
        await root.settle()
        assert root.find(CLOCK) is None
        assert trace == ["inner"]


async def test_a_service_may_be_withdrawn_while_its_provider_goes() -> None:
    leave = anyio.Event()
    effects: list[AsyncEffect] = []

    @plugin(provides=(CLOCK,))
    def provider(ctx: Context) -> None:
        effects.append(ctx.provide(CLOCK, "tick"))

    @plugin(inject=(CLOCK,))
    async def slow(ctx: Context) -> AsyncGenerator[None]:
        yield
        await leave.wait()

    async with open_kernel() as root, anyio.create_task_group() as group:
        fiber = await root.plugin(provider)
        await root.plugin(slow)
        group.start_soon(effects[0].dispose)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(fiber.dispose)
        await anyio.wait_all_tasks_blocked()
        leave.set()
