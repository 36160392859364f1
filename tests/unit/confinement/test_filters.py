"""Filters are proven call by call and argument by argument, on both architectures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from execworld.confinement import CellDirectories, CompiledCell, Layer, Obstacle, Place, compile_cell
from execworld.confinement.seccomp import Rule, any_bit, assemble, different, equal, not_null
from execworld.confinement.syscalls import ARCHITECTURES
from execworld.machine.cell import Filter
from execworld.seams.enforcement import Dimension
from execworld.seams.policy import NetworkMode, NetworkPolicy, SandboxMode, SandboxPolicy

RunFilter = Callable[..., int]
ARCHES = sorted(ARCHITECTURES)
EPERM, EACCES, ENOSYS = 1, 13, 38
UNIX, INET, INET6, NETLINK, PACKET, ALG, VSOCK, MPTCP = 1, 2, 10, 16, 17, 38, 40, 262
STREAM, DGRAM, RAW, SEQPACKET, CLOEXEC = 1, 2, 3, 5, 0o2000000
READ, WRITE, OPENAT, EXECVE, FUTEX = "read", "write", "openat", "execve", "futex"
DAILY = {
    "x86_64": (0, 1, 257, 59, 202, 9, 56, 57, 61, 231),
    "aarch64": (63, 64, 56, 221, 98, 222, 220, 94, 260, 24),
}


class Cell:
    """Both filters of a compiled cell, as a program meets them."""

    def __init__(self, compiled: CompiledCell, run: RunFilter) -> None:
        self.arch = compiled.place.arch
        self._run = run
        self._cell = [step.program for step in compiled.plan.steps if isinstance(step, Filter)]
        self._program = compiled.plan.lock.program

    def number(self, name: str) -> int:
        return ARCHITECTURES[self.arch].numbers[name]

    def by_cell(self, name: str, *arguments: int) -> int:
        return next(
            filter(None, (self._run(p, self.arch, self.number(name), *arguments) for p in self._cell)), 0
        )

    def by_program(self, name: str, *arguments: int) -> int:
        return self.by_number(self.number(name), *arguments)

    def by_number(self, number: int, *arguments: int) -> int:
        programs = [*self._cell, self._program]
        return next(filter(None, (self._run(p, self.arch, number, *arguments) for p in programs)), 0)


MakeCell = Callable[..., Cell]


@pytest.fixture(params=ARCHES)
def cell(
    request: pytest.FixtureRequest, run_filter: RunFilter, place: Place, directories: CellDirectories
) -> MakeCell:
    def make(
        network: NetworkPolicy | None = None,
        *,
        mode: SandboxMode = SandboxMode.WORKSPACE_WRITE,
        without: tuple[Layer, ...] = (),
        abi: int = 7,
        unix_required: bool = True,
    ) -> Cell:
        policy = SandboxPolicy(
            mode,
            "/home/user/project",
            network=network or NetworkPolicy(),
            require_dimensions={Dimension.IPC_UNIX: unix_required},
        )
        here = replace(place, arch=request.param, landlock_abi=abi)
        return Cell(
            compile_cell(policy, here, directories, dict.fromkeys(without, Obstacle("left out"))), run_filter
        )

    return make


NONE = NetworkPolicy(NetworkMode.NONE)
PORTS = NetworkPolicy(NetworkMode.PORTS, (443,))


@pytest.mark.parametrize("arch", ARCHES)
def test_another_architecture_is_killed(run_filter: RunFilter, arch: str) -> None:
    """Its numbers mean something else, so no rule could be right for it."""
    program = assemble([], arch)
    for other in {"x86_64", "aarch64", "i386"} - {arch}:
        assert run_filter(program, other, 0) == -1
    assert run_filter(program, arch, 0) == 0


def test_the_second_interface_of_x86_does_not_exist(run_filter: RunFilter) -> None:
    program = assemble([Rule("mount", EPERM)], "x86_64")
    assert run_filter(program, "x86_64", 0x40000000 | 165) == ENOSYS
    assert run_filter(program, "x86_64", 0x40000000) == ENOSYS
    assert run_filter(program, "x86_64", 165) == EPERM


@pytest.mark.parametrize("arch", ARCHES)
def test_a_rule_denies_when_all_its_tests_hold(run_filter: RunFilter, arch: str) -> None:
    rules = [Rule("socket", EACCES, (equal(0, 2), different(1, 1, 0xF), any_bit(2, 6)))]
    program = assemble(rules, arch)
    number = ARCHITECTURES[arch].numbers["socket"]
    cases = {
        (2, 2, 2): EACCES,
        (2, 0xF2, 4): EACCES,
        (3, 2, 2): 0,
        (2, 1, 2): 0,
        (2, 0xF1, 2): 0,
        (2, 2, 1): 0,
        (2 | 1 << 32, 2, 2): EACCES,  # the kernel takes an int of it
    }
    found = {arguments: run_filter(program, arch, number, *arguments) for arguments in cases}
    assert found == cases
    assert run_filter(program, arch, number + 1, 2, 2, 2) == 0


@pytest.mark.parametrize("arch", ARCHES)
def test_a_pointer_is_looked_at_whole(run_filter: RunFilter, arch: str) -> None:
    program = assemble([Rule("prlimit64", EPERM, (different(0, 0), not_null(2)))], arch)
    number = ARCHITECTURES[arch].numbers["prlimit64"]
    assert run_filter(program, arch, number, 7, 0, 0) == 0
    assert run_filter(program, arch, number, 7, 0, 1) == EPERM
    assert run_filter(program, arch, number, 7, 0, 1 << 32) == EPERM
    assert run_filter(program, arch, number, 0, 0, 1 << 32) == 0


@pytest.mark.parametrize("arch", ARCHES)
def test_a_rule_that_does_not_match_leaves_the_next_ones_their_turn(run_filter: RunFilter, arch: str) -> None:
    rules = [
        Rule("socket", EACCES, (equal(0, 1),)),
        Rule("socket", EPERM, (equal(0, 2),)),
        Rule("mount", ENOSYS),
    ]
    program = assemble(rules, arch)
    numbers = ARCHITECTURES[arch].numbers
    assert run_filter(program, arch, numbers["socket"], 1) == EACCES
    assert run_filter(program, arch, numbers["socket"], 2) == EPERM
    assert run_filter(program, arch, numbers["socket"], 3) == 0
    assert run_filter(program, arch, numbers["mount"], 1) == ENOSYS


def test_daily_work_is_allowed(cell: MakeCell) -> None:
    """Reading, writing, opening, executing, waiting, threads."""
    for network in (None, NONE, PORTS):
        made = cell(network)
        assert [number for number in DAILY[made.arch] if made.by_number(number)] == []


def test_every_name_in_the_rules_has_a_number_on_each_architecture(cell: MakeCell) -> None:
    """A rule without a number would be no rule."""
    for without in ((), (Layer.INNER_LANDLOCK,), (Layer.NETWORK_NAMESPACE,)):
        assert cell(NONE, without=without).by_program("mount") == EPERM


@pytest.mark.parametrize("name", ["mount", "umount2", "move_mount", "open_by_handle_at", "bpf", "keyctl"])
def test_what_no_program_needs_is_denied_to_programs_alone(cell: MakeCell, name: str) -> None:
    made = cell()
    assert made.by_program(name) == EPERM
    assert made.by_cell(name) == 0


def test_new_user_namespaces_are_denied_however_asked(cell: MakeCell) -> None:
    made = cell()
    assert made.by_program("unshare", 0x10000000) == EPERM
    assert made.by_program("unshare", 0x10020000) == EPERM
    assert made.by_program("unshare", 0x400) == 0
    assert made.by_program("clone", 0x10000011) == EPERM
    assert made.by_program("clone", 17) == 0
    assert made.by_program("clone3") == ENOSYS
    assert made.by_cell("clone3") == 0  # the cell clones into control groups


def test_tracing_is_denied_only_where_nothing_else_keeps_programs_from_the_cell(cell: MakeCell) -> None:
    for name in ("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"):
        assert cell().by_program(name) == 0
        assert cell(without=(Layer.INNER_LANDLOCK,)).by_program(name) == EPERM


def test_limits_and_terminal_input_of_others_cannot_be_set(cell: MakeCell) -> None:
    made = cell()
    assert made.by_program("prlimit64", 4242, 0, 0xFFFF_0000_0000) == EPERM
    assert made.by_program("prlimit64", 4242, 0, 0) == 0
    assert made.by_program("prlimit64", 0, 0, 1) == 0
    assert made.by_program("ioctl", 0, 0x5412) == EPERM
    assert made.by_program("ioctl", 0, 0x541C) == EPERM
    assert made.by_program("ioctl", 0, 0x5413) == 0


def test_unix_sockets_are_refused_where_nothing_finer_governs_them(cell: MakeCell) -> None:
    made = cell()
    for ask in (made.by_program, made.by_cell):
        assert ask("socket", UNIX, STREAM, 0) == EACCES
        assert ask("socket", UNIX | 1 << 32, DGRAM, 0) == EACCES
        assert ask("socketpair", UNIX, STREAM | CLOEXEC, 0) == 0
        assert ask("socketpair", UNIX, SEQPACKET, 0) == 0
        assert ask("socket", INET, STREAM, 0) == 0


@pytest.mark.parametrize("kind", [DGRAM, DGRAM | CLOEXEC, RAW])
def test_a_pair_that_can_be_connected_again_is_refused(cell: MakeCell, kind: int) -> None:
    """A datagram socket of a pair can be sent from to any address; RAW is another name for it."""
    assert cell().by_program("socketpair", UNIX, kind, 0) == EACCES
    assert cell().by_cell("socketpair", UNIX, kind, 0) == EACCES


def test_unix_sockets_are_left_alone_where_landlock_governs_them_or_nobody_requires_it(
    cell: MakeCell,
) -> None:
    for made in (cell(abi=9), cell(unix_required=False)):
        assert made.by_program("socket", UNIX, STREAM, 0) == 0
        assert made.by_program("socketpair", UNIX, DGRAM, 0) == 0


def test_a_ring_is_denied_wherever_sockets_are_governed(cell: MakeCell) -> None:
    for network in (NONE, PORTS):
        made = cell(network, abi=9)
        for name in ("io_uring_setup", "io_uring_enter", "io_uring_register"):
            assert made.by_cell(name) == EPERM
            assert made.by_program(name) == EPERM


def test_without_a_network_namespace_no_family_reaches_a_network(cell: MakeCell) -> None:
    made = cell(NONE, without=(Layer.NETWORK_NAMESPACE,), abi=9)
    for ask in (made.by_program, made.by_cell):
        assert ask("socket", UNIX, STREAM, 0) == 0
        for family in range(2, 50):
            assert ask("socket", family, STREAM, 0) == EACCES


def test_in_a_network_of_its_own_the_families_that_it_does_not_contain_are_denied(cell: MakeCell) -> None:
    made = cell(NONE, abi=9)
    allowed = {family for family in range(50) if made.by_program("socket", family, STREAM, 0) == 0}
    assert allowed == {UNIX, INET, INET6, NETLINK}
    assert made.by_program("socket", NETLINK, RAW, 0) == 0
    assert made.by_program("socket", NETLINK, RAW, 9) == EACCES
    assert made.by_program("socket", VSOCK, STREAM, 0) == EACCES


def test_with_ports_only_tcp_proper_passes(cell: MakeCell) -> None:
    made = cell(PORTS, abi=9)
    for ask in (made.by_program, made.by_cell):
        for family in (INET, INET6):
            assert ask("socket", family, STREAM | CLOEXEC, 0) == 0
            assert ask("socket", family, STREAM, 6) == 0
            for kind, protocol in (
                (STREAM, MPTCP),
                (STREAM, 132),
                (DGRAM, 0),
                (DGRAM, 17),
                (RAW, 1),
                (SEQPACKET, 132),
            ):
                assert ask("socket", family, kind, protocol) == EACCES
        for family in (PACKET, ALG, VSOCK, 43):
            assert ask("socket", family, STREAM, 0) == EACCES
        assert ask("sendto", 3, 0, 0, 0x20004000) == EACCES
        assert ask("sendto", 3, 0, 0, 0x4000) == 0
        assert ask("sendmsg", 3, 0, 0x20000000) == EACCES
        assert ask("sendmmsg", 3, 0, 1, 0x20000000) == EACCES
        assert ask("setsockopt", 3, 6, 30) == EACCES
        assert ask("setsockopt", 3, 6, 31) == EACCES
        assert ask("setsockopt", 3, 6, 1) == 0
        assert ask("setsockopt", 3, 1, 30) == 0
        assert ask("listen", 3, 1) == EACCES


def test_full_access_keeps_its_system_calls(cell: MakeCell) -> None:
    """Only what was asked for is taken."""
    made = cell(PORTS, mode=SandboxMode.FULL_ACCESS)
    for name in ("ptrace", "mount", "unshare", "clone3", "keyctl"):
        assert made.by_program(name, 0x10000000) == 0
    assert made.by_program("socket", UNIX, STREAM, 0) == 0
    assert made.by_program("socket", INET, DGRAM, 0) == EACCES
