"""The tools of a composition that runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from execworld.assembly.running import RunningComposition
from execworld.tools.approval import APPROVAL
from execworld.tools.pipeline import PIPELINE
from execworld.tools.session import ToolSession
from execworld.tools.standard.catalog import standard_tools
from execworld.tools.toolset import Approve, AskingBy, Toolset


@asynccontextmanager
async def open_tools(
    running: RunningComposition, *, approve: Approve | None = None
) -> AsyncGenerator[Toolset]:
    """The tools that the rows of *running* give, with a session; all standard tools if there is no such row.

    Every call runs in the world that the composition has then: another world row moves all of them.

    Args:
        running: The composition; it must outlive what is opened here.
        approve: Asks a person, where no row does; without it whatever would have to be asked is denied.
    """
    root = running.context
    added = [] if root.find(PIPELINE) is not None else [root.plugin(standard_tools)]
    asking = None
    if approve is not None and root.find(APPROVAL) is None:
        asking = root.provide(APPROVAL, AskingBy(approve))
    try:
        await root.settle()
        async with ToolSession(running.world.facts.cwd) as session:
            yield Toolset(root, session)
    finally:
        with anyio.CancelScope(shield=True):
            if asking is not None:
                await asking.dispose()
            for fiber in added:
                await fiber.dispose()
