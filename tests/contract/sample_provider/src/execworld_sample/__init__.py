"""Worlds on this host behind a link that can be lost; with a flaw, if one is asked for."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from execworld.machine.base import Machine
from execworld.machine.local.machine import LocalMachine
from execworld.machine.sandbox import cannot_confine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams import Boundary, Enforcement, OpenRequest, Probe, Provider, World, WorldIdentity
from execworld.testing.forwarding import ForwardingMachine
from execworld.testing.worlds import CuttableMachine

_links: dict[str, CuttableMachine] = {}
_opened = 0


@dataclass(frozen=True, slots=True)
class SampleConfig:
    """Options.

    Attributes:
        ignore_resize: Do not resize terminals, which breaks the contract.
    """

    ignore_resize: bool = False


class _IgnoresResize(ForwardingMachine):
    async def resize(self, handle: int, rows: int, columns: int) -> None:
        pass


@asynccontextmanager
async def _open(request: OpenRequest[SampleConfig]) -> AsyncGenerator[World]:
    global _opened
    _opened += 1
    local = LocalMachine()
    identity = WorldIdentity("sample", f"{local.facts.host_instance}-{_opened}")
    if request.policy.confines:
        await local.aclose()
        raise cannot_confine(identity, request.policy, op="world.open")
    link = CuttableMachine(local, identity.world_id)
    _links[identity.world_id] = link
    settings = WorldSettings(
        identity=identity,
        policy=request.policy,
        enforcement=Enforcement(),
        boundary=Boundary.NONE,
        cwd=request.cwd,
        environment=request.environment,
    )
    machine: Machine = _IgnoresResize(link) if request.config.ignore_resize else link
    try:
        async with open_machine_world(machine, settings) as world:
            yield world
    finally:
        del _links[identity.world_id]


async def _probe() -> Probe:
    return Probe(available=True)


async def lose(world: World) -> None:
    """Cut the link to *world*."""
    await _links[world.world_id].cut()


provider = Provider(
    name="sample", summary="this host, behind a link", config_type=SampleConfig, open=_open, probe=_probe
)
