"""What is put before those who may refuse it: providing a service, and starting a plugin."""

from __future__ import annotations

import pytest

from execworld.kernel import (
    PROVIDING,
    STARTING,
    Context,
    FiberState,
    Key,
    Providing,
    Starting,
    open_kernel,
    plugin,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(10)]

CLOCK = Key[str]("clock")
RADIO = Key[str]("radio")


@plugin(provides=(CLOCK,))
def clock(ctx: Context) -> None:
    ctx.provide(CLOCK, "tick")


@plugin(provides=(CLOCK,))
def better_clock(ctx: Context) -> None:
    ctx.provide(CLOCK, "tock")


@plugin(inject=(CLOCK,), provides=(RADIO,))
def radio(ctx: Context) -> None:
    ctx.provide(RADIO, f"noise at {ctx.get(CLOCK)}")


class Beside:
    """Which radio was seen beside whatever was provided."""

    def __init__(self) -> None:
        self.seen: list[tuple[object, str | None]] = []

    def look(self, providing: Providing) -> None:
        self.seen.append((providing.value, providing.beside(RADIO)))


def refuse(value: object) -> None:
    raise PermissionError(str(value))


async def test_a_service_that_is_refused_is_never_seen() -> None:
    async with open_kernel(on_error=lambda _: None) as root:
        listening = root.on(PROVIDING, lambda providing: refuse(providing.value))
        fiber = root.plugin(clock)
        with pytest.raises(PermissionError, match="tick"):
            await fiber
        assert root.find(CLOCK) is None
        listening.dispose()
        assert (await root.plugin(clock)).state is FiberState.ACTIVE


async def test_a_plugin_that_is_refused_does_nothing() -> None:
    ran: list[str] = []

    @plugin(inject=(CLOCK,))
    def late(ctx: Context) -> None:
        ran.append(ctx.get(CLOCK))

    seen: list[object] = []

    def judge(starting: Starting) -> None:
        seen.append((starting.fiber.name, dict(starting.services)))
        if starting.fiber.name == "late":
            raise PermissionError

    async with open_kernel(on_error=lambda _: None) as root:
        root.on(STARTING, judge)
        await root.plugin(clock)
        with pytest.raises(PermissionError):
            await root.plugin(late)
    assert not ran
    assert seen == [("clock", {}), ("late", {"clock": "tick"})]


async def test_beside_are_the_services_of_the_same_place() -> None:
    """In a realm what the realm has; and nothing that will go with what is about to be replaced."""
    beside = Beside()

    async with open_kernel() as root:
        await root.plugin(clock)
        await root.plugin(radio)
        root.on(PROVIDING, beside.look)
        isolated = root.isolate(CLOCK)
        await isolated.plugin(clock)
        elsewhere = root.isolate(CLOCK, RADIO)
        await elsewhere.plugin(clock)
        assert beside.seen == [("tick", "noise at tick"), ("tick", None)]


async def test_what_stands_on_the_replaced_one_does_not_count() -> None:
    beside = Beside()
    async with open_kernel() as root:
        first = await root.plugin(clock)
        await root.plugin(radio)
        root.on(PROVIDING, beside.look)
        await first.replace(better_clock)
        await root.settle()
        assert beside.seen == [("tock", None), ("noise at tock", None)]


async def test_a_listener_that_has_to_be_waited_for_is_an_error() -> None:
    """It could not prevent anything in time; to go on without its answer would be to ignore it."""

    async def slow(providing: Providing) -> None: ...

    async with open_kernel(on_error=lambda _: None) as root:
        root.on(PROVIDING, slow)
        with pytest.raises(TypeError, match="cannot be async"):
            await root.plugin(clock)
