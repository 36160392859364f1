"""Provider ``local``."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from execworld.machine.local.machine import LocalMachine
from execworld.machine.owned import sweep_owned
from execworld.machine.sandbox import cannot_confine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState
from execworld.seams.errors import WorldUnavailable
from execworld.seams.identity import Boundary, WorldIdentity
from execworld.seams.policy import SandboxPolicy
from execworld.seams.provider import Leftover, OpenRequest, Probe, Provider, WorldClaims
from execworld.seams.world import World

_KILL_TREE: Final = "session and marker sweep"
_KILL_TREE_GAP: Final = (
    "a process that leaves its session, clears its environment and outlives its parent is not found"
)
_CROSSINGS: Final = ("everything: this is the host itself",)


@dataclass(frozen=True, slots=True)
class LocalConfig:
    """The local world has no options."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}


@asynccontextmanager
async def _open(request: OpenRequest[LocalConfig]) -> AsyncGenerator[World]:
    if sys.platform == "win32":
        raise WorldUnavailable(
            "the local world needs a POSIX system", op="world.open", hint="use ssh or docker"
        )
    machine = LocalMachine()
    identity = WorldIdentity("local", machine.facts.host_instance)
    if request.policy.confines:
        await machine.aclose()
        raise cannot_confine(identity, request.policy, op="world.open")
    settings = WorldSettings(
        identity=identity,
        policy=request.policy,
        enforcement=Enforcement(
            {
                Dimension.KILL_TREE: DimensionEnforcement(
                    asked=False,
                    required=False,
                    state=EnforcementState.PARTIAL,
                    by=_KILL_TREE,
                    why_not=_KILL_TREE_GAP,
                )
            }
        ),
        boundary=Boundary.NONE,
        crossings=_CROSSINGS,
        cwd=request.cwd,
        environment=request.environment,
    )
    async with open_machine_world(machine, settings) as world:
        yield world


async def _probe() -> Probe:
    if sys.platform == "win32":
        return Probe(available=False, reason="needs a POSIX system", hint="use ssh or docker")
    return Probe(
        available=True,
        boundary=Boundary.NONE,
        enforceable={Dimension.KILL_TREE: (EnforcementState.PARTIAL, f"{_KILL_TREE}; {_KILL_TREE_GAP}")},
    )


async def _clean(*, dry_run: bool) -> Sequence[Leftover]:
    """Directories for temporary files of this host, whichever kind of world made them."""
    if sys.platform == "win32":
        return ()
    machine = LocalMachine()
    try:
        return await sweep_owned(machine, dry_run=dry_run)
    finally:
        await machine.aclose()


def _claims(config: LocalConfig, policy: SandboxPolicy) -> WorldClaims:
    return WorldClaims(Boundary.NONE, images=(), hosts=())


provider: Final = Provider(
    name="local",
    summary="this host, this user, no confinement",
    config_type=LocalConfig,
    open=_open,
    probe=_probe,
    clean=_clean,
    claims=_claims,
)
