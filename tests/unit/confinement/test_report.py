"""The report: a claim needs its proof, and a probe that contradicts refuses everything."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest

from execworld.confinement import (
    CellDirectories,
    CompiledCell,
    Layer,
    Obstacle,
    Place,
    compile_cell,
    enforceable,
    report,
)
from execworld.confinement.canaries import Canary
from execworld.confinement.dimensions import OPTIONAL_PROBES, TABLE
from execworld.machine.cell import CellReport, LimitMethod, ProbeKind, ProbeResult
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.errors import SandboxReason, SandboxUnavailable
from execworld.seams.policy import NetworkMode, NetworkPolicy, ResourceLimits, SandboxMode, SandboxPolicy

POLICY = SandboxPolicy(
    SandboxMode.WORKSPACE_WRITE,
    "/home/user/project",
    hidden=("/home/user/.ssh",),
    network=NetworkPolicy(NetworkMode.NONE),
)
Answer = Callable[[Canary], ProbeResult]


def as_claimed(canary: Canary) -> ProbeResult:
    return ProbeResult(0, errno.EACCES if canary.denied else 0)


def answered(compiled: CompiledCell, answer: Answer = as_claimed, **more: object) -> CellReport:
    cell = CellReport(
        7, LimitMethod.CGROUP_V2, LimitMethod.CGROUP_V2, 0, 0, tuple(map(answer, compiled.canaries))
    )
    return replace(cell, **more)  # type: ignore[arg-type]  # tests pass what fits


@pytest.fixture
def compiled(place: Place, directories: CellDirectories) -> CompiledCell:
    return compile_cell(POLICY, place, directories, {})


def test_every_dimension_has_a_row_and_every_probe_a_dimension() -> None:
    assert set(TABLE) == set(Dimension)
    assert {kind for row in TABLE.values() for kind in (*row.denied, *row.allowed)} == set(ProbeKind)


def test_what_is_proven_is_reported_as_enforced(compiled: CompiledCell) -> None:
    enforcement = report(compiled, answered(compiled))
    assert {dimension for dimension, _ in enforcement} == POLICY.asked()
    assert {entry.state for _, entry in enforcement} == {EnforcementState.ENFORCED}
    assert all(entry.by and not entry.why_not for _, entry in enforcement)
    assert enforcement.entries[Dimension.FS_WRITE].by == "read-only mounts and landlock abi 7"
    assert not enforcement.entries[Dimension.FS_METADATA].required


def test_each_denial_that_does_not_hold_refuses(compiled: CompiledCell) -> None:
    """Whichever probe has its effect from within, nothing runs."""
    for broken in compiled.canaries:
        if not broken.denied:
            continue

        def answer(canary: Canary, broken: Canary = broken) -> ProbeResult:
            return ProbeResult(0, 0) if canary == broken else as_claimed(canary)

        with pytest.raises(SandboxUnavailable) as caught:
            report(compiled, answered(compiled, answer))
        assert caught.value.reason is SandboxReason.CANARY_CONTRADICTS
        assert caught.value.missing == (str(broken.dimension),)
        assert broken.probe.kind.name in caught.value.message


def test_each_grant_that_does_not_hold_refuses(compiled: CompiledCell) -> None:
    grants = [canary for canary in compiled.canaries if not canary.denied]
    assert {canary.dimension for canary in grants} == {
        *(Dimension.FS_WRITE, Dimension.FS_READ, Dimension.NET_TCP, Dimension.NET_UDP),
        *(Dimension.IPC_SIGNAL, Dimension.IPC_TRACE, Dimension.IPC_UNIX),
    }
    for broken in grants:

        def answer(canary: Canary, broken: Canary = broken) -> ProbeResult:
            return ProbeResult(0, errno.EROFS) if canary == broken else as_claimed(canary)

        with pytest.raises(SandboxUnavailable, match="EROFS") as caught:
            report(compiled, answered(compiled, answer))
        assert caught.value.reason is SandboxReason.CANARY_CONTRADICTS


def test_a_probe_that_fails_without_confinement_proves_nothing(compiled: CompiledCell) -> None:
    """Whatever the steps of the layers are: a probe that is broken looks like one that is denied."""
    enforcement = report(compiled, answered(compiled, lambda _: ProbeResult(errno.ENOSPC, errno.ENOSPC)))
    states = {dimension: entry.state for dimension, entry in enforcement}
    partial = {dimension for dimension, state in states.items() if state is EnforcementState.PARTIAL}
    assert partial == {dimension for dimension in states if TABLE[dimension].denied}
    assert {Dimension.NET_TCP, Dimension.IPC_UNIX, Dimension.IPC_SIGNAL, Dimension.FS_WRITE} <= partial
    for dimension in partial:
        entry = enforcement.entries[dimension]
        assert entry.why_not.startswith("could not be verified: probe ")
        assert entry.why_not.endswith("ENOSPC")
    assert set(enforcement.missing()) == partial & POLICY.required()


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (errno.EACCES, EnforcementState.ENFORCED),
        (errno.EAFNOSUPPORT, EnforcementState.ENFORCED),
        (errno.ENETUNREACH, EnforcementState.ENFORCED),
        (errno.ECONNREFUSED, EnforcementState.PARTIAL),
        (errno.ENOMSG, EnforcementState.PARTIAL),
    ],
)
def test_a_world_that_has_no_network_itself_can_have_views_without_one(
    compiled: CompiledCell, error: int, state: EnforcementState
) -> None:
    """The steps are proof then. A listener that nobody reaches is something else: the probe is broken."""

    def answer(canary: Canary) -> ProbeResult:
        network = canary.dimension in (Dimension.NET_TCP, Dimension.NET_UDP, Dimension.NET_OTHER)
        return ProbeResult(error, error) if network else as_claimed(canary)

    enforcement = report(compiled, answered(compiled, answer))
    assert {enforcement.state(Dimension.NET_TCP), enforcement.state(Dimension.NET_UDP)} == {state}


def test_a_control_that_a_busy_moment_fails_is_no_contradiction(compiled: CompiledCell) -> None:
    def answer(canary: Canary) -> ProbeResult:
        return (
            ProbeResult(0, errno.EAGAIN) if canary.probe.kind is ProbeKind.OWN_SIGNAL else as_claimed(canary)
        )

    with pytest.raises(SandboxUnavailable, match="EAGAIN") as caught:
        report(compiled, answered(compiled, answer))
    assert caught.value.reason is SandboxReason.CANNOT_VERIFY


def test_controls_are_tried_where_the_policy_allows_them(place: Place, directories: CellDirectories) -> None:
    def controls(policy: SandboxPolicy, here: Place) -> set[tuple[ProbeKind, bytes]]:
        chosen = compile_cell(policy, here, directories, {}).canaries
        return {(c.probe.kind, c.probe.target) for c in chosen if c.probe.kind >= ProbeKind.OWN_TCP}

    always = {(ProbeKind.OWN_SIGNAL, b""), (ProbeKind.OWN_TRACE, b""), (ProbeKind.OWN_PAIR, b"")}
    network = {(ProbeKind.OWN_TCP, b""), (ProbeKind.OWN_UDP, b"")}
    assert controls(POLICY, place) == always | network
    assert controls(POLICY, replace(place, namespaces=0)) == always
    ports = replace(POLICY, network=NetworkPolicy(NetworkMode.PORTS, (80, 443)))
    assert controls(ports, place) == always | {
        (ProbeKind.GRANTED_PORT, b"80"),
        (ProbeKind.GRANTED_PORT, b"443"),
    }
    unix = replace(POLICY, require_dimensions={Dimension.IPC_UNIX: False})
    assert controls(unix, replace(place, landlock_abi=9)) == always | network | {(ProbeKind.OWN_UNIX, b"")}


def test_one_probe_of_several_that_proves_nothing_is_enough_to_doubt(compiled: CompiledCell) -> None:
    def answer(canary: Canary) -> ProbeResult:
        return (
            ProbeResult(errno.EIO, errno.EIO)
            if canary.probe.kind is ProbeKind.TRUNCATE
            else as_claimed(canary)
        )

    enforcement = report(compiled, answered(compiled, answer))
    assert enforcement.state(Dimension.FS_WRITE) is EnforcementState.PARTIAL


@pytest.mark.parametrize(
    ("error", "state"), [(errno.EPERM, EnforcementState.ENFORCED), (errno.EIO, EnforcementState.PARTIAL)]
)
def test_what_the_world_may_not_do_its_cells_may_not_do(
    place: Place, directories: CellDirectories, error: int, state: EnforcementState
) -> None:
    """A world opened within a view is under a filter already, which every cell of it inherits."""
    nested = compile_cell(POLICY, replace(place, namespaces=0), directories, {})

    def answer(canary: Canary) -> ProbeResult:
        limit = canary.probe.kind is ProbeKind.SET_LIMIT
        return ProbeResult(error, error) if limit else as_claimed(canary)

    assert report(nested, answered(nested, answer)).state(Dimension.IPC_SIGNAL) is state


def test_what_the_kernel_does_not_have_needs_no_proof(place: Place, directories: CellDirectories) -> None:
    ports = replace(POLICY, network=NetworkPolicy(NetworkMode.PORTS, (443,)))
    compiled = compile_cell(ports, place, directories, {})

    def answer(canary: Canary) -> ProbeResult:
        missing = canary.probe.kind in OPTIONAL_PROBES
        return ProbeResult(errno.EPROTONOSUPPORT, errno.EACCES) if missing else as_claimed(canary)

    assert report(compiled, answered(compiled, answer)).missing() == ()


def test_what_the_user_may_not_read_anyway_is_hidden(compiled: CompiledCell) -> None:
    def answer(canary: Canary) -> ProbeResult:
        reads = canary.probe.kind is ProbeKind.READ and canary.denied
        return ProbeResult(errno.EACCES, errno.ENOENT) if reads else as_claimed(canary)

    assert report(compiled, answered(compiled, answer)).missing() == ()


def test_a_dimension_that_is_not_claimed_may_be_open(place: Place, directories: CellDirectories) -> None:
    without = {Layer.USER_NAMESPACE: Obstacle("EPERM", SandboxReason.BLOCKED)}
    policy = replace(POLICY, hidden=(), require_dimensions={Dimension.IPC_UNIX: False})
    compiled = compile_cell(policy, place, directories, without)
    assert Dimension.FS_METADATA not in {canary.dimension for canary in compiled.canaries}
    enforcement = report(compiled, answered(compiled))
    entry = enforcement.entries[Dimension.FS_METADATA]
    assert (entry.state, entry.by) == (EnforcementState.ABSENT, "")
    assert "EPERM" in entry.why_not


def test_hidden_sockets_are_reported_as_partial(place: Place, directories: CellDirectories) -> None:
    policy = replace(POLICY, require_dimensions={Dimension.IPC_UNIX: False})
    compiled = compile_cell(policy, place, directories, {})
    open_sockets = answered(compiled, lambda canary: as_claimed(canary))
    entry = report(compiled, open_sockets).entries[Dimension.IPC_UNIX]
    assert entry.state is EnforcementState.PARTIAL
    assert "sockets elsewhere" in entry.why_not


def test_an_answer_of_the_wrong_length_is_none(compiled: CompiledCell) -> None:
    for probes in ((), (ProbeResult(0, 1),) * (len(compiled.canaries) + 1)):
        with pytest.raises(SandboxUnavailable) as caught:
            report(compiled, answered(compiled, probes=probes))
        assert caught.value.reason is SandboxReason.CANNOT_VERIFY


def test_limits_are_claimed_by_what_holds_them(place: Place, directories: CellDirectories) -> None:
    limits = ResourceLimits(processes=9, memory_bytes=1 << 30, cpu_s=1, wall_s=2, output_bytes=3)
    compiled = compile_cell(replace(POLICY, limits=limits), place, directories, {})
    enforcement = report(compiled, answered(compiled, processes_by=LimitMethod.CGROUP_V1))
    assert enforcement.entries[Dimension.LIMIT_PROCESSES].by == "cgroup v1"
    assert enforcement.entries[Dimension.LIMIT_MEMORY].by == "cgroup v2"
    assert enforcement.entries[Dimension.LIMIT_WALL].by == "the host"
    failed = answered(
        compiled,
        processes_by=LimitMethod.NONE,
        processes_error=errno.EACCES,
        memory_by=LimitMethod.NONE,
        memory_error=errno.EBUSY,
    )
    enforcement = report(compiled, failed)
    assert enforcement.entries[Dimension.LIMIT_PROCESSES].by == "rlimit in a user namespace"
    assert enforcement.missing() == (Dimension.LIMIT_MEMORY,)
    assert "EBUSY" in enforcement.entries[Dimension.LIMIT_MEMORY].why_not


def test_a_place_says_what_it_could_enforce(place: Place) -> None:
    able = enforceable(place)
    assert set(able) == set(Dimension)
    assert {state for state, _ in able.values()} == {EnforcementState.ENFORCED}
    bare = enforceable(replace(place, uid=0, landlock_abi=0, namespaces=0, cgroup=0))
    assert bare[Dimension.FS_WRITE][0] is EnforcementState.ABSENT
    assert all(text for _, text in bare.values())
