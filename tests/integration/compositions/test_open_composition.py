"""Rows become plugins that share one world, and go before it."""

from __future__ import annotations

import anyio
import pytest
from pydantic import BaseModel
from tests.integration.compositions.doubles import GUARDS, Setting

from execworld.assembly import open_composition
from execworld.kernel import FS, SUBPROCESS, WORLD, Context, ErrorReport, Fiber, FiberState, Key, plugin
from execworld.seams import (
    CleanupIncomplete,
    ExecworldError,
    WorldClosed,
    WorldError,
    WorldLost,
    WorldMismatch,
)

pytestmark = pytest.mark.anyio
BASE = "world: {use: box}\n" + GUARDS + "tool: {use: tool}\n"


class Options(BaseModel, extra="forbid", frozen=True):
    level: str


async def test_all_parts_of_the_world_are_provided_and_of_one_view(setting: Setting) -> None:
    async with open_composition(setting.compose(BASE)) as running:
        world, ctx = running.world, running.context
        assert ctx.world is world
        assert (ctx.fs, ctx.subprocess, ctx.shell, ctx.sandbox) == (
            world.fs,
            world.subprocess,
            world.shell,
            world.sandbox,
        )
        assert setting.tool.events == [f"start {world.world_id}"]
    assert setting.tool.events[-1] == "end"
    assert world.closed


async def test_a_row_may_provide_a_part_itself(setting: Setting) -> None:
    """It takes the place of the world's own."""

    @plugin(inject=(WORLD,), provides=(FS,))
    def own_files(ctx: Context) -> None:
        ctx.provide(FS, ctx.world.fs)

    setting.plugins["own_files"] = own_files
    async with open_composition(setting.compose(BASE, "files: {use: own_files}")) as running:
        (owner,) = [
            each.name
            for each in running.describe().children
            if any(service.service == "fs" for service in each.provides)
        ]
        assert owner == "files"
        assert running.fibers["tool"].state is FiberState.ACTIVE


async def test_a_row_that_waits_is_told_with_its_reason(setting: Setting) -> None:
    @plugin(inject=(Key[str]("search"),))
    def needy(ctx: Context) -> None: ...

    setting.plugins["needy"] = needy
    async with open_composition(setting.compose(BASE, "finder: {use: needy}")) as running:
        (waiting,) = running.waiting
        assert (waiting.name, waiting.missing[0].reason) == ("finder", "no plugin provides it")


async def test_the_start_error_of_a_row_ends_everything(setting: Setting) -> None:
    @plugin()
    def broken(ctx: Context) -> None:
        raise ZeroDivisionError

    setting.plugins["broken"] = broken
    with pytest.raises(ZeroDivisionError):
        async with open_composition(setting.compose(BASE, "b: {use: broken}"), on_error=lambda _: None):
            raise AssertionError
    assert setting.engine.opened[0].closed


async def test_another_world_moves_every_consumer_and_voids_what_they_held(setting: Setting) -> None:
    async with open_composition(setting.compose(BASE)) as running:
        old = running.world
        await running.change_to(setting.compose(BASE, "world: {config: {image: alpine}}"))
        await running.context.settle()
        new = running.world
        assert new.world_id != old.world_id
        assert setting.tool.events == [f"start {old.world_id}", "end", f"start {new.world_id}"]
        with pytest.raises(WorldClosed):
            await old.fs.read_text("/etc/passwd")
        assert not new.closed


async def test_a_world_that_cannot_be_opened_changes_nothing(setting: Setting) -> None:
    """The new one is open and proven before the old one goes."""
    async with open_composition(setting.compose(BASE), on_error=lambda _: None) as running:
        old = running.world
        other = setting.compose(BASE, "world: {use: local}\npolicy: {mode: read-only}")
        with pytest.raises(ExecworldError) as caught:
            await running.change_to(other)
        assert caught.value.code == "SANDBOX_UNAVAILABLE"
        assert running.world is old
        assert not old.closed
        assert len(setting.tool.events) == 1


async def test_rows_come_go_and_change_together_or_not_at_all(setting: Setting) -> None:
    @plugin()
    def broken(ctx: Context) -> None:
        raise ZeroDivisionError

    setting.plugins["broken"] = broken
    async with open_composition(setting.compose(BASE), on_error=lambda _: None) as running:
        with pytest.raises(ZeroDivisionError):
            await running.change_to(setting.compose(BASE, "second: {use: tool}\nz: {use: broken}\ntool: ~"))
        assert set(running.fibers) == {"world", "keep_one_world", "refuse_downgrade", "hold_floor", "tool"}
        await running.change_to(setting.compose(BASE, "second: {use: tool}\ntool: {disabled: yes}"))
        assert running.fibers["second"].state is FiberState.ACTIVE
        assert "tool" not in running.fibers


async def test_a_consumer_never_starts_on_two_worlds(setting: Setting) -> None:
    """Also where each provider by itself is right: in a realm that takes one part from here and one from there."""

    @plugin()
    def mixed(ctx: Context) -> None:
        ctx.isolate(FS, label="other").plugin(setting.tool.plugin())

    @plugin()
    def whole(ctx: Context) -> None:
        ctx.isolate(FS, SUBPROCESS, label="other").plugin(setting.tool.plugin())

    setting.plugins = {"mixed": mixed, "whole": whole}
    base = "world: {use: box}\n" + GUARDS + "other: {use: shadow_all}\n"
    async with open_composition(setting.compose(base, "use: {use: whole}")):
        assert len(setting.tool.events) == 1
    with pytest.raises(WorldMismatch, match=r"plugin `tool` mixes worlds"):
        async with open_composition(setting.compose(base, "use: {use: mixed}"), on_error=lambda _: None):
            raise AssertionError
    assert len(setting.tool.events) == 2


async def test_a_provider_of_one_part_of_another_world_is_refused(setting: Setting) -> None:
    with pytest.raises(WorldMismatch, match=r"plugin `host_files` mixes worlds"):
        async with open_composition(setting.compose(BASE, "s: {use: shadow}"), on_error=lambda _: None):
            raise AssertionError
    async with open_composition(setting.compose(BASE, "s: {use: shadow}\nkeep_one_world: ~")):
        pass


async def test_a_row_that_has_failed_before_does_not_prevent_a_change(setting: Setting) -> None:
    broken = True

    @plugin(inject=(WORLD,))
    def moody(ctx: Context) -> None:
        if broken and ctx.world is not first:
            raise ZeroDivisionError

    setting.plugins["moody"] = moody
    base = BASE + "moody: {use: moody}\n"
    composition = setting.compose(base)
    first = None
    broken = False
    async with open_composition(composition, on_error=lambda _: None) as running:
        first, broken = running.world, True
        await running.open_world_again()
        assert await fails(running.fibers["moody"])
        await running.change_to(setting.compose(base, "second: {use: tool}"))
        assert running.fibers["second"].state is FiberState.ACTIVE
        await running.change_to(setting.compose(base, "second: {use: tool}\nmoody: ~"))
        assert "moody" not in running.fibers


async def fails(fiber: Fiber) -> bool:
    try:
        await fiber
    except ZeroDivisionError:
        return True
    return False


async def test_what_a_world_leaves_behind_is_raised_on_leaving(setting: Setting) -> None:
    setting.engine.leaves = "a container"
    with pytest.raises(CleanupIncomplete):
        async with open_composition(setting.compose(BASE)):
            pass
    with pytest.raises(ZeroDivisionError) as caught:
        async with open_composition(setting.compose(BASE)):
            raise ZeroDivisionError
    assert "[CLEANUP_INCOMPLETE] not proven gone" in caught.value.__notes__
    reported: list[ErrorReport] = []

    async def open_twice() -> None:
        async with open_composition(setting.compose(BASE), on_error=reported.append) as running:
            await running.open_world_again()
            assert [type(each.error) for each in reported] == [CleanupIncomplete]

    with pytest.raises(CleanupIncomplete):
        await open_twice()


async def test_what_a_reference_stands_for_counts_as_a_change(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    @plugin()
    def leveled(ctx: Context, config: Options) -> None:
        seen.append(config.level)

    setting.plugins["leveled"] = leveled
    text = BASE + "a: {use: leveled, config: {level: !env LEVEL}}\n"
    monkeypatch.setenv("LEVEL", "low")
    async with open_composition(setting.compose(text)) as running:
        assert not await running.change_to(setting.compose(text))
        monkeypatch.setenv("LEVEL", "high")
        assert await running.change_to(setting.compose(text))
    assert seen == ["low", "high"]


async def test_a_world_that_was_lost_is_opened_again(setting: Setting) -> None:
    """Not by itself: what was under way when it was lost is for whoever asked for it to judge."""
    async with open_composition(setting.compose(BASE), on_error=lambda _: None) as running:
        lost = running.world
        await setting.engine.links[0].cut()
        with pytest.raises(WorldLost):
            await lost.subprocess.run(["/bin/true"])
        await running.open_world_again()
        await running.context.settle()
        assert setting.tool.events[-1] == f"start {running.world.world_id}"
        assert (await running.world.subprocess.run(["/bin/true"])).exit_code == 0
        with pytest.raises(WorldError):
            await lost.subprocess.run(["/bin/true"])


async def test_who_is_cancelled_while_the_old_world_closes_has_the_new_one(setting: Setting) -> None:
    """What was taken over is not taken back, and what runs is known."""
    change = anyio.CancelScope()

    @plugin(inject=(WORLD,))
    def impatient(ctx: Context) -> None:
        if len(setting.engine.opened) == 2:
            change.cancel()

    setting.plugins["impatient"] = impatient
    base = BASE + "impatient: {use: impatient}\n"
    other = setting.compose(base, "world: {config: {image: alpine}}\nsecond: {use: tool}")
    async with open_composition(setting.compose(base)) as running:
        setting.engine.gate = anyio.Event()
        with change:
            await running.change_to(other)
        assert change.cancelled_caught
        setting.engine.gate.set()
        await running.context.settle()
        assert running.composition is other
        assert running.fibers["second"].state is FiberState.ACTIVE
        assert running.world is setting.engine.opened[1]
        await running.open_world_again()
        assert running.world is setting.engine.opened[2]
