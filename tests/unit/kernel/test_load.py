"""Many plugins: loading them stays cheap, and their number is no depth of recursion."""

import time
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from execworld.kernel import Context, FiberState, Key, Plugin, open_kernel, plugin

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60), pytest.mark.slow]

COUNT = 500
# The promise is half a second, and the summary says what it was. This fails for a cost that grows with the square.
LIMIT_S = 15  # of processor time

Note = Callable[[str], None]


def row(number: int) -> Plugin:
    """Provides a service and needs that of the one before: all of them are one chain."""

    @plugin(
        name=f"plugin_{number}",
        inject=(Key[int](f"service_{number - 1}"),) if number else (),
        provides=(Key[int](f"service_{number}"),),
    )
    def start(ctx: Context) -> None:
        ctx.effect(lambda: lambda: None)
        ctx.provide(Key[int](f"service_{number}"), number)

    return start


@pytest.mark.parametrize("order", ["providers-first", "dependents-first"])
async def test_five_hundred_plugins_load_and_unload(order: str, note: Note, anyio_backend: str) -> None:
    rows = [row(number) for number in range(COUNT)]
    if order == "dependents-first":
        rows.reverse()
    async with open_kernel() as root:
        begun = time.process_time()
        fibers = [root.plugin(each) for each in rows]
        await root.settle()
        loaded = time.process_time()
        assert all(fiber.state is FiberState.ACTIVE for fiber in fibers)
        fibers[0 if order == "providers-first" else -1].restart_with(None)
        await root.settle()
        restarted = time.process_time()
        assert all(fiber.state is FiberState.ACTIVE for fiber in fibers)
    ended = time.process_time()
    note(
        f"kernel: {COUNT} plugins in a chain, {order}, {anyio_backend}: loaded in {1000 * (loaded - begun):.0f} ms,"
        f" restarted in {1000 * (restarted - loaded):.0f} ms, ended in {1000 * (ended - restarted):.0f} ms"
    )
    assert ended - begun < LIMIT_S


async def test_five_hundred_dependents_of_one_service_load(note: Note, anyio_backend: str) -> None:
    clock = Key[int]("clock")

    @plugin(provides=(clock,))
    def provider(ctx: Context) -> None:
        ctx.provide(clock, 1)

    @plugin(inject=(clock,))
    async def user(ctx: Context) -> None:
        await anyio.lowlevel.checkpoint()

    async with open_kernel() as root:
        begun = time.process_time()
        for _ in range(COUNT):
            root.plugin(user)
        root.plugin(provider)
        await root.settle()
        loaded = time.process_time()
        assert all(each.state is FiberState.ACTIVE for each in root.describe().children)
    note(f"kernel: {COUNT} dependents of one, {anyio_backend}: loaded in {1000 * (loaded - begun):.0f} ms")
    assert loaded - begun < LIMIT_S
