"""The suite of lost worlds, for worlds that can be lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import pytest

from execworld.seams import CleanupIncomplete, OutcomeUnknown, WorldLost
from execworld.seams.testing.probes import eventually
from execworld.seams.testing.suite import BreakableWorld, BrokenWorldMaker, ContractSuite, scratch_directory


@asynccontextmanager
async def losable(maker: BrokenWorldMaker) -> AsyncGenerator[BreakableWorld]:
    """A world that is going to be lost: that its remains are out of reach is no surprise at the end."""
    failed = True
    try:
        async with maker() as broken:
            yield broken
            failed = False
    except CleanupIncomplete:
        if failed:
            raise


class LossContract(ContractSuite):
    """What is true after a world was killed or cut off."""

    async def test_W80_calls_after_a_loss_fail_by_code(self, broken_world_maker: BrokenWorldMaker) -> None:
        """Once a world is lost every new call is WORLD_LOST: it was not sent, so it did not happen."""
        async with losable(broken_world_maker) as broken:
            world = broken.world
            assert (await world.subprocess.run(["true"])).ok
            await broken.break_it()

            async def lost() -> bool:
                try:
                    await world.subprocess.run(["true"])
                except OutcomeUnknown:
                    return False
                except WorldLost:
                    return True
                pytest.fail("a lost world answered")

            await eventually(lost, "calls after a loss are not WORLD_LOST", within_s=10)
            for call in (
                lambda: world.fs.stat("/"),
                lambda: world.fs.write_text("f", "x"),
                lambda: world.shell.run("true"),
                lambda: world.fs.list_directory("/"),
            ):
                with anyio.fail_after(5), pytest.raises(WorldLost) as caught:
                    await call()
                assert caught.value.world == world.world_id

    async def test_W81_a_command_under_way_is_never_a_success(
        self, broken_world_maker: BrokenWorldMaker
    ) -> None:
        """A command that ran when its world was lost is OUTCOME_UNKNOWN or WORLD_LOST for everyone who waits, never
        a result and never 0."""
        async with losable(broken_world_maker) as broken:
            async with anyio.create_task_group() as tasks:

                async def wait() -> None:
                    with anyio.fail_after(10), pytest.raises((OutcomeUnknown, WorldLost)):
                        await broken.world.subprocess.run(["sleep", "30"])

                for _ in range(3):
                    tasks.start_soon(wait)
                await anyio.sleep(0.2)
                await broken.break_it()

    async def test_W82_streams_end_with_an_error(self, broken_world_maker: BrokenWorldMaker) -> None:
        """The reader of a terminal hears of the loss; its output does not merely end."""
        async with losable(broken_world_maker) as broken:
            with pytest.raises((OutcomeUnknown, WorldLost)):  # noqa: PT012 - whichever read meets the loss
                async with broken.world.subprocess.open_terminal(
                    ["sh", "-c", "echo ready; sleep 30"]
                ) as terminal:
                    received = b""
                    while b"ready" not in received:
                        received += await terminal.receive()
                    await broken.break_it()
                    with anyio.fail_after(10):
                        while True:
                            await terminal.receive()

    async def test_W83_closing_a_lost_world_ends(self, broken_world_maker: BrokenWorldMaker) -> None:
        """Closing a lost world returns, once or twice, within a bounded time, with no error but a coded one."""
        async with losable(broken_world_maker) as broken:
            await broken.break_it()
            with anyio.fail_after(20):
                for _ in range(2):
                    try:
                        await broken.world.aclose()
                    except CleanupIncomplete:
                        pass  # what is out of reach cannot be proven gone
            assert broken.world.closed

    async def test_W84_a_new_world_is_another_one(self, broken_world_maker: BrokenWorldMaker) -> None:
        """After a loss a world that is opened anew works."""
        async with losable(broken_world_maker) as broken:
            await broken.break_it()
        async with losable(broken_world_maker) as again, scratch_directory(again.world) as scratch:
            await again.world.fs.write_text(f"{scratch}/f", "x")
            assert (await again.world.subprocess.run(["cat", f"{scratch}/f"])).stdout.data == b"x"
