"""Plans are judged by what they make of paths, for every set of layers that may be left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from execworld.confinement import (
    CellDirectories,
    CompiledCell,
    Layer,
    Obstacle,
    PathKind,
    Place,
    compile_cell,
    explain,
    explain_as_dict,
)
from execworld.confinement.compiler import TASKS_OF_A_CELL
from execworld.confinement.installation import Installation, Installed
from execworld.confinement.paths import Kept, kept_of
from execworld.machine.cell import (
    AttachTree,
    CellPlan,
    CellStep,
    CloneTree,
    Filter,
    KeepCapabilities,
    LoopbackUp,
    MapIds,
    MountAttribute,
    NewFileSystem,
    PathRule,
    PidNamespace,
    Pin,
    Restrict,
    Ruleset,
    SetMountAttributes,
    Unshare,
)
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.errors import ConfigurationError, SandboxReason
from execworld.seams.policy import NetworkMode, NetworkPolicy, ResourceLimits, SandboxMode, SandboxPolicy

from .kernel import REFER, Kernel

PROJECT = b"/home/user/project"
NESTED = b"/home/user/project/vendor"
ELSEWHERE = b"/srv/data"
SECRETS = b"/home/user/.ssh"
DOTENV = b"/home/user/project/.env"
GRANTED = (PROJECT, NESTED, ELSEWHERE, b"/tmp/execworld-temp", b"/home/user/.cache/execworld")
OUTSIDE = (
    b"/etc/passwd",
    b"/home/user/.bashrc",
    b"/home/user/projects",
    b"/usr/bin/env",
    b"/sys/x",
    b"/proc/sys/x",
)
KINDS = {DOTENV: PathKind.OTHER, b"/bin": PathKind.LINK, b"/opt": PathKind.DIRECTORY}
VARIABLE = (
    Layer.USER_NAMESPACE,
    Layer.MOUNTS,
    Layer.PID_NAMESPACE,
    Layer.LANDLOCK,
    Layer.INNER_LANDLOCK,
)
ALONE = (Layer.IPC_NAMESPACE, Layer.TERMINALS, Layer.TERMINAL_MASTER, Layer.SECCOMP, Layer.CAPABILITIES)


def policy_of(mode: SandboxMode = SandboxMode.WORKSPACE_WRITE, **more: object) -> SandboxPolicy:
    roots = ("/home/user/project/vendor", "/srv/data") if mode is SandboxMode.WORKSPACE_WRITE else ()
    return SandboxPolicy(mode, "/home/user/project", write_roots=roots, **more)  # type: ignore[arg-type]  # tests pass what fits


POLICIES = {
    "workspace-write": policy_of(),
    "hidden": policy_of(hidden=("/home/user/.ssh", "/home/user/project/.env")),
    "read roots": policy_of(read_roots=("/srv/shared",), network=NetworkPolicy(NetworkMode.NONE)),
    "read roots and hidden": policy_of(read_roots=("/srv/shared",), hidden=("/home/user/.ssh",)),
    "read-only": policy_of(SandboxMode.READ_ONLY),
    "ports": policy_of(network=NetworkPolicy(NetworkMode.PORTS, (80, 443))),
    "sockets reported": policy_of(require_dimensions={Dimension.IPC_UNIX: False}),
}

EPERM = Obstacle("EPERM", SandboxReason.BLOCKED)


ENVIRONMENT = b"/home/user/project/tools/.venv"
SETTINGS = b"/home/user/project/pyvenv.cfg"
INSTALLATION = Installation((Installed(ENVIRONMENT, (ENVIRONMENT + b"/bin",)), Installed(SETTINGS)))
KINDS_OF_INSTALLATION = {**KINDS, SETTINGS: PathKind.OTHER}


def run(compiled: CompiledCell, plan: CellPlan | None = None) -> Kernel:
    return Kernel(files=frozenset({DOTENV, SETTINGS, b"/dev/null"})).apply(plan or compiled.plan)


def subsets() -> Iterator[dict[Layer, Obstacle]]:
    for count in range(len(VARIABLE) + 1):
        for chosen in itertools.combinations(VARIABLE, count):
            yield dict.fromkeys(chosen, EPERM)
    yield from ({layer: EPERM} for layer in ALONE)


def faults(compiled: CompiledCell, plan: CellPlan | None = None) -> list[str]:
    """What the kernel would let happen against a claim, or refuse against the policy."""
    kernel, policy = run(compiled, plan), compiled.policy
    claimed = {d for d, c in compiled.claims.items() if c.state is EnforcementState.ENFORCED}
    found: list[str] = []
    hidden = [path.encode() for path in policy.hidden]
    granted = [] if policy.mode is SandboxMode.READ_ONLY else list(GRANTED)
    if Dimension.FS_WRITE in claimed:
        found += [f"{path!r} can be written" for path in OUTSIDE if kernel.writable(path)]
        found += [f"{path!r} can be made" for path in OUTSIDE if kernel.creatable_below(path)]
        if policy.mode is SandboxMode.READ_ONLY and kernel.writable(PROJECT + b"/file"):
            found.append("the workspace can be written")
        kept = compiled.situation.paths.kept
        found += [f"{path!r} of the installation can be written" for path in kept if kernel.writable(path)]
        found += [f"a new file in {path!r}" for path in kept if kernel.creatable_below(path + b"/new")]
        anchors = {*kept, *compiled.situation.paths.installation.anchors}
        mounted = {mount.at for mount in kernel.mounts}
        found += [f"{path!r} can be renamed" for path in anchors if path not in mounted]
    found += [f"{path!r} cannot be written" for path in granted if not kernel.writable(path + b"/file")]
    found += [
        f"nothing can be made in {path!r}" for path in granted if not kernel.creatable_below(path + b"/d")
    ]
    if granted and not kernel.renames_between(PROJECT + b"/a/x", NESTED + b"/y"):
        found.append("renames between directories of the workspace fail")
    if Dimension.FS_READ in claimed:
        found += [f"{path!r} can be read" for path in hidden if kernel.readable(path)]
        found += [f"below {path!r} can be read" for path in hidden if kernel.readable(path + b"/id")]
        if policy.read_roots and kernel.readable(b"/var/lib/x"):
            found.append("what is not granted can be read")
    readable = [PROJECT + b"/main.py", b"/usr/lib/x.so", b"/opt/tool"]
    readable += [b"/srv/shared/x"] if policy.read_roots else [b"/var/lib/x"]
    found += [f"{path!r} cannot be read" for path in readable if not kernel.readable(path)]
    found += [
        f"{path!r} is no device" for path in (b"/dev/null", b"/dev/tty") if not kernel.device_works(path)
    ]
    if Layer.MOUNTS in compiled.situation.layers and kernel.device_works(b"/dev/sda"):
        found.append("other devices work")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("uid", [0, 1000])
@pytest.mark.parametrize("abi", [2, 3, 7, 9, 11])
def test_whatever_layers_are_left_a_claim_holds_and_a_grant_too(
    place: Place, directories: CellDirectories, name: str, uid: int, abi: int
) -> None:
    seen = 0
    for without in subsets():
        here = replace(place, uid=uid, landlock_abi=abi)
        compiled = compile_cell(POLICIES[name], here, directories, without, KINDS)
        assert len(compiled.layer_of_step) == len(compiled.plan.steps)
        assert not (set(without) & compiled.situation.layers)
        assert faults(compiled) == [], without
        seen += not compiled.missing()
    assert bool(seen) == (abi >= 4 or name != "ports"), "no set of layers enforces this policy"


@pytest.mark.parametrize("uid", [0, 1000])
def test_an_installation_below_a_root_is_kept_by_mounts_or_not_claimed_to_be(
    place: Place, directories: CellDirectories, uid: int
) -> None:
    here = replace(place, uid=uid, installation=INSTALLATION)
    kept = 0
    for without in subsets():
        compiled = compile_cell(POLICIES["hidden"], here, directories, without, KINDS_OF_INSTALLATION)
        assert faults(compiled) == [], without
        claim = compiled.claims[Dimension.FS_WRITE]
        if Layer.MOUNTS in compiled.situation.layers:
            kept += claim.state is EnforcementState.ENFORCED
            assert run(compiled).writable(b"/home/user/project/tools/file")
            assert explain_as_dict(compiled)["kept"] == [SETTINGS.decode(), ENVIRONMENT.decode()]
            assert f"runs it, or goes by it:\n  {SETTINGS.decode()}\n" in explain(compiled)
        else:
            assert claim.state is not EnforcementState.ENFORCED
            assert Layer.LANDLOCK not in compiled.situation.layers or ENVIRONMENT.decode() in claim.why_not
    assert kept


def test_what_of_an_installation_is_kept() -> None:
    prefix = Installed(b"/p", (b"/p/bin", b"/p/lib", b"/p/cfg"))
    site = Installed(b"/p/lib/site")
    both = Installation((prefix, site), (b"/p/bin/python", b"/w/link", b"/v"))
    assert kept_of(both, [b"/elsewhere"]) == Kept()
    assert kept_of(both, [b"/q", b"/p"]) == Kept((b"/p/bin", b"/p/cfg", b"/p/lib"))
    assert kept_of(both, [b"/p/lib/site/x"]) == Kept(exposed=(b"/p/lib",))
    assert kept_of(both, [b"/p/src"]) == Kept()
    assert kept_of(both, [b"/w"]) == Kept(exposed=(b"/w/link",))
    deep = Installation((Installed(b"/w/a/b/env"), Installed(b"/w/a/b/env/lib"), Installed(b"/w/a/x")))
    assert kept_of(deep, [b"/w"]) == Kept((b"/w/a/x", b"/w/a/b/env"), (b"/w/a", b"/w/a/b"))


def mutants(plan: CellPlan) -> Iterator[tuple[str, CellPlan]]:
    """Plans with one mistake each that somebody could make."""
    steps = list(plan.steps)
    for kind in (SetMountAttributes, AttachTree, Restrict):
        for index, step in enumerate(steps):
            if isinstance(step, kind):
                yield (
                    f"without {kind.__name__} {index}",
                    replace(plan, steps=[*steps[:index], *steps[index + 1 :]]),
                )
    for index, step in enumerate(steps):
        if isinstance(step, NewFileSystem) and step.kind == b"tmpfs" and (b"mode", b"0555") in step.options:
            yield f"without cover {index}", replace(plan, steps=[*steps[:index], *steps[index + 1 :]])
        if (
            isinstance(step, AttachTree)
            and step.attributes == MountAttribute.READ_ONLY | MountAttribute.NO_DEVICES
        ):
            writable = replace(step, attributes=MountAttribute.NO_DEVICES)
            yield f"writable cover {index}", replace(plan, steps=replaced(steps, index, writable))
        if isinstance(step, Restrict):
            rules = replace(step.ruleset, handled_fs=step.ruleset.handled_fs & ~REFER)
            yield "REFER not handled", replace(plan, steps=replaced(steps, index, Restrict(rules)))
            yield (
                "all rights on every pin",
                replace(plan, steps=replaced(steps, index, Restrict(widened(step.ruleset)))),
            )
    if plan.lock.ruleset is not None:
        narrow = replace(plan.lock.ruleset, handled_fs=1 << 11, paths=())
        yield "inner layer that forgets REFER", replace(plan, lock=replace(plan.lock, ruleset=narrow))
    early = [s for s in steps if isinstance(s, SetMountAttributes)]
    if early:
        others = [s for s in steps if not isinstance(s, SetMountAttributes)]
        first = next(i for i, s in enumerate(others) if isinstance(s, CloneTree))
        yield "read-only before the copies", replace(plan, steps=[*others[:first], *early, *others[first:]])


def replaced(steps: list[CellStep], index: int, step: CellStep) -> list[CellStep]:
    return [*steps[:index], step, *steps[index + 1 :]]


def widened(ruleset: Ruleset) -> Ruleset:
    return replace(ruleset, paths=tuple(PathRule(rule.pin, ruleset.handled_fs) for rule in ruleset.paths))


@pytest.mark.parametrize("left_out", [(), (Layer.LANDLOCK,)])
def test_a_mistake_in_the_mounts_is_found(
    place: Place, directories: CellDirectories, left_out: tuple[Layer, ...]
) -> None:
    """The judge above is worth something only if it sees what it is there for."""
    here = replace(place, installation=INSTALLATION)
    without = dict.fromkeys(left_out, Obstacle("left out"))
    compiled = compile_cell(POLICIES["hidden"], here, directories, without, KINDS_OF_INSTALLATION)
    escaped = [name for name, plan in mutants(compiled.plan) if not caught(compiled, plan)]
    # With two layers that hold the same, the loss of one is not seen in the effect. That is what two are for.
    tolerated = {"all rights on every pin"} | {n for n in escaped if n.startswith("without Restrict")}
    tolerated |= {n for n in escaped if n.startswith("without AttachTree")} & device_attachments(compiled)
    assert set(escaped) <= tolerated


def device_attachments(compiled: CompiledCell) -> set[str]:
    """Devices that the judge does not ask for by name."""
    pins = [step.path for step in compiled.plan.steps if isinstance(step, Pin)]
    unasked = (b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/ptmx")
    return {
        f"without AttachTree {index}"
        for index, step in enumerate(compiled.plan.steps)
        if isinstance(step, AttachTree) and pins[step.pin] in unasked
    }


def caught(compiled: CompiledCell, plan: CellPlan) -> bool:
    return bool(faults(compiled, plan))


def test_a_mistake_in_the_ruleset_is_found(place: Place, directories: CellDirectories) -> None:
    without = {Layer.USER_NAMESPACE: EPERM}
    compiled = compile_cell(POLICIES["workspace-write"], place, directories, without, KINDS)
    lone = replace(compiled.plan, lock=replace(compiled.plan.lock, ruleset=None))
    names = {name for name, plan in mutants(compiled.plan) if caught(compiled, plan)}
    assert {"REFER not handled", "inner layer that forgets REFER"} <= names
    dropped = [plan for name, plan in mutants(lone) if name.startswith("without Restrict")]
    assert dropped
    assert all(caught(compiled, plan) for plan in dropped)


def kinds(compiled: CompiledCell) -> list[type[CellStep]]:
    return [type(step) for step in compiled.plan.steps]


def test_steps_come_in_the_order_that_the_kernel_demands(place: Place, directories: CellDirectories) -> None:
    """User namespace and its ids first; numbers before what belongs to a process; capabilities after all that needs
    them; the filter last."""
    compiled = compile_cell(POLICIES["read roots"], place, directories, {}, KINDS)
    order = kinds(compiled)
    assert order[:3] == [Unshare, MapIds, Unshare]
    assert order.index(PidNamespace) < order.index(Pin)
    assert order.index(LoopbackUp) < order.index(Restrict)
    assert order.index(SetMountAttributes) > max(
        index
        for index, step in enumerate(compiled.plan.steps)
        if isinstance(step, CloneTree) and step.pin < 9
    )
    assert order[-3:] == [Restrict, KeepCapabilities, Filter]


def test_root_tries_without_a_user_namespace_first(place: Place, directories: CellDirectories) -> None:
    root = replace(place, uid=0)
    first = compile_cell(POLICIES["workspace-write"], root, directories, {}, KINDS)
    assert MapIds not in kinds(first)
    second = compile_cell(
        POLICIES["workspace-write"], root, directories, {Layer.PLAIN_NAMESPACES: EPERM}, KINDS
    )
    assert kinds(second)[:2] == [Unshare, MapIds]
    third = compile_cell(
        POLICIES["workspace-write"],
        root,
        directories,
        {Layer.PLAIN_NAMESPACES: EPERM, Layer.USER_NAMESPACE: EPERM},
        KINDS,
    )
    assert Unshare not in kinds(third)
    assert (
        third.claims[Dimension.FS_METADATA].why_not == "mount namespace: no right to make namespaces: EPERM"
    )


def test_a_pid_namespace_never_comes_without_its_own_processes(
    place: Place, directories: CellDirectories
) -> None:
    for without in subsets():
        compiled = compile_cell(POLICIES["workspace-write"], place, directories, without, KINDS)
        has_proc = any(isinstance(s, NewFileSystem) and s.kind == b"proc" for s in compiled.plan.steps)
        assert (PidNamespace in kinds(compiled)) == has_proc


def test_capabilities_of_the_cell_exceed_those_of_programs(
    place: Place, directories: CellDirectories
) -> None:
    """So that a program of the same user can neither trace the cell nor do what it may."""
    for uid, programs in ((0, 0b1011), (1000, 0)):
        compiled = compile_cell(POLICIES["workspace-write"], replace(place, uid=uid), directories, {}, KINDS)
        assert compiled.plan.lock.capabilities == programs
        (kept,) = [step.mask for step in compiled.plan.steps if isinstance(step, KeepCapabilities)]
        assert kept & programs == programs
        assert kept > programs
        assert not kept & (1 << 21 | 1 << 12 | 1 << 19)


def test_terminals_of_others_are_for_the_cell_alone(place: Place, directories: CellDirectories) -> None:
    """It allocates terminals and hands out descriptors; a program must not open those of the user."""
    compiled = compile_cell(POLICIES["workspace-write"], place, directories, {Layer.TERMINALS: EPERM}, KINDS)
    (restrict,) = [step for step in compiled.plan.steps if isinstance(step, Restrict)]
    inner = compiled.plan.lock.ruleset
    assert inner is not None
    pins = [step.path for step in compiled.plan.steps if isinstance(step, Pin)]
    outer_paths = {pins[rule.pin] for rule in restrict.ruleset.paths}
    inner_paths = {pins[rule.pin] for rule in inner.paths}
    assert outer_paths - inner_paths == {b"/dev/pts", b"/dev/ptmx"}


def test_signals_between_programs_are_cut_only_where_numbers_do_not_part_them_from_the_cell(
    place: Place, directories: CellDirectories
) -> None:
    for without, scoped in (({}, 0), ({Layer.PID_NAMESPACE: EPERM}, 2)):
        compiled = compile_cell(POLICIES["workspace-write"], place, directories, without, KINDS)
        inner = compiled.plan.lock.ruleset
        assert inner is not None
        assert inner.scoped == scoped


@pytest.mark.parametrize("abi", range(1, 15))
def test_no_bit_is_set_that_the_version_does_not_know(
    place: Place, directories: CellDirectories, abi: int
) -> None:
    """A newer version is treated as the newest known; rights to files carry no right of directories."""
    known_fs = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16, 8: 16}.get(abi, 17)
    policy = policy_of(read_roots=("/srv/shared",), network=NetworkPolicy(NetworkMode.PORTS, (443,)))
    compiled = compile_cell(policy, replace(place, landlock_abi=abi), directories, {}, KINDS)
    pins = [step for step in compiled.plan.steps if isinstance(step, Pin)]
    rulesets = [step.ruleset for step in compiled.plan.steps if isinstance(step, Restrict)]
    assert rulesets
    rulesets += [compiled.plan.lock.ruleset] if compiled.plan.lock.ruleset else []
    for ruleset in rulesets:
        assert ruleset.handled_fs < 1 << known_fs
        assert bool(ruleset.handled_net) <= (abi >= 4)
        assert bool(ruleset.scoped) <= (abi >= 6)
        assert bool(ruleset.ports) <= (abi >= 4)
        for rule in ruleset.paths:
            assert rule.access
            assert not rule.access & ~ruleset.handled_fs
            if not pins[rule.pin].directory:
                assert not rule.access & ~0b1_1100_0000_0000_0111
    assert bool(compiled.missing()) == (abi < 4)


def test_version_1_is_left_out_where_mounts_do_the_same(place: Place, directories: CellDirectories) -> None:
    """It refuses every rename between directories."""
    compiled = compile_cell(
        POLICIES["workspace-write"], replace(place, landlock_abi=1), directories, {}, KINDS
    )
    assert Layer.LANDLOCK not in compiled.situation.layers
    assert compiled.missing() == ()


def test_landlock_alone_needs_the_right_to_truncate(place: Place, directories: CellDirectories) -> None:
    """Write denial that lets files be emptied is none."""
    for abi, missing in ((2, (Dimension.FS_WRITE,)), (3, ())):
        here = replace(place, landlock_abi=abi)
        without = {Layer.USER_NAMESPACE: EPERM}
        compiled = compile_cell(POLICIES["workspace-write"], here, directories, without, KINDS)
        assert compiled.missing() == (*missing, Dimension.IPC_SIGNAL, Dimension.KILL_TREE)


def test_nothing_hides_without_mounts_what_lies_in_a_readable_root(
    place: Place, directories: CellDirectories
) -> None:
    without = {Layer.USER_NAMESPACE: EPERM}
    for policy, missing in (
        (POLICIES["hidden"], (Dimension.FS_READ,)),
        (POLICIES["read roots and hidden"], ()),
        (policy_of(read_roots=("/home/user",), hidden=("/home/user/.ssh",)), (Dimension.FS_READ,)),
        (policy_of(read_roots=("/srv",), hidden=("/etc/shadow",)), (Dimension.FS_READ,)),
    ):
        assert compile_cell(policy, place, directories, without, KINDS).missing() == missing


def test_contradictions_in_a_policy_are_named(place: Place, directories: CellDirectories) -> None:
    for policy, words in (
        (policy_of(hidden=("/home/user",)), "contains /home/user/project"),
        (policy_of(hidden=("/tmp",)), "contains /tmp/execworld-temp"),
        (SandboxPolicy(SandboxMode.WORKSPACE_WRITE, "/"), "cannot have `/`"),
    ):
        with pytest.raises(ConfigurationError, match=words):
            compile_cell(policy, place, directories, {}, KINDS)


def test_full_access_has_only_the_layers_that_were_asked_for(
    place: Place, directories: CellDirectories
) -> None:
    network = compile_cell(
        SandboxPolicy(SandboxMode.FULL_ACCESS, network=NetworkPolicy(NetworkMode.NONE)),
        place,
        directories,
        {},
    )
    assert {type(step) for step in network.plan.steps} == {
        Unshare,
        MapIds,
        LoopbackUp,
        Pin,  # Landlock only keeps it from tracing others, and has to grant renames
        Restrict,
        KeepCapabilities,
        Filter,
    }
    limits = ResourceLimits(cpu_s=1.5, file_size_bytes=7, wall_s=3)
    limited = compile_cell(SandboxPolicy(SandboxMode.FULL_ACCESS, limits=limits), place, directories, {})
    assert kinds(limited) == [KeepCapabilities]
    assert limited.plan.lock.limits == ((0, 2, 2), (1, 7, 7))
    assert limited.environment == {}
    ports = compile_cell(
        SandboxPolicy(SandboxMode.FULL_ACCESS, network=NetworkPolicy(NetworkMode.PORTS, (443,))),
        place,
        directories,
        {},
    )
    assert run(ports).writable(b"/etc/passwd")
    assert run(ports).renames_between(b"/etc/a", b"/srv/b")
    for compiled in (network, limited, ports):
        assert compiled.missing() == ()


def test_a_limit_on_processes_leaves_room_for_the_cell_itself(
    place: Place, directories: CellDirectories
) -> None:
    """The kernel counts the warden of the cell and its supervisors too: `processes` is what programs may have."""
    compiled = compile_cell(policy_of(limits=ResourceLimits(processes=50)), place, directories, {}, KINDS)
    assert compiled.plan.processes == 50 + TASKS_OF_A_CELL


def test_a_limit_of_a_group_that_its_processes_may_leave_is_partial(
    place: Place, directories: CellDirectories
) -> None:
    limits = ResourceLimits(memory_bytes=1 << 30)
    full = compile_cell(SandboxPolicy(SandboxMode.FULL_ACCESS, limits=limits), place, directories, {})
    assert full.claims[Dimension.LIMIT_MEMORY].state is EnforcementState.PARTIAL
    confined = compile_cell(policy_of(limits=limits), place, directories, {}, KINDS)
    assert confined.claims[Dimension.LIMIT_MEMORY].state is EnforcementState.ENFORCED


def test_root_is_not_counted_by_a_limit_of_a_user(place: Place, directories: CellDirectories) -> None:
    """RLIMIT_NPROC does not bind root."""
    policy = policy_of(limits=ResourceLimits(processes=50))
    for uid, missing in ((0, (Dimension.LIMIT_PROCESSES,)), (1000, ())):
        compiled = compile_cell(policy, replace(place, uid=uid, cgroup=0), directories, {}, KINDS)
        assert compiled.missing() == missing
        assert ((6, 50 + TASKS_OF_A_CELL, 50 + TASKS_OF_A_CELL) in compiled.plan.lock.limits) == (uid != 0)


@pytest.mark.parametrize(("cgroup", "said"), [(0, "no control group with a usable"), (256, "Delegate=yes")])
def test_why_no_group_holds_a_limit_is_said(
    place: Place, directories: CellDirectories, cgroup: int, said: str
) -> None:
    policy = policy_of(limits=ResourceLimits(memory_bytes=1 << 20))
    compiled = compile_cell(policy, replace(place, cgroup=cgroup), directories, {}, KINDS)
    assert compiled.missing() == (Dimension.LIMIT_MEMORY,)
    assert said in compiled.claims[Dimension.LIMIT_MEMORY].why_not


def test_caches_and_temporary_files_have_a_place_where_they_may_be_written(
    place: Place, directories: CellDirectories
) -> None:
    compiled = compile_cell(POLICIES["workspace-write"], place, directories, {}, KINDS)
    assert compiled.environment["TMPDIR"] == "/tmp/execworld-temp"
    assert compiled.environment["XDG_CACHE_HOME"] == "/home/user/.cache/execworld"
    assert all(run(compiled).creatable_below(value.encode()) for value in compiled.environment.values())


def test_a_read_only_view_has_a_temp_of_its_own_where_mounts_are_to_be_had(
    place: Place, directories: CellDirectories
) -> None:
    compiled = compile_cell(POLICIES["read-only"], place, directories, {}, KINDS)
    assert compiled.environment == {"TMPDIR": "/tmp/execworld-temp"}
    kernel = run(compiled)
    assert kernel.creatable_below(directories.temp + b"/new")
    assert kernel.look(directories.temp).inode[0].startswith("new tmpfs")
    without = compile_cell(POLICIES["read-only"], place, directories, {Layer.MOUNTS: EPERM}, KINDS)
    assert without.environment == {}
    assert "mount namespace" in without.fallen[Layer.PRIVATE_TEMP].text
    assert not run(without).creatable_below(directories.temp + b"/new")


def test_a_home_that_may_not_be_read_is_not_the_home(place: Place, directories: CellDirectories) -> None:
    """git ends with an error when its settings are there and cannot be read."""
    here = replace(place, home=b"/home/user")
    closed = compile_cell(POLICIES["read roots"], here, directories, {}, KINDS)
    assert closed.environment["HOME"] == "/home/user/.cache/execworld"
    for policy in (POLICIES["workspace-write"], policy_of(read_roots=("/home/user",))):
        assert "HOME" not in compile_cell(policy, here, directories, {}, KINDS).environment
    read_only = policy_of(SandboxMode.READ_ONLY, read_roots=("/srv/shared",))
    assert compile_cell(read_only, here, directories, {}, KINDS).environment == {
        "HOME": "/",
        "TMPDIR": "/tmp/execworld-temp",
    }


def test_full_access_without_network_cannot_have_somebody_else_connect(
    place: Place, directories: CellDirectories
) -> None:
    """A filter of sockets is nothing against a program that traces another one of its user."""
    policy = SandboxPolicy(SandboxMode.FULL_ACCESS, network=NetworkPolicy(NetworkMode.NONE))
    network = {Dimension.NET_TCP, Dimension.NET_UDP, Dimension.NET_OTHER}
    by_filter = replace(place, namespaces=0)
    compiled = compile_cell(policy, by_filter, directories, {})
    assert Layer.LANDLOCK in compiled.situation.layers
    assert {compiled.claims[dimension].state for dimension in network} == {EnforcementState.ENFORCED}
    alone = compile_cell(policy, replace(by_filter, landlock_abi=0), directories, {})
    assert {alone.claims[dimension].state for dimension in network} == {EnforcementState.PARTIAL}
    assert set(alone.missing()) == network
