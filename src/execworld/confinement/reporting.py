"""The report: what is enforced, by what, and why not, once the cell has answered."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

from execworld.confinement.canaries import Canary
from execworld.confinement.compiler import CompiledCell, compile_cell, with_limits_held
from execworld.confinement.dimensions import OPTIONAL_PROBES, Claim, claim
from execworld.confinement.obstacle import Obstacle, reason_of_error
from execworld.confinement.place import CellDirectories, Place
from execworld.machine.cell import CellReport, LimitMethod, ProbeKind, ProbeResult
from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState
from execworld.seams.errors import SandboxReason, SandboxUnavailable
from execworld.seams.policy import NetworkMode, NetworkPolicy, ResourceLimits, SandboxMode, SandboxPolicy

EXHAUSTED: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOBUFS})
"""What a busy moment answers, which says nothing of what a place can do."""

_METHODS: Final = {
    LimitMethod.CGROUP_V2: "cgroup v2",
    LimitMethod.CGROUP_V1: "cgroup v1",
    LimitMethod.NONE: "control group",
}


def report(compiled: CompiledCell, cell: CellReport) -> Enforcement:
    """What holds in the cell.

    Raises:
        SandboxUnavailable: see `proven`.
    """
    return enforcement_of(compiled, proven(compiled, cell))


def enforcement_of(compiled: CompiledCell, claims: Mapping[Dimension, Claim]) -> Enforcement:
    required = compiled.policy.required()
    return Enforcement(
        {
            dimension: DimensionEnforcement(
                asked=True, required=dimension in required, state=made.state, by=made.by, why_not=made.why_not
            )
            for dimension, made in claims.items()
        }
    )


def proven(compiled: CompiledCell, cell: CellReport) -> Mapping[Dimension, Claim]:
    """The claims, as far as the cell proved them.

    Raises:
        SandboxUnavailable: a probe contradicts the plan. Nothing may run in the cell.
    """
    if len(cell.probes) != len(compiled.canaries):
        raise SandboxUnavailable(
            f"{len(compiled.canaries)} probes were asked for and {len(cell.probes)} answered",
            reason=SandboxReason.CANNOT_VERIFY,
            missing=_required(compiled),
        )
    outcomes = tuple(zip(compiled.canaries, cell.probes, strict=True))
    for canary, result in outcomes:
        _refuse_contradiction(compiled, canary, result)
    return {
        dimension: _verified(made, [item for item in outcomes if item[0].dimension is dimension])
        for dimension, made in _after_limits(compiled, cell).items()
    }


@lru_cache(maxsize=16)
def enforceable(place: Place) -> Mapping[Dimension, tuple[EnforcementState, str]]:
    """What the place could enforce of each dimension as far as its facts tell: state, and by what or why not."""
    limits = ResourceLimits(processes=1, memory_bytes=1, cpu_s=1, file_size_bytes=1, wall_s=1, output_bytes=1)
    policy = SandboxPolicy(
        SandboxMode.WORKSPACE_WRITE,
        "/workspace",
        hidden=("/hidden",),
        network=NetworkPolicy(NetworkMode.NONE),
        limits=limits,
    )
    directories = CellDirectories(b"/temp", b"/cache", b"/scratch")
    claims = compile_cell(policy, place, directories, {}).claims
    return {dimension: (made.state, made.by or made.why_not) for dimension, made in claims.items()}


def _after_limits(compiled: CompiledCell, cell: CellReport) -> Mapping[Dimension, Claim]:
    """The claims, once it is known what holds the limits of the group."""
    situation = with_limits_held(
        compiled.situation,
        processes=cell.processes_by is not LimitMethod.NONE,
        memory=cell.memory_by is not LimitMethod.NONE,
    )
    claims = dict(compiled.claims)
    for dimension, error in (
        (Dimension.LIMIT_PROCESSES, cell.processes_error),
        (Dimension.LIMIT_MEMORY, cell.memory_error),
    ):
        if dimension not in claims:
            continue
        made = claim(
            dimension,
            situation,
            compiled.fallen,
            processes_by=_METHODS[cell.processes_by],
            memory_by=_METHODS[cell.memory_by],
        )
        if made.state is EnforcementState.ABSENT and error:
            obstacle = Obstacle(f"control group: {error_name(error)}", reason_of_error(error))
            made = Claim(made.state, "", obstacle, None)
        claims[dimension] = made
    return claims


def _refuse_contradiction(compiled: CompiledCell, canary: Canary, result: ProbeResult) -> None:
    claimed = compiled.claims[canary.dimension].state is EnforcementState.ENFORCED
    if result.unconfined or not claimed:
        return
    name = canary.probe.kind.name
    at = f" at {canary.probe.target.decode('utf-8', 'backslashreplace')}" if canary.probe.target else ""
    if canary.denied and not result.confined:
        said = f"probe {name}{at} had its effect from within"
    elif not canary.denied and result.confined:
        said = f"probe {name}{at}, which the policy grants, failed with {error_name(result.confined)}"
    else:
        return
    if result.confined in EXHAUSTED:
        raise SandboxUnavailable(
            f"{canary.dimension} could not be verified: {said}",
            reason=SandboxReason.CANNOT_VERIFY,
            missing=(str(canary.dimension),),
            hint="try again when less is running here, or raise the limits on processes, memory and open files",
        )
    raise SandboxUnavailable(
        f"{canary.dimension} was to be enforced by {compiled.claims[canary.dimension].by}, but {said}",
        reason=SandboxReason.CANARY_CONTRADICTS,
        missing=(str(canary.dimension),),
        hint="the kernel or something between does not do what it says; this is worth a report",
    )


def _verified(made: Claim, outcomes: list[tuple[Canary, ProbeResult]]) -> Claim:
    """A claim stands when a probe proved it.

    Or when its layers' own steps are proof, and there is no probe, or none that could succeed in the world itself. One
    that fails without confinement for another reason is broken, and would fail in the cell whatever the layers do.
    """
    if made.enforcer is None or made.state is not EnforcementState.ENFORCED:
        return made
    by_step = made.enforcer.proven_by_step
    denials = [item for item in outcomes if item[0].denied and item[0].probe.kind not in OPTIONAL_PROBES]
    if not denials and not by_step:
        return _unverified(made, "there is no probe for it")
    for canary, result in denials:
        excused = _denied_to_everybody(canary, result) or (by_step and result.unconfined in _NOT_THERE)
        if result.unconfined and not excused:
            return _unverified(
                made,
                f"probe {canary.probe.kind.name} failed without confinement too, "
                f"with {error_name(result.unconfined)}",
            )
    return made


def _unverified(made: Claim, why: str) -> Claim:
    obstacle = Obstacle(f"could not be verified: {why}", SandboxReason.CANNOT_VERIFY)
    return replace(made, state=EnforcementState.PARTIAL, obstacle=obstacle)


_DENIED: Final = {
    ProbeKind.WRITE_BELOW: (errno.EACCES, errno.EPERM, errno.EROFS),  # somebody else's installation
    ProbeKind.READ: (errno.EACCES, errno.EPERM),  # what the user may not read anyway is hidden
    ProbeKind.SET_LIMIT: (
        errno.EPERM,
    ),  # by the filter that the world itself is under: it is a program of a view
}


_NOT_THERE: Final = frozenset(
    {
        *(errno.EACCES, errno.EPERM, errno.ENOSYS),
        *(errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT),
        *(errno.ENETUNREACH, errno.ENETDOWN, errno.EADDRNOTAVAIL),
    }
)
"""What a world says to a probe of something that it does not have, a loopback that is up among it, or may not do."""


def _denied_to_everybody(canary: Canary, result: ProbeResult) -> bool:
    """Whether the world may not do it either. A cell inherits all that restricts its world."""
    return result.unconfined in _DENIED.get(canary.probe.kind, ())


def _required(compiled: CompiledCell) -> tuple[str, ...]:
    return tuple(str(dimension) for dimension in compiled.claims if dimension in compiled.policy.required())


def error_name(number: int) -> str:
    if number == errno.EOPNOTSUPP:
        return "EOPNOTSUPP"  # Python knows it by the other of its two names
    return errno.errorcode.get(number) or os.strerror(number)
