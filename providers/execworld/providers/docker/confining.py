"""What holds for the programs of a container: what they are kept from, and by what a policy is enforced."""

from __future__ import annotations

from typing import Final

from execworld.confinement.capabilities import mask
from execworld.confinement.confiner import CellConfiner
from execworld.machine.warden import WardenMachine
from execworld.machine.warden.machine import ALL_CAPABILITIES
from execworld.providers.docker.boundary import ContainerBoundary
from execworld.providers.docker.config import DockerConfig
from execworld.providers.docker.seccomp import program_filter
from execworld.providers.docker.shaping import Shape, has_own_profile, lends_setfcap
from execworld.providers.docker.surroundings import ContainerSurroundings, observe
from execworld.seams.enforcement import DimensionEnforcement, EnforcementState
from execworld.seams.identity import Boundary

_SETFCAP: Final = 31


async def restrict_programs(
    machine: WardenMachine, config: DockerConfig, shape: Shape, boundary: ContainerBoundary
) -> None:
    """Take from programs what a container that we made has for cells alone. Nothing was started in it yet.

    Raises:
        SandboxUnavailable: it could not be done.
    """
    if not has_own_profile(config, shape.architecture):
        return
    program = program_filter(machine.facts.arch, administrator=boundary.administrator)
    keeps = ALL_CAPABILITIES & ~mask(_SETFCAP) if lends_setfcap(config, shape) else ALL_CAPABILITIES
    if program or keeps != ALL_CAPABILITIES:
        await machine.restrict_programs(program, capabilities=keeps)


async def confiner_in(machine: WardenMachine, boundary: ContainerBoundary) -> CellConfiner:
    """What makes cells in a container, and knows what it enforces itself. Nothing was started in it yet."""
    return CellConfiner(machine.warden_facts, ContainerSurroundings(boundary, await observe(machine)))


def kill_tree(machine: WardenMachine, boundary: ContainerBoundary) -> DimensionEnforcement:
    """By what trees of programs without confinement end.

    A program can kill the supervisor of its own command, whose tree then goes to the warden. That is the first process
    of its process numbers, which the kernel lets nobody in there kill, and with which all of them end.
    """
    is_first = machine.warden_facts.pid == 1 and boundary.own_processes
    holds = boundary.boundary in (Boundary.CONTAINER, Boundary.VIRTUAL_MACHINE)
    if is_first and holds:
        return DimensionEnforcement(
            asked=False,
            required=False,
            state=EnforcementState.ENFORCED,
            by="pid namespace and sweep of the warden",
        )
    return DimensionEnforcement(
        asked=False,
        required=False,
        state=EnforcementState.PARTIAL,
        by=str(machine.facts.kill_method),
        why_not="the container is no boundary: with its rights a program can do anything to the warden"
        if is_first
        else "a program without confinement can kill the warden and the supervisor of its own command",
    )
