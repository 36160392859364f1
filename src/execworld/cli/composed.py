"""Worlds that are opened by a composition."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from execworld.assembly import RunningComposition, open_composition
from execworld.cli.compositions import CompositionChoice
from execworld.cli.messages import note, say
from execworld.config import load
from execworld.kernel import ErrorReport, FiberDescription
from execworld.seams import OnProgress, World


@asynccontextmanager
async def open_composed(
    choice: CompositionChoice,
    on_progress: OnProgress | None,
    *,
    quiet: bool,
    on_running: Callable[[RunningComposition], None] = lambda _: None,
) -> AsyncGenerator[World]:
    """Start all rows; gives the world. Says which rows wait, and for what."""
    async with open_composition(
        load(choice.wanted()), on_progress=on_progress, on_error=report_of_plugin
    ) as running:
        if not quiet:
            for each in running.waiting:
                note(f"row `{each.name}` is PENDING: {why_pending(each)}")
        on_running(running)
        yield running.world


def report_of_plugin(report: ErrorReport) -> None:
    """Say what went wrong in a plugin. An error of its start is told by whoever waits for it."""
    if report.during != "starting":
        say(f"execworld: plugin {report.plugin}, {report.during}: {report.error}")


def why_pending(description: FiberDescription) -> str:
    return "; ".join(f"`{each.service}`: {each.reason}" for each in description.missing)
