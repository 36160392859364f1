"""Make a cell for a policy: try, take out the layer that failed, try again, and refuse what cannot be had."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Final, Generic, Protocol, TypeVar

import anyio

from execworld.confinement.compiler import CompiledCell, compile_cell, missing
from execworld.confinement.dimensions import Claim
from execworld.confinement.layers import Layer
from execworld.confinement.mount_table import (
    hide_everywhere,
    installed_everywhere,
    process_tables,
    read_mounts,
)
from execworld.confinement.obstacle import Obstacle, common_reason, reason_of_error
from execworld.confinement.paths import surveyed
from execworld.confinement.place import CellDirectories, PathKind, Place
from execworld.confinement.reporting import EXHAUSTED, enforcement_of, error_name, proven
from execworld.confinement.surroundings import NOTHING_GIVEN, GivenDimensions, add_up, enforced
from execworld.confinement.survey import BatchRunner, survey
from execworld.machine.cell import (
    AttachTree,
    CellFailed,
    CellPlan,
    CellReport,
    CellStage,
    CellsUnsupported,
    CloneTree,
    NewFileSystem,
    Pin,
    Unshare,
)
from execworld.seams.enforcement import Dimension, Enforcement
from execworld.seams.errors import SandboxReason, SandboxUnavailable
from execworld.seams.policy import SandboxPolicy
from execworld.seams.results import TreeReport
from execworld.seams.values import record

_MOST_ATTEMPTS: Final = 2 * len(Layer) + 8
_START_HINT: Final = "the warden starts cells from /proc/self/exe: is /proc mounted in the world?"
_DROP_TIMEOUT_S: Final = 15.0


class CellMaker(BatchRunner, Protocol):
    """What is needed of a machine."""

    async def make_cell(self, plan: CellPlan) -> CellReport: ...

    async def drop_cell(self, handle: int) -> TreeReport: ...


MakerT = TypeVar("MakerT", bound=CellMaker)
MakerT_contra = TypeVar("MakerT_contra", bound=CellMaker, contravariant=True)
MachineT = TypeVar("MachineT")
MachineT_co = TypeVar("MachineT_co", covariant=True)


class CellOpener(Protocol[MakerT_contra, MachineT_co]):
    """Opens the machine that a cell is; it closes it and drops the cell."""

    def __call__(
        self, machine: MakerT_contra, report: CellReport, /
    ) -> AbstractAsyncContextManager[MachineT_co]: ...


@record
class ConfinedCell(Generic[MachineT]):
    """Attributes:
    machine: Everything that is asked of it happens under the policy.
    environment: What programs are to find set, over what they would inherit.
    compiled: For those who want to explain it.
    """

    machine: MachineT
    enforcement: Enforcement
    environment: Mapping[str, str]
    compiled: CompiledCell


@asynccontextmanager
async def open_cell(
    machine: MakerT,
    policy: SandboxPolicy,
    place: Place,
    directories: CellDirectories,
    known: dict[Layer, Obstacle],
    *,
    opener: CellOpener[MakerT, MachineT],
    given: GivenDimensions = NOTHING_GIVEN,
) -> AsyncGenerator[ConfinedCell[MachineT]]:
    """A cell in which *policy*, whose paths are resolved, is enforced and proven.

    Args:
        known: Layers that cannot be had in this place, and why; what is learned is added, so that the next view need
            not try again.
        opener: Opens the machine over the handle of the report.
        given: What surrounds the place enforces of this policy, proven there.

    Raises:
        SandboxUnavailable: a required dimension cannot be enforced, or a probe contradicts. Nothing was left.
        ConfigurationError: the policy contradicts itself.
    """
    compiled, made = await _made(machine, policy, place, directories, known, enforced(given))
    try:
        claims = proven(compiled, made)
        _refuse_missing(compiled, claims, enforced(given))
    except BaseException:
        with anyio.CancelScope(shield=True), anyio.move_on_after(_DROP_TIMEOUT_S):
            await machine.drop_cell(made.handle)
        raise
    async with opener(machine, made) as inner:
        enforcement = add_up(enforcement_of(compiled, claims), given)
        yield ConfinedCell(inner, enforcement, compiled.environment, compiled)


async def _made(
    machine: CellMaker,
    policy: SandboxPolicy,
    place: Place,
    directories: CellDirectories,
    known: dict[Layer, Obstacle],
    given: frozenset[Dimension],
) -> tuple[CompiledCell, CellReport]:
    mounts = await read_mounts(machine)
    policy = await hide_everywhere(machine, policy, mounts)
    place = replace(place, installation=await installed_everywhere(machine, place.installation, mounts))
    kinds = {
        **await process_tables(machine, mounts),
        **await survey(machine, surveyed(policy, directories, place.installation)),
    }
    without = dict(known)
    for _ in range(_MOST_ATTEMPTS):
        compiled = compile_cell(policy, place, directories, without, kinds)
        _refuse_missing(compiled, compiled.claims, given)
        try:
            return compiled, await machine.make_cell(compiled.plan)
        except CellsUnsupported as error:
            raise SandboxUnavailable(
                "this world cannot make cells, so it cannot enforce any policy",
                reason=SandboxReason.WORLD_CANNOT_CONFINE,
                missing=_names(compiled),
            ) from error
        except CellFailed as failure:
            gone = _gone(compiled, failure)
            if gone is not None:
                kinds[gone] = PathKind.MISSING
                continue
            _refuse_exhausted(compiled, failure)
            layer = _blamed(compiled, failure)
            without[layer] = known[layer] = _obstacle(compiled, failure)
    raise SandboxUnavailable(
        "no set of layers could be set up, and each attempt failed in another way",
        reason=SandboxReason.SETUP_FAILED,
        missing=tuple(str(dimension) for dimension in policy.asked() if dimension in policy.required()),
    )


def _gone(compiled: CompiledCell, failure: CellFailed) -> bytes | None:
    """A path that the plan takes along where it is there, and is not."""
    step = _step(compiled, failure)
    if not isinstance(step, Pin) or step.path in compiled.situation.paths.given:
        return None
    return step.path if failure.error in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR) else None


def _refuse_exhausted(compiled: CompiledCell, failure: CellFailed) -> None:
    """A busy moment says nothing of what a place can do, so it must cost no layer, now or later."""
    if failure.stage in (CellStage.STEP, CellStage.LOCK) and failure.error in EXHAUSTED:
        raise SandboxUnavailable(
            f"a cell could not be set up for want of resources: {_obstacle(compiled, failure)}",
            reason=SandboxReason.SETUP_FAILED,
            missing=_names(compiled),
            hint="try again when less is running here, or raise the limits on processes, memory and open files",
        ) from failure


def _blamed(compiled: CompiledCell, failure: CellFailed) -> Layer:
    """The layer to go on without."""
    if failure.stage is CellStage.LOCK:
        if Layer.INNER_LANDLOCK in compiled.situation.layers:
            return Layer.INNER_LANDLOCK
    elif failure.stage is CellStage.STEP:
        step = _step(compiled, failure)
        if isinstance(step, Pin) and step.path in compiled.situation.paths.given:
            name = step.path.decode("utf-8", "backslashreplace")
            raise SandboxUnavailable(
                f"{name} cannot be pinned for the policy: {error_name(failure.error)}",
                reason=SandboxReason.ROOT_UNUSABLE,
                missing=_names(compiled),
                hint="every path of a policy must exist in the world when the view is made",
            ) from failure
        layer = compiled.layer_of_step[failure.step] if failure.step < len(compiled.layer_of_step) else None
        if layer is not None:
            return layer
    elif failure.stage is CellStage.TARGETS:
        raise SandboxUnavailable(
            f"the targets of the probes could not be made: {error_name(failure.error)}",
            reason=SandboxReason.CANNOT_VERIFY,
            missing=_names(compiled),
            hint="the world needs a directory that it may write and the policy does not cover",
        ) from failure
    raise SandboxUnavailable(
        f"a cell could not be set up: {failure.stage.name}, {error_name(failure.error)}",
        reason=SandboxReason.SETUP_FAILED,
        missing=_names(compiled),
        hint=_START_HINT if failure.stage is CellStage.START and failure.error == errno.ENOENT else "",
    ) from failure


def _step(compiled: CompiledCell, failure: CellFailed) -> object:
    steps = compiled.plan.steps
    return steps[failure.step] if failure.stage is CellStage.STEP and failure.step < len(steps) else None


def _obstacle(compiled: CompiledCell, failure: CellFailed) -> Obstacle:
    step = _step(compiled, failure)
    return Obstacle(
        f"{error_name(failure.error)} at {_named(compiled, step)}", reason_of_error(failure.error)
    )


def _named(compiled: CompiledCell, step: object) -> str:
    if step is None:
        return "the lock of programs"
    name = type(step).__name__
    path: bytes | None = None
    if isinstance(step, Pin):
        path = step.path
    elif isinstance(step, AttachTree | NewFileSystem | CloneTree):
        path = [pin.path for pin in compiled.plan.steps if isinstance(pin, Pin)][step.pin]
    elif isinstance(step, Unshare):
        return f"{name} {step.namespaces.name}"
    return name if path is None else f"{name} {path.decode('utf-8', 'backslashreplace')}"


def _refuse_missing(
    compiled: CompiledCell, claims: Mapping[Dimension, Claim], given: frozenset[Dimension]
) -> None:
    lacking = tuple(dimension for dimension in missing(compiled.policy, claims) if dimension not in given)
    if not lacking:
        return
    lines = "; ".join(f"{dimension} ({claims[dimension].why_not})" for dimension in lacking)
    obstacles = [obstacle for dimension in lacking if (obstacle := claims[dimension].obstacle) is not None]
    names = tuple(map(str, lacking))
    raise SandboxUnavailable(
        f"the policy requires what nothing enforces here: {lines}",
        reason=common_reason(obstacles) or SandboxReason.MISSING_DIMENSION,
        missing=names,
        hint="open another world, or accept less by name: require_dimensions "
        + ", ".join(f"{name}: no" for name in names),
    )


def _names(compiled: CompiledCell) -> tuple[str, ...]:
    required = compiled.policy.required()
    return tuple(str(dimension) for dimension in compiled.claims if dimension in required)
