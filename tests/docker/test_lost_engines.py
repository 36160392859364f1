"""What happens to the engine while a world is open, and an engine that has no room."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import pytest

from execworld.seams import CleanupIncomplete, OutcomeUnknown, WorldLost, WorldUnavailable
from execworld.world import open_world

from .engines import OwnEngine, has_process, wait_until

if TYPE_CHECKING:
    from .engines import Engine

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow, pytest.mark.anyio]

BASE = "busybox:stable"
ROOM_BYTES = 96 << 20
REASONS = (
    "the engine is gone",
    # One that is stopped in order answers for a while, and ends its containers before itself.
    "the container was stopped, killed or removed by somebody else",
    "the first process of the container ended",
    "the engine ended the stream while the container runs on",
    "the container is gone, and the engine does not remember how",
)


def kill(own: OwnEngine) -> None:
    own.kill()


def stop(own: OwnEngine) -> None:
    own.stop()


def containers(own: OwnEngine) -> str:
    return own.docker("ps", "--all", "--quiet", "--filter", f"label=io.execworld.owner.pid={os.getpid()}")


@pytest.mark.parametrize("options", [(), ("--live-restore",)], ids=["", "live-restore"])
@pytest.mark.parametrize("end", [kill, stop], ids=["killed", "stopped"])
async def test_the_end_of_the_engine_is_the_loss_of_its_worlds(
    engine: Engine, own_engine: OwnEngine, end: Callable[[OwnEngine], None], options: tuple[str, ...]
) -> None:
    """What runs has an unknown outcome, what comes later is told why, closing says what it could not prove; and once
    the engine is back, nothing of the world is."""
    own_engine.stop()
    own_engine.start(*options)
    own_engine.load(engine, BASE)
    seconds = f"{10_000_000 + int.from_bytes(os.urandom(3))}"
    seen: list[OutcomeUnknown | WorldLost] = []
    unproven: list[CleanupIncomplete] = []
    config: dict[str, Any] = {"host": own_engine.url, "network": "none"}
    try:
        with anyio.fail_after(60):
            async with open_world(f"docker://{BASE}", **config) as world:

                async def wait() -> None:
                    try:
                        await world.subprocess.run(["sleep", seconds])
                    except (OutcomeUnknown, WorldLost) as error:
                        seen.append(error)

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(wait)
                    await anyio.to_thread.run_sync(
                        wait_until, lambda: has_process(seconds), lambda: "it does not run", 10
                    )
                    await anyio.to_thread.run_sync(end, own_engine)
                with pytest.raises(WorldLost) as caught:
                    await world.subprocess.run(["true"])
                seen.append(caught.value)
    except CleanupIncomplete as error:
        unproven.append(error)
    assert [type(loss) for loss in seen] == [OutcomeUnknown, WorldLost]
    for loss in seen:
        assert any(reason in str(loss) for reason in REASONS), loss
        assert loss.hint
    assert all(incomplete.leftovers for incomplete in unproven)
    own_engine.start(*options)
    wait_until(lambda: not containers(own_engine), lambda: f"still there: {containers(own_engine)}", 60)
    assert not has_process(seconds)


async def test_an_engine_without_room_says_so(engine: Engine, own_engine: OwnEngine) -> None:
    own_engine.stop()
    own_engine.limit_disk(ROOM_BYTES)
    own_engine.start()
    own_engine.load(engine, BASE)
    config: dict[str, Any] = {"host": own_engine.url, "network": "none"}
    async with open_world(f"docker://{BASE}", **config) as world:
        assert (await world.subprocess.run(["true"])).exit_code == 0
        await world.fs.write_text("/kept", "content")
        own_engine.fill_disk()
        with pytest.raises(OSError, match="no space is left") as full:
            await world.fs.write_bytes("/kept", bytes(1 << 20))
        assert getattr(full.value, "hint", "")
        assert await world.fs.read_text("/kept") == "content"
        assert (await world.subprocess.run(["true"])).exit_code == 0
    with pytest.raises(WorldUnavailable) as refused:
        async with open_world(f"docker://{BASE}", **config):
            pass
    assert "its disk is full" in refused.value.hint
    assert containers(own_engine) == ""
