"""From a composition to what runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from execworld.assembly.running import RunningComposition
from execworld.config import Composition, hold_floor
from execworld.kernel import ErrorReport, OnError, open_kernel
from execworld.kernel.reporting import log_error
from execworld.seams import CleanupIncomplete, OnProgress


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
        CleanupIncomplete: on leaving, something could not be proven gone.
    """
    hold_floor(composition)
    leaving = False
    not_gone: list[CleanupIncomplete] = []

    def hear(report: ErrorReport) -> None:
        if leaving and isinstance(report.error, CleanupIncomplete):
            not_gone.append(report.error)
        else:
            on_error(report)

    try:
        async with open_kernel(on_error=hear) as root:
            try:
                running = RunningComposition(root, composition, on_progress=on_progress)
                await running.start()
                yield running
            finally:
                leaving = True
    except BaseException as error:
        for each in not_gone:
            error.add_note(f"[{each.code}] {each.message}")  # must not hide what came first
        raise
    if not_gone:
        raise not_gone[0]
