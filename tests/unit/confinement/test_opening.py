"""The loop: a failed step costs its layer, a lost dimension refuses, and nothing is left behind."""

from __future__ import annotations

import errno
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from execworld.confinement import CellDirectories, ConfinedCell, Layer, Obstacle, Place, open_cell
from execworld.confinement.dimensions import TABLE
from execworld.confinement.obstacle import common_reason, joined, reason_of_error
from execworld.confinement.reporting import error_name
from execworld.confinement.surroundings import Given
from execworld.machine.batch import Batch, BatchFailed, Results, StepError
from execworld.machine.cell import (
    CellFailed,
    CellPlan,
    CellReport,
    CellStage,
    CellStep,
    CellsUnsupported,
    LimitMethod,
    NewFileSystem,
    PidNamespace,
    Pin,
    Probe,
    ProbeKind,
    ProbeResult,
    Restrict,
    Unshare,
)
from execworld.machine.operations import Open, Stat
from execworld.machine.values import FileStat, KindMask
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.errors import SandboxReason, SandboxUnavailable
from execworld.seams.policy import NetworkMode, NetworkPolicy, ResourceLimits, SandboxMode, SandboxPolicy
from execworld.seams.results import KillMethod, TreeReport

pytestmark = pytest.mark.anyio
POLICY = SandboxPolicy(
    SandboxMode.WORKSPACE_WRITE, "/home/user/project", network=NetworkPolicy(NetworkMode.NONE)
)
FILES = {b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty", b"/dev/ptmx"}
MISSING = {b"/opt", b"/lib32", b"/libx32", b"/tmp/.X11-unix"}
Fails = Callable[[CellStep], int]


@dataclass
class ScriptedMachine:
    """Makes cells on paper: each step fails as the table says, and probes do what the plan hopes for."""

    fails: Fails = lambda step: 0
    stage: CellStage | None = None
    lock_fails: Callable[[CellPlan], int] = lambda plan: 0
    result: Callable[[Probe], ProbeResult] | None = None
    supported: bool = True
    plans: list[CellPlan] = field(default_factory=list[CellPlan])
    dropped: list[int] = field(default_factory=list[int])
    batches: int = 0

    async def run(self, batch: Batch) -> Results:
        self.batches += 1
        if isinstance(batch.steps[0].operation, Open):
            assert batch.steps[0].operation.path == b"/proc/self/mountinfo"
            raise BatchFailed(0, StepError(errno.ENOENT), Results([]))
        return Results([self._stat(step.operation) for step in batch.steps])

    def _stat(self, operation: object) -> FileStat | StepError:
        assert isinstance(operation, Stat)
        assert not operation.follow
        if operation.path in MISSING:
            return StepError(errno.ENOENT)
        device = operation.path in FILES
        kind = KindMask.CHARACTER_DEVICE if device else KindMask.DIRECTORY
        return FileStat(kind, 0o755, 0, 0, 1, 0, 0, 0, 0, 0, 0)

    async def make_cell(self, plan: CellPlan) -> CellReport:
        self.plans.append(plan)
        if not self.supported:
            raise CellsUnsupported
        if self.stage is not None:
            raise CellFailed(self.stage, 0, errno.ETIMEDOUT)
        for number, step in enumerate(plan.steps):
            if error := self.fails(step):
                raise CellFailed(CellStage.STEP, number, error)
        if error := self.lock_fails(plan):
            raise CellFailed(CellStage.LOCK, 0, error)
        return CellReport(
            len(self.plans), LimitMethod.NONE, LimitMethod.NONE, errno.EROFS, errno.EROFS, self._probes(plan)
        )

    def _probes(self, plan: CellPlan) -> tuple[ProbeResult, ...]:
        if self.result is not None:
            return tuple(map(self.result, plan.probes))
        granted = (ProbeKind.WRITE_BELOW, ProbeKind.READ)
        return tuple(
            ProbeResult(0, 0 if probe.kind in granted or probe.kind >= ProbeKind.OWN_TCP else errno.EPERM)
            for probe in plan.probes
        )

    async def drop_cell(self, handle: int) -> TreeReport:
        self.dropped.append(handle)
        return TreeReport(True, KillMethod.SUBREAPER)


@asynccontextmanager
async def opener(machine: ScriptedMachine, report: CellReport) -> AsyncGenerator[int]:
    try:
        yield report.handle
    finally:
        await machine.drop_cell(report.handle)


@pytest.fixture
def known() -> dict[Layer, Obstacle]:
    return {}


def refuses_namespaces(step: CellStep) -> int:
    return errno.EPERM if isinstance(step, Unshare) else 0


async def opened(
    machine: ScriptedMachine,
    place: Place,
    directories: CellDirectories,
    known: dict[Layer, Obstacle],
    policy: SandboxPolicy = POLICY,
) -> ConfinedCell[int]:
    async with open_cell(machine, policy, place, directories, known, opener=opener) as cell:
        assert machine.dropped == []
    assert machine.dropped == [cell.machine]
    return cell


async def refused(
    machine: ScriptedMachine,
    place: Place,
    directories: CellDirectories,
    known: dict[Layer, Obstacle],
    policy: SandboxPolicy = POLICY,
) -> SandboxUnavailable:
    with pytest.raises(SandboxUnavailable) as caught:
        async with open_cell(machine, policy, place, directories, known, opener=opener):
            raise AssertionError("opened")
    return caught.value


async def test_a_place_that_has_everything_needs_two_looks_and_one_attempt(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    machine = ScriptedMachine()
    cell = await opened(machine, place, directories, known)
    assert (machine.batches, len(machine.plans), known) == (2, 1, {})
    assert cell.enforcement.unenforced() == ()
    assert cell.environment["TMPDIR"] == "/tmp/execworld-temp"


async def test_a_failed_step_costs_its_layer_and_the_next_view_knows(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    """As in a container: proc cannot be mounted, so the numbers of the world stay."""
    machine = ScriptedMachine(
        fails=lambda step: errno.EPERM if isinstance(step, NewFileSystem) and step.kind == b"proc" else 0
    )
    cell = await opened(machine, place, directories, known)
    assert known == {Layer.PID_NAMESPACE: Obstacle("EPERM at NewFileSystem /proc", SandboxReason.BLOCKED)}
    assert cell.enforcement.entries[Dimension.IPC_SIGNAL].by == "landlock abi 7 scopes and seccomp"
    assert cell.enforcement.unenforced() == (Dimension.PROC_VISIBILITY,)
    assert len(machine.plans) == 2
    machine.dropped.clear()
    await opened(machine, place, directories, known)
    assert len(machine.plans) == 3


LIMITED = replace(POLICY, limits=ResourceLimits(memory_bytes=1 << 20))


async def test_what_surrounds_the_place_holds_where_no_layer_can(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    place = replace(place, cgroup=0)
    machine = ScriptedMachine()
    error = await refused(machine, place, directories, known, LIMITED)
    assert error.missing == ("limit.memory",)
    given = {Dimension.LIMIT_MEMORY: Given(EnforcementState.ENFORCED, "container")}
    async with open_cell(machine, LIMITED, place, directories, known, opener=opener, given=given) as cell:
        entry = cell.enforcement.entries[Dimension.LIMIT_MEMORY]
    assert (entry.state, entry.by, entry.required) == (EnforcementState.ENFORCED, "container", True)


async def test_what_surrounds_the_place_in_part_satisfies_nothing(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    place = replace(place, cgroup=0)
    given = {Dimension.LIMIT_MEMORY: Given(EnforcementState.PARTIAL, "container", "could not be verified")}
    with pytest.raises(SandboxUnavailable, match=r"limit\.memory"):
        async with open_cell(
            ScriptedMachine(), LIMITED, place, directories, known, opener=opener, given=given
        ):
            raise AssertionError("opened")


async def test_without_namespaces_landlock_and_filters_do(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    for uid in (0, 1000):
        machine, learned = ScriptedMachine(fails=refuses_namespaces), dict(known)
        cell = await opened(machine, replace(place, uid=uid), directories, learned)
        entries = cell.enforcement.entries
        assert entries[Dimension.FS_WRITE].by == "landlock abi 7"
        assert entries[Dimension.NET_TCP].by == "seccomp"
        assert entries[Dimension.FS_METADATA].state is EnforcementState.ABSENT
        assert set(learned) - {Layer.PLAIN_NAMESPACES} == {Layer.USER_NAMESPACE}


async def test_a_required_dimension_that_is_lost_refuses(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    policy = replace(POLICY, hidden=("/home/user/.ssh",))
    machine = ScriptedMachine(fails=refuses_namespaces)
    error = await refused(machine, place, directories, known, policy)
    assert error.missing == ("fs.read",)
    assert error.reason is SandboxReason.BLOCKED
    assert "EPERM" in error.message
    assert "require_dimensions fs.read: no" in error.hint


@pytest.mark.parametrize("name", ["EPERM", "refused it", "ENOSYS", "EOPNOTSUPP", "could not be verified"])
async def test_no_name_of_a_path_decides_what_a_refusal_is(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle], name: str
) -> None:
    """Texts hold paths, and whoever makes a path can call it whatever an error is called."""
    policy = replace(POLICY, hidden=(f"/home/user/{name}",))
    machine = ScriptedMachine(fails=lambda step: errno.ENODEV if isinstance(step, NewFileSystem) else 0)
    error = await refused(machine, place, directories, known, policy)
    assert (error.missing, error.reason) == (("fs.read",), SandboxReason.MISSING_DIMENSION)
    assert f"ENODEV at NewFileSystem /home/user/{name}" in error.message


async def test_what_can_never_be_had_is_refused_before_anything_is_tried(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    machine = ScriptedMachine()
    bare = replace(place, landlock_abi=0, namespaces=0)
    error = await refused(machine, bare, directories, known)
    assert machine.plans == []
    assert "fs.write" in error.missing
    assert error.reason is not SandboxReason.SETUP_FAILED


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (errno.ENOSYS, SandboxReason.KERNEL_LACKS_FEATURE),
        (errno.EOPNOTSUPP, SandboxReason.FEATURE_DISABLED),
        (errno.EPERM, SandboxReason.BLOCKED),
    ],
)
async def test_why_there_is_no_landlock_is_told(
    place: Place,
    directories: CellDirectories,
    known: dict[Layer, Obstacle],
    error: int,
    reason: SandboxReason,
) -> None:
    """An old kernel, one that was started without it, and a filter of a container call for different things."""
    machine = ScriptedMachine()
    bare = replace(place, landlock_abi=0, landlock_error=error)
    refusal = await refused(machine, bare, directories, known, replace(POLICY, read_roots=("/srv",)))
    assert refusal.reason is reason
    assert error_name(error) in refusal.message


async def test_a_path_of_the_policy_that_cannot_be_pinned_is_named(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    policy = replace(POLICY, hidden=("/home/user/.ssh",))
    for path in (b"/home/user/project", b"/home/user/.ssh"):
        machine = ScriptedMachine(
            fails=lambda step, path=path: errno.ELOOP if isinstance(step, Pin) and step.path == path else 0  # type: ignore[misc]  # binds the loop's value
        )
        error = await refused(machine, place, directories, known, policy)
        assert error.reason is SandboxReason.ROOT_UNUSABLE
        assert path.decode() in error.message
        assert known == {}


async def test_a_path_that_is_only_taken_along_may_be_missing(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    machine = ScriptedMachine(
        fails=lambda step: errno.ENOENT if isinstance(step, Pin) and step.path == b"/dev/full" else 0
    )
    cell = await opened(machine, place, directories, known)
    assert (known, cell.enforcement.unenforced()) == ({}, ())


async def test_a_lock_that_fails_costs_the_inner_layer_where_that_is_enough(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    machine = ScriptedMachine(lock_fails=lambda plan: errno.E2BIG if plan.lock.ruleset else 0)
    cell = await opened(machine, place, directories, known)
    assert known == {Layer.INNER_LANDLOCK: Obstacle("E2BIG at the lock of programs")}
    assert cell.enforcement.unenforced() == ()
    always = ScriptedMachine(lock_fails=lambda plan: errno.EINVAL)
    assert (await refused(always, place, directories, {})).reason is SandboxReason.SETUP_FAILED
    needed = ScriptedMachine(
        fails=refuses_namespaces, lock_fails=lambda plan: errno.E2BIG if plan.lock.ruleset else 0
    )
    assert (await refused(needed, place, directories, {})).missing == ("ipc.signal", "kill.tree")


async def test_a_cell_that_contradicts_is_dropped(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    machine = ScriptedMachine(result=lambda probe: ProbeResult(0, 0))
    error = await refused(machine, place, directories, known)
    assert error.reason is SandboxReason.CANARY_CONTRADICTS
    assert machine.dropped == [1]


async def test_a_cell_whose_limits_nothing_holds_is_dropped(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    machine = ScriptedMachine()
    policy = replace(POLICY, limits=ResourceLimits(memory_bytes=1 << 30))
    error = await refused(machine, place, directories, known, policy)
    assert error.missing == ("limit.memory",)
    assert "EROFS" in error.message
    assert machine.dropped == [1]


async def test_a_cell_of_which_nothing_can_be_proven_is_dropped(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    machine = ScriptedMachine(result=lambda probe: ProbeResult(errno.EIO, errno.EIO))
    error = await refused(machine, place, directories, known)
    assert error.reason is SandboxReason.CANNOT_VERIFY
    proven = {str(d) for d in POLICY.required() if TABLE[d].denied}
    assert set(error.missing) == proven >= {"fs.write", "ipc.signal", "ipc.trace", "ipc.unix"}
    assert machine.dropped == [1]


@pytest.mark.parametrize(
    ("stage", "reason"),
    [(CellStage.START, SandboxReason.SETUP_FAILED), (CellStage.TARGETS, SandboxReason.CANNOT_VERIFY)],
)
async def test_other_failures_refuse_at_once(
    place: Place,
    directories: CellDirectories,
    known: dict[Layer, Obstacle],
    stage: CellStage,
    reason: SandboxReason,
) -> None:
    machine = ScriptedMachine(stage=stage)
    error = await refused(machine, place, directories, known)
    assert error.reason is reason
    assert "ETIMEDOUT" in error.message
    assert len(machine.plans) == 1


def test_what_can_be_changed_is_told_first_and_nothing_is_made_up() -> None:
    """One reason for several obstacles: the foremost that is known; one that all share; else none."""
    blocked = Obstacle("a", reason_of_error(errno.EACCES))
    lacks = Obstacle("b", reason_of_error(errno.ENOSYS))
    unverified = Obstacle("c", SandboxReason.CANNOT_VERIFY)
    other = Obstacle("EPERM", reason_of_error(errno.ENODEV))
    assert common_reason([lacks, blocked, other]) is SandboxReason.BLOCKED
    assert common_reason([unverified, lacks]) is SandboxReason.KERNEL_LACKS_FEATURE
    assert common_reason([unverified, unverified]) is SandboxReason.CANNOT_VERIFY
    assert common_reason([unverified, other]) is None
    assert common_reason([other]) is None
    assert joined(lacks, blocked, lacks) == Obstacle("b; a", SandboxReason.BLOCKED)


async def test_a_machine_without_cells_cannot_confine(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    error = await refused(ScriptedMachine(supported=False), place, directories, known)
    assert error.reason is SandboxReason.WORLD_CANNOT_CONFINE


async def test_whatever_step_fails_the_loop_ends(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> None:
    """Any one kind of step, for ever: a cell without it, or a refusal; never a claim of what it was for."""
    first = ScriptedMachine()
    await opened(first, place, directories, known)
    for kind in {type(step) for step in first.plans[0].steps}:
        machine = ScriptedMachine(fails=lambda step, kind=kind: errno.EPERM if isinstance(step, kind) else 0)  # type: ignore[misc]  # binds the loop's value
        learned: dict[Layer, Obstacle] = {}
        claims = await claims_of(machine, place, directories, learned)
        if claims:
            assert learned
            assert not any(isinstance(step, kind) for step in machine.plans[-1].steps)
            assert kind is not Restrict or not any("landlock" in by for by in claims)
        assert len(machine.dropped) <= 1


async def claims_of(
    machine: ScriptedMachine, place: Place, directories: CellDirectories, known: dict[Layer, Obstacle]
) -> list[str]:
    """By what dimensions are enforced; nothing when the policy was refused."""
    try:
        async with open_cell(machine, POLICY, place, directories, known, opener=opener) as cell:
            return [entry.by for _, entry in cell.enforcement]
    except SandboxUnavailable:
        return []


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE])
async def test_a_busy_moment_costs_no_layer(
    place: Place, directories: CellDirectories, known: dict[Layer, Obstacle], error: int
) -> None:
    machine = ScriptedMachine(fails=lambda step: error if isinstance(step, PidNamespace) else 0)
    refusal = await refused(machine, place, directories, known)
    assert (refusal.reason, known, len(machine.plans)) == (SandboxReason.SETUP_FAILED, {}, 1)
    assert errno.errorcode[error] in refusal.message
