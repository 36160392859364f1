"""Provider ``landlock``."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from execworld.confinement.confiner import CellConfiner
from execworld.confinement.installation import Installation, own_installation
from execworld.machine.warden import WardenMachine, locate_warden, open_warden_machine, start_local_warden
from execworld.machine.warden.groups import sweep_groups
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState
from execworld.seams.errors import SandboxReason, SandboxUnavailable, WorldUnavailable
from execworld.seams.identity import Boundary, WorldIdentity
from execworld.seams.policy import NetworkMode, SandboxMode, SandboxPolicy
from execworld.seams.provider import Leftover, OpenRequest, Probe, Provider, WorldClaims
from execworld.seams.world import World

_NOT_LINUX: Final = "it needs a Linux kernel"
_ELSEWHERE: Final = "use docker or ssh; `-w local` runs here without any confinement"
_UNCONFINED: Final = ("everything: this is the host itself",)


@dataclass(frozen=True, slots=True)
class LandlockConfig:
    """Options of the landlock world."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    warden: str = field(
        default="", metadata={"help": "path of another warden than the one that is installed"}
    )


@asynccontextmanager
async def _start(path: str, obeyed: Iterable[str] = ()) -> AsyncGenerator[tuple[WardenMachine, Installation]]:
    if sys.platform != "linux":
        raise SandboxUnavailable(
            f"the landlock world cannot be opened: {_NOT_LINUX}",
            reason=SandboxReason.NOT_LINUX,
            op="world.open",
            hint=_ELSEWHERE,
        )
    if path and not Path(path).is_absolute():
        raise WorldUnavailable(f"the path of the warden is not absolute: {path}", op="world.open")
    warden = Path(path) if path else locate_warden()
    async with open_warden_machine(start_local_warden(warden)) as machine:
        yield machine, own_installation(warden, obeyed=obeyed)


@asynccontextmanager
async def _open(request: OpenRequest[LandlockConfig]) -> AsyncGenerator[World]:
    async with _start(request.config.warden, request.obeyed) as (machine, installation):
        identity = WorldIdentity("landlock", machine.facts.host_instance)
        machine.world_id = identity.world_id
        kill_tree = DimensionEnforcement(
            asked=False,
            required=False,
            state=EnforcementState.PARTIAL,
            by=str(machine.facts.kill_method),
            why_not="a program without confinement can kill the warden and the supervisor of its own command",
        )
        settings = WorldSettings(
            identity=identity,
            policy=request.policy,
            enforcement=Enforcement({Dimension.KILL_TREE: kill_tree}),
            boundary=Boundary.NONE,
            crossings=_UNCONFINED,
            confined_boundary=Boundary.KERNEL_POLICY,
            confined_crossings=crossings,
            cwd=request.cwd,
            environment=request.environment,
            confiner=CellConfiner(machine.warden_facts, installation=installation),
        )
        async with open_machine_world(machine, settings) as world:
            yield world


def crossings(policy: SandboxPolicy, enforcement: Enforcement) -> tuple[str, ...]:
    """What crosses the boundary of a view under *policy*: whatever is not proven to be held is said to cross."""

    def held(dimension: Dimension) -> bool:
        return enforcement.state(dimension) is EnforcementState.ENFORCED

    found = ["kernel: shared with the host"]
    if policy.mode is SandboxMode.FULL_ACCESS or not held(Dimension.FS_WRITE):
        found.append("files: those of the host, for writing")
    elif policy.mode is SandboxMode.WORKSPACE_WRITE:
        roots = ", ".join(filter(None, (policy.workspace, *policy.write_roots)))
        found.append(f"files: those of the host; for writing below {roots}")
    if policy.mode is SandboxMode.READ_ONLY and held(Dimension.FS_WRITE):
        found.append("files: those of the host, for reading")
    if policy.mode is not SandboxMode.FULL_ACCESS and not held(Dimension.FS_METADATA):
        found.append("metadata: mode, owner and times of whatever the user owns")
    if policy.network.mode is NetworkMode.ALL:
        found.append("network: that of the host")
    else:
        if policy.network.mode is NetworkMode.PORTS:
            ports = ", ".join(map(str, policy.network.tcp_ports))
            found.append(f"network: that of the host, TCP to port {ports}")
        kinds = (Dimension.NET_TCP, Dimension.NET_UDP, Dimension.NET_OTHER)
        found += [f"network: {kind}, which is not held" for kind in kinds if not held(kind)]
    if not held(Dimension.IPC_UNIX):
        found.append("sockets: UNIX sockets of the host")
    if not held(Dimension.IPC_SIGNAL):
        found.append("signals: to other processes of the user")
    if not held(Dimension.PROC_VISIBILITY):
        found.append("processes: those of the host can be seen")
    return tuple(found)


async def _probe() -> Probe:
    if sys.platform != "linux":
        return Probe(available=False, reason=_NOT_LINUX, hint=_ELSEWHERE)
    try:
        async with _start("") as (machine, _):
            confiner = CellConfiner(machine.warden_facts)
            described = dict(confiner.described())
            needed = SandboxPolicy.read_only().required()
    except WorldUnavailable as error:
        return Probe(available=False, reason=error.message, hint=error.hint)
    missing = [
        f"{dimension} ({described[dimension][1]})"
        for dimension in Dimension
        if dimension in needed and described[dimension][0] is not EnforcementState.ENFORCED
    ]
    return Probe(
        available=not missing,
        reason=f"nothing enforces here: {', '.join(missing)}" if missing else "",
        hint=_ELSEWHERE if missing else "",
        boundary=Boundary.KERNEL_POLICY,
        enforceable=described,
    )


def _default_policy(cwd: str | None) -> SandboxPolicy:
    return SandboxPolicy.workspace_write(os.path.abspath(cwd or os.getcwd()))


async def _clean(*, dry_run: bool) -> Sequence[Leftover]:
    """Control groups; the directories of such a world are those of this host, which `local` looks for."""
    return sweep_groups(dry_run=dry_run) if sys.platform == "linux" else ()


def _claims(config: LandlockConfig, policy: SandboxPolicy) -> WorldClaims:
    boundary = Boundary.KERNEL_POLICY if policy.confines else Boundary.NONE
    return WorldClaims(boundary, images=(), hosts=())


provider: Final = Provider(
    name="landlock",
    summary="this host, this user, confined by the kernel to a policy",
    config_type=LandlockConfig,
    open=_open,
    probe=_probe,
    default_policy=_default_policy,
    clean=_clean,
    claims=_claims,
)
