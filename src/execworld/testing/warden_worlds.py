"""Worlds over a warden that is a child of this process, and links that are worse than that."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio

from execworld.machine.base import Machine
from execworld.machine.warden import (
    LinkEnd,
    LinkSettings,
    LocalWardenTransport,
    Transport,
    locate_warden,
    open_warden_machine,
    start_local_warden,
)
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState
from execworld.seams.identity import Boundary, WorldIdentity
from execworld.seams.policy import SandboxPolicy
from execworld.seams.testing import BreakableWorld
from execworld.seams.world import World
from execworld.testing.splitting import AWKWARD
from execworld.world import leaf_errors

WARDEN_KIND: Final = "warden"


class SplitTransport(Transport):
    """Cuts everything into pieces, in both directions, and lets the event loop turn between them.

    Not a `DirectTransport`, so that the way of an ordinary stream is taken too.

    Args:
        piece_bytes: Size of the first pieces. Later ones are of awkward sizes, so that bulk gets through in time.
        first_bytes: How much of each direction comes in those first pieces.
    """

    def __init__(
        self,
        inner: Transport,
        piece_bytes: int = 1,
        delay_s: float = 0,
        first_bytes: int = 128 * 1024,
    ) -> None:
        self._inner = inner
        self._delay_s = delay_s
        self._received = memoryview(b"")
        sizes = itertools.cycle(AWKWARD)
        self._sizes = {
            way: itertools.chain(itertools.repeat(piece_bytes, first_bytes // piece_bytes), sizes)
            for way in ("in", "out")
        }

    async def receive(self, max_bytes: int) -> bytes:
        if not self._received:
            if self._delay_s:
                await anyio.sleep(self._delay_s)
            self._received = memoryview(await self._inner.receive(max_bytes))
        size = next(self._sizes["in"])
        piece, self._received = self._received[:size], self._received[size:]
        return bytes(piece)

    async def send(self, data: bytes) -> None:
        if self._delay_s:
            await anyio.sleep(self._delay_s)
        view = memoryview(data)
        while view:
            size = next(self._sizes["out"])
            await self._inner.send(bytes(view[:size]))
            view = view[size:]

    async def aclose(self) -> LinkEnd:
        return await self._inner.aclose()


@asynccontextmanager
async def open_warden_world(
    cwd: str,
    *,
    link: Callable[[LocalWardenTransport], Transport] | None = None,
    settings: LinkSettings | None = None,
    wrap: Callable[[Machine], Machine] | None = None,
    binary: Path | None = None,
) -> AsyncGenerator[World]:
    """A world over a new local warden; what leaving it raises is raised as it is, not in a group.

    Args:
        link: Puts something between the machine and the warden's transport.
        wrap: Puts something between the semantics and the machine.
        binary: The warden; by default the one that is installed.
    """
    try:
        transport = start_local_warden(binary or locate_warden())
        async with open_warden_machine(link(transport) if link else transport, settings) as machine:
            identity = WorldIdentity(WARDEN_KIND, machine.facts.host_instance)
            machine.world_id = identity.world_id
            kill_tree = DimensionEnforcement(
                asked=False,
                required=False,
                state=EnforcementState.ENFORCED,
                by=str(machine.facts.kill_method),
            )
            world_settings = WorldSettings(
                identity=identity,
                policy=SandboxPolicy.full_access(),
                enforcement=Enforcement({Dimension.KILL_TREE: kill_tree}),
                boundary=Boundary.NONE,
                cwd=cwd,
            )
            async with open_machine_world(wrap(machine) if wrap else machine, world_settings) as world:
                yield world
    except BaseExceptionGroup as group:
        leaves = leaf_errors(group)
        if len(leaves) != 1:
            raise
        raise leaves[0] from leaves[0].__cause__


@asynccontextmanager
async def open_breakable_warden_world(cwd: str) -> AsyncGenerator[BreakableWorld]:
    """A world whose warden can be killed."""
    wardens: list[int] = []

    def remember(transport: LocalWardenTransport) -> Transport:
        wardens.append(transport.pid)
        return transport

    async with open_warden_world(cwd, link=remember) as world:

        async def kill() -> None:
            os.kill(wardens[0], signal.SIGKILL)

        yield BreakableWorld(world, kill)
