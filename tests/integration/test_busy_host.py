"""What a world says stays true while the program that uses it has no time for its event loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from execworld.seams import CommandResult, World
from execworld.testing.warden_worlds import open_warden_world
from execworld.testing.worlds import open_local

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WORLDS: dict[str, Callable[[str], AbstractAsyncContextManager[World]]] = {
    "local": open_local,
    "warden": open_warden_world,
}


@pytest.mark.parametrize("kind", WORLDS)
async def test_a_duration_begins_with_the_command(kind: str, tmp_path: Path) -> None:
    """Not with the moment in which a busy host hears that it has begun."""
    results: list[CommandResult] = []
    async with WORLDS[kind](str(tmp_path)) as world:
        await world.subprocess.run(["true"])

        async def run() -> None:
            results.append(await world.subprocess.run(["sleep", "0.3"]))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            # It has been asked for, and its start has not been heard of.
            await anyio.lowlevel.checkpoint()
            await anyio.lowlevel.checkpoint()
            time.sleep(0.25)  # noqa: ASYNC251 - the host is busy
    assert results[0].duration_s >= 0.3
