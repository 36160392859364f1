"""From a composition to what runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from execworld.assembly.running import RunningComposition
from execworld.config import Composition, hold_floor
from execworld.kernel import OnError, open_kernel
from execworld.kernel.reporting import log_error
from execworld.seams import OnProgress


@asynccontextmanager
async def open_composition(
    composition: Composition, *, on_progress: OnProgress | None = None, on_error: OnError = log_error
) -> AsyncGenerator[RunningComposition]:
    """Start everything in *composition*; leaving the context ends it, the world last.

    First the guards, then the world, which nobody sees before they have looked at it, then all other rows. A row that
    waits for a service that nobody provides is no error: `RunningComposition.waiting` has it.

    Args:
        composition: What to start; its references are read.
        on_progress: As of `execworld.world.open_world`.
        on_error: As of `execworld.kernel.open_kernel`.

    Raises:
        FloorViolated: it does not hold its floor, as told before anything is opened, or by the open world.
        SandboxUnavailable: the policy is not enforced there.
        WorldMismatch: rows provide parts of different worlds.
        Exception: the start error of a row; what had been started was ended again.
    """
    hold_floor(composition)
    async with open_kernel(on_error=on_error) as root:
        running = RunningComposition(root, composition, on_progress=on_progress)
        await running.start()
        yield running
