"""Each guard works in a bare kernel, without the others."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from execworld.kernel import (
    FS,
    SANDBOX,
    SUBPROCESS,
    WORLD,
    WORLD_OPENED,
    Context,
    Key,
    OpenedWorld,
    open_kernel,
    plugin,
)
from execworld.policies import hold_floor, keep_one_world, refuse_downgrade
from execworld.seams import (
    Boundary,
    FloorViolated,
    SandboxPolicy,
    SandboxUnavailable,
    World,
    WorldClaims,
    WorldMismatch,
)
from execworld.seams.floor import Floor
from execworld.world import open_world

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(30)]


def opened(world: World, **given: object) -> OpenedWorld:
    usual: dict[str, object] = {
        "row": "world",
        "world": world,
        "asked": SandboxPolicy.full_access(),
        "usual": None,
        "mode_is_said": False,
        "claims": WorldClaims(Boundary.CONTAINER, images=(), hosts=()),
        "floor": Floor(),
    }
    return OpenedWorld(**(usual | given))  # type: ignore[arg-type] # names and values are those of the class


@plugin(provides=(FS,))
async def files(ctx: Context) -> AsyncGenerator[None]:
    async with open_world("local") as world:
        ctx.provide(FS, world.fs)
        yield


@plugin(provides=(SUBPROCESS,))
async def commands(ctx: Context) -> AsyncGenerator[None]:
    async with open_world("landlock") as world:
        ctx.provide(SUBPROCESS, world.subprocess)
        yield


async def test_keep_one_world_refuses_the_second_world() -> None:
    async with open_kernel(on_error=lambda _: None) as root:
        await root.plugin(keep_one_world)
        await root.plugin(files)
        with pytest.raises(WorldMismatch, match=r"`subprocess` of landlock:.*`fs` of local:"):
            await root.plugin(commands)


async def test_keep_one_world_looks_at_what_is_there() -> None:
    async with open_kernel(on_error=lambda _: None) as root:
        await root.plugin(files)
        await root.plugin(commands)
        with pytest.raises(WorldMismatch, match="the composition mixes worlds"):
            await root.plugin(keep_one_world)


async def test_keep_one_world_refuses_a_part_that_does_not_say_whose_it_is() -> None:
    @plugin(provides=(FS,))
    def nameless(ctx: Context) -> None:
        ctx.provide(Key[object]("fs"), object())

    async with open_kernel(on_error=lambda _: None) as root:
        await root.plugin(keep_one_world)
        with pytest.raises(WorldMismatch, match="does not say which world"):
            await root.plugin(nameless)


async def test_hold_floor_compares_the_open_world() -> None:
    async with open_kernel() as root, open_world("local") as world:
        await root.plugin(hold_floor)
        await root.serial(WORLD_OPENED, opened(world))
        with pytest.raises(FloorViolated, match="container at least is wanted, and there is none"):
            await root.serial(WORLD_OPENED, opened(world, floor=Floor(boundary=Boundary.CONTAINER)))


async def test_refuse_downgrade_compares_what_was_asked_for_with_what_is_enforced() -> None:
    async with open_kernel() as root, open_world("local") as world:
        await root.plugin(refuse_downgrade)
        await root.serial(WORLD_OPENED, opened(world))
        with pytest.raises(SandboxUnavailable, match="does not obey the policy"):
            await root.serial(WORLD_OPENED, opened(world, asked=SandboxPolicy.read_only()))


@pytest.mark.parametrize("said", [True, False])
async def test_refuse_downgrade_wants_full_access_to_be_written_down(said: bool) -> None:
    """Where the world would have confined by itself."""
    full, usual = SandboxPolicy.full_access(), SandboxPolicy.read_only()
    async with open_kernel() as root, open_world("landlock", policy=full) as world:
        await root.plugin(refuse_downgrade)
        if said:
            await root.serial(WORLD_OPENED, opened(world, usual=usual, mode_is_said=True))
            return
        with pytest.raises(SandboxUnavailable, match="without the policy that such a world has") as caught:
            await root.serial(WORLD_OPENED, opened(world, usual=usual))
        assert "mode: full-access" in caught.value.hint


async def test_refuse_downgrade_takes_no_part_of_an_unknown_view_once_something_is_confined() -> None:
    async with open_kernel(on_error=lambda _: None) as root:
        await root.plugin(refuse_downgrade)
        fiber = await root.plugin(files)
        await fiber.dispose()
        policy = SandboxPolicy.read_only()
        async with open_world("landlock", policy=policy) as world:
            await root.serial(WORLD_OPENED, opened(world, asked=policy))

            @plugin(provides=(WORLD, SANDBOX))
            def confined(ctx: Context) -> None:
                ctx.provide(WORLD, world)
                ctx.provide(SANDBOX, world.sandbox)

            await root.plugin(confined)
            with pytest.raises(SandboxUnavailable, match="belongs to no view"):
                await root.plugin(files)


async def test_refuse_downgrade_looks_at_the_world_that_is_there() -> None:
    async with open_kernel(on_error=lambda _: None) as root:
        async with open_world("landlock", policy=SandboxPolicy.read_only()) as world:

            @plugin(provides=(WORLD,))
            def confined(ctx: Context) -> None:
                ctx.provide(WORLD, world)

            fiber = await root.plugin(confined)
            await root.plugin(refuse_downgrade)
            with pytest.raises(SandboxUnavailable, match="belongs to no view"):
                await root.plugin(files)
            await fiber.dispose()


async def test_refuse_downgrade_takes_a_tighter_view_of_a_world_that_it_has_seen() -> None:
    """Also after another world was confined; and no longer when that world is closed."""
    policy = SandboxPolicy.read_only()
    async with open_kernel(on_error=lambda _: None) as root:
        await root.plugin(refuse_downgrade)
        async with open_world("landlock", policy=policy) as before:
            await root.serial(WORLD_OPENED, opened(before, asked=policy))
        full = SandboxPolicy.full_access()
        async with open_world("landlock", policy=full) as world:
            await root.serial(WORLD_OPENED, opened(world))
            view = await world.sandbox.confine(policy)

            @plugin(provides=(FS, SANDBOX))
            def tighter(ctx: Context) -> None:
                ctx.provide(FS, view.fs)
                ctx.provide(SANDBOX, view.sandbox)

            fiber = await root.plugin(tighter)
            await fiber.dispose()
        with pytest.raises(SandboxUnavailable, match="belongs to no view"):
            await root.plugin(tighter)
