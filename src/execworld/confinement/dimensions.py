"""The table: for each dimension what enforces it, and which probes prove that.

Plan, report, canaries, `enforceable` and docs/reference/confinement.md are made from it, so that they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from execworld.confinement.landlock import (
    RESOLVE_UNIX_ABI,
    SCOPE_ABI,
    TCP_ABI,
    TRUNCATE_ABI,
)
from execworld.confinement.layers import Layer
from execworld.confinement.obstacle import Obstacle, joined
from execworld.confinement.paths import PolicyPaths
from execworld.confinement.place import Place
from execworld.machine.cell import ProbeKind
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.errors import SandboxReason
from execworld.seams.policy import NetworkMode, SandboxMode, SandboxPolicy
from execworld.seams.values import record


@record
class Situation:
    """What decides about a claim: what is asked, and what is there.

    Attributes:
        counts_processes: A control group holds the limit on processes; *bounds_memory* that on memory. A guess from the
            facts of the place until the cell has been made.
    """

    policy: SandboxPolicy
    place: Place
    paths: PolicyPaths
    layers: frozenset[Layer]
    counts_processes: bool
    bounds_memory: bool


@record
class Condition:
    """When an enforcer applies at all."""

    text: str
    holds: Callable[[Situation], bool]


@record
class Enforcer:
    """One way to enforce a dimension.

    Attributes:
        by: What the report says; ``{abi}`` is the version of Landlock.
        layers: All of them are needed.
        minimum_abi: Of Landlock, where it is among the layers.
        proven_by_step: That the steps of the layers succeeded is proof enough where there is no probe, or where the
            world itself does not have or may not do what the probe tries. Else such a claim is `PARTIAL`.
        why_partial: What is left open; empty for a full enforcer.
    """

    by: str
    layers: frozenset[Layer] = frozenset()
    minimum_abi: int = 0
    when: Condition | None = None
    proven_by_step: bool = False
    why_partial: str = ""

    @property
    def state(self) -> EnforcementState:
        return EnforcementState.PARTIAL if self.why_partial else EnforcementState.ENFORCED

    def stands_in(self, situation: Situation) -> bool:
        return (
            self.layers <= situation.layers
            and self._abi_suffices(situation)
            and (self.when is None or self.when.holds(situation))
        )

    def lacks(self, situation: Situation, fallen: Mapping[Layer, Obstacle]) -> Obstacle | None:
        """Why it does not stand; None when it was never meant for this policy."""
        if self.when is not None and not self.when.holds(situation):
            return None
        for layer in sorted(self.layers - situation.layers):
            return Obstacle(f"{layer}: {fallen[layer]}", fallen[layer].reason) if layer in fallen else None
        if not self._abi_suffices(situation):
            return Obstacle(
                f"landlock abi {situation.place.landlock_abi}, {self.minimum_abi} needed",
                SandboxReason.KERNEL_LACKS_FEATURE,
            )
        return None

    def _abi_suffices(self, situation: Situation) -> bool:
        return Layer.LANDLOCK not in self.layers or situation.place.landlock_abi >= self.minimum_abi


OPTIONAL_PROBES: Final = frozenset({ProbeKind.FAST_OPEN, ProbeKind.MULTIPATH_TCP, ProbeKind.VSOCK})
"""What a kernel may not have at all. All others must work without confinement, or they prove nothing."""


@record
class Row:
    """Attributes:
    enforcers: In the order of preference.
    denied: Probes that must have no effect in the cell.
    allowed: Probes that must have their effect in the cell, at what the policy grants.
    """

    enforcers: tuple[Enforcer, ...]
    denied: tuple[ProbeKind, ...] = ()
    allowed: tuple[ProbeKind, ...] = ()


def refuses_unix_sockets(situation: Situation) -> bool:
    """Whether programs may make no UNIX socket but a connected pair, for want of anything finer."""
    policy = situation.policy
    governed = Layer.LANDLOCK in situation.layers and situation.place.landlock_abi >= RESOLVE_UNIX_ABI
    return Dimension.IPC_UNIX in policy.required() and Layer.SECCOMP in situation.layers and not governed


def _network(mode: NetworkMode) -> Condition:
    return Condition(f"network `{mode}`", lambda situation: situation.policy.network.mode is mode)


def _full_access(situation: Situation) -> bool:
    return situation.policy.mode is SandboxMode.FULL_ACCESS


def _may_trace(situation: Situation) -> bool:
    """Whether a program may take over another process of its user. In a confining mode ipc.trace answers for that."""
    return _full_access(situation) and not situation.layers & {Layer.LANDLOCK, Layer.USER_NAMESPACE}


def _exposes_installation(situation: Situation) -> bool:
    """Whether programs can rewrite what the host runs. Landlock grants a root with all that is below it."""
    paths = situation.paths
    return bool(paths.installation.exposed or (paths.kept and Layer.MOUNTS not in situation.layers))


_EXPOSED = Condition("the installation of execworld is exposed", _exposes_installation)
_NOT_EXPOSED = Condition(
    "the installation of execworld lies elsewhere, or is covered",
    lambda situation: not _exposes_installation(situation),
)
_WHY_EXPOSED = (
    "what execworld itself runs can be rewritten: {exposed}; install it outside of what may be written"
)
_NONE = _network(NetworkMode.NONE)
_PORTS = _network(NetworkMode.PORTS)
_COVERED = Condition(
    "not root with full access, who may read the disk itself",
    lambda situation: (
        situation.paths.readable is not None or not (_full_access(situation) and situation.place.uid == 0)
    ),
)
_COVERED_ALONE = Condition(
    "no read roots, and not root with full access",
    lambda situation: situation.paths.readable is None and _COVERED.holds(situation),
)
_NOT_GRANTED = Condition(
    "read roots, and no hidden path in or above them",
    lambda situation: situation.paths.readable is not None and situation.paths.hidden_outside_of_readable,
)
_NOTHING_UNIX = Condition("ipc.unix is required", refuses_unix_sockets)
_UNIX_REPORTED = Condition("ipc.unix is not required", lambda situation: not refuses_unix_sockets(situation))
_GROUP_COUNTS = Condition(
    "a confining mode, and a pids controller",
    lambda situation: situation.counts_processes and not _full_access(situation),
)
_GROUP_COUNTS_LOOSELY = Condition(
    "full access, and a pids controller",
    lambda situation: situation.counts_processes and _full_access(situation),
)
_GROUP_BOUNDS = Condition(
    "a confining mode, and a memory controller",
    lambda situation: situation.bounds_memory and not _full_access(situation),
)
_GROUP_BOUNDS_LOOSELY = Condition(
    "full access, and a memory controller",
    lambda situation: situation.bounds_memory and _full_access(situation),
)
_ORDINARY_USER = Condition("not root", lambda situation: situation.place.uid != 0)
_LEAVES_GROUP = "who may write every file can move a process out of its control group"


def _set(*layers: Layer) -> frozenset[Layer]:
    return frozenset(layers)


def _mounts(by: str, when: Condition | None = None, why_partial: str = "") -> tuple[Enforcer, ...]:
    """Mounts enforce something only with what keeps programs out of the mounts of others (/proc/PID/root)."""
    return tuple(
        Enforcer(
            f"{by}{suffix}",
            _set(Layer.MOUNTS, Layer.CAPABILITIES, guard),
            when=when,
            why_partial=why_partial,
        )
        for guard, suffix in (
            (Layer.LANDLOCK, " and landlock abi {abi}"),
            (Layer.PID_NAMESPACE, ""),
            (Layer.USER_NAMESPACE, ""),
        )
    )


def _network_of_its_own() -> Enforcer:
    return Enforcer(
        "network namespace",
        _set(Layer.NETWORK_NAMESPACE, Layer.CAPABILITIES),
        when=_NONE,
        proven_by_step=True,
    )


def _no_sockets(*modes: NetworkMode) -> tuple[Enforcer, ...]:
    """A filter says nothing about what is done by a process outside that a program traces."""
    networks = " or ".join(f"`{mode}`" for mode in modes)

    def when(text: str, *, tracing: bool) -> Condition:
        return Condition(
            f"network {networks}; {text}",
            lambda situation: situation.policy.network.mode in modes and _may_trace(situation) is tracing,
        )

    return (
        Enforcer(
            "seccomp",
            _set(Layer.SECCOMP),
            when=when("a confining mode, Landlock or a user namespace", tracing=False),
            proven_by_step=True,
        ),
        Enforcer(
            "seccomp",
            _set(Layer.SECCOMP),
            when=when("full access with neither Landlock nor a user namespace", tracing=True),
            proven_by_step=True,
            why_partial="processes outside can be traced, and made to connect",
        ),
    )


_OWN_PIDS: Final = Enforcer(
    "pid namespace", _set(Layer.PID_NAMESPACE, Layer.CAPABILITIES), proven_by_step=True
)

TABLE: Final[Mapping[Dimension, Row]] = {
    Dimension.FS_WRITE: Row(
        (
            *_mounts("read-only mounts", _NOT_EXPOSED),
            Enforcer(
                "landlock abi {abi}",
                _set(Layer.LANDLOCK, Layer.CAPABILITIES),
                TRUNCATE_ABI,
                when=_NOT_EXPOSED,
            ),
            *_mounts("read-only mounts", _EXPOSED, _WHY_EXPOSED),
            Enforcer(
                "landlock abi {abi}",
                _set(Layer.LANDLOCK, Layer.CAPABILITIES),
                TRUNCATE_ABI,
                when=_EXPOSED,
                why_partial=_WHY_EXPOSED,
            ),
        ),
        denied=(
            ProbeKind.WRITE,
            ProbeKind.TRUNCATE,
            ProbeKind.CREATE,
            ProbeKind.REMOVE,
            ProbeKind.WRITE_BELOW,
        ),
        allowed=(ProbeKind.WRITE_BELOW,),
    ),
    Dimension.FS_READ: Row(
        (
            Enforcer(
                "mount namespace and landlock abi {abi}",
                _set(Layer.MOUNTS, Layer.LANDLOCK, Layer.CAPABILITIES),
                when=_COVERED,
            ),
            Enforcer("landlock abi {abi}", _set(Layer.LANDLOCK, Layer.CAPABILITIES), when=_NOT_GRANTED),
            *_mounts("mount namespace", _COVERED_ALONE)[1:],
        ),
        denied=(ProbeKind.READ,),
        allowed=(ProbeKind.READ,),
    ),
    Dimension.FS_METADATA: Row(_mounts("read-only mounts"), denied=(ProbeKind.CHANGE_MODE,)),
    Dimension.NET_TCP: Row(
        (
            _network_of_its_own(),
            *_no_sockets(NetworkMode.NONE),
            Enforcer(
                "landlock abi {abi} and seccomp", _set(Layer.LANDLOCK, Layer.SECCOMP), TCP_ABI, when=_PORTS
            ),
        ),
        denied=(ProbeKind.CONNECT_TCP, ProbeKind.FAST_OPEN, ProbeKind.MULTIPATH_TCP),
        allowed=(ProbeKind.OWN_TCP, ProbeKind.GRANTED_PORT),
    ),
    Dimension.NET_UDP: Row(
        (
            _network_of_its_own(),
            *_no_sockets(NetworkMode.NONE, NetworkMode.PORTS),
        ),
        denied=(ProbeKind.SEND_UDP,),
        allowed=(ProbeKind.OWN_UDP,),
    ),
    Dimension.NET_OTHER: Row(
        _no_sockets(NetworkMode.NONE, NetworkMode.PORTS), denied=(ProbeKind.VSOCK, ProbeKind.NETLINK)
    ),
    Dimension.IPC_SIGNAL: Row(
        (
            _OWN_PIDS,
            Enforcer(
                "landlock abi {abi} scopes and seccomp",
                _set(Layer.LANDLOCK, Layer.INNER_LANDLOCK, Layer.SECCOMP),
                SCOPE_ABI,
            ),
        ),
        denied=(ProbeKind.SIGNAL, ProbeKind.SET_LIMIT),
        allowed=(ProbeKind.OWN_SIGNAL,),
    ),
    Dimension.IPC_TRACE: Row(
        (
            _OWN_PIDS,
            Enforcer("landlock abi {abi}", _set(Layer.LANDLOCK, Layer.CAPABILITIES)),
            Enforcer(
                "user namespace and seccomp", _set(Layer.USER_NAMESPACE, Layer.SECCOMP, Layer.CAPABILITIES)
            ),
        ),
        denied=(ProbeKind.TRACE, ProbeKind.READ_ENVIRONMENT),
        allowed=(ProbeKind.OWN_TRACE,),
    ),
    Dimension.IPC_UNIX: Row(
        (
            Enforcer("landlock abi {abi}", _set(Layer.LANDLOCK), RESOLVE_UNIX_ABI),
            Enforcer("seccomp without AF_UNIX", _set(Layer.SECCOMP), when=_NOTHING_UNIX, proven_by_step=True),
            Enforcer(
                "mount namespace that hides /run",
                _set(Layer.MOUNTS, Layer.CAPABILITIES),
                when=_UNIX_REPORTED,
                why_partial="sockets elsewhere in the file system can be reached",
            ),
        ),
        denied=(ProbeKind.CONNECT_UNIX, ProbeKind.CONNECT_ABSTRACT),
        allowed=(ProbeKind.OWN_UNIX, ProbeKind.OWN_PAIR),
    ),
    Dimension.PROC_VISIBILITY: Row((_OWN_PIDS,), denied=(ProbeKind.SEE_PROCESS,)),
    Dimension.KILL_TREE: Row(
        (
            Enforcer("pid namespace and sweep of the warden", _set(Layer.PID_NAMESPACE), proven_by_step=True),
            Enforcer(
                "sweep of the warden",
                _set(Layer.LANDLOCK, Layer.INNER_LANDLOCK, Layer.SECCOMP),
                SCOPE_ABI,
                proven_by_step=True,
            ),
            Enforcer(
                "sweep of the warden",
                proven_by_step=True,
                why_partial="a program can kill the warden and its supervisor",
            ),
        )
    ),
    Dimension.LIMIT_PROCESSES: Row(
        (
            Enforcer(
                "{processes_by}",
                _set(Layer.CGROUP, Layer.CAPABILITIES),
                when=_GROUP_COUNTS,
                proven_by_step=True,
            ),
            Enforcer(
                "rlimit in a user namespace",
                _set(Layer.RLIMITS, Layer.USER_NAMESPACE, Layer.CAPABILITIES),
                when=_ORDINARY_USER,
                proven_by_step=True,
            ),
            Enforcer(
                "{processes_by}",
                _set(Layer.CGROUP),
                when=_GROUP_COUNTS_LOOSELY,
                proven_by_step=True,
                why_partial=_LEAVES_GROUP,
            ),
        )
    ),
    Dimension.LIMIT_MEMORY: Row(
        (
            Enforcer(
                "{memory_by}",
                _set(Layer.CGROUP, Layer.CAPABILITIES),
                when=_GROUP_BOUNDS,
                proven_by_step=True,
            ),
            Enforcer(
                "{memory_by}",
                _set(Layer.CGROUP),
                when=_GROUP_BOUNDS_LOOSELY,
                proven_by_step=True,
                why_partial=_LEAVES_GROUP,
            ),
        )
    ),
    Dimension.LIMIT_CPU: Row(
        (Enforcer("rlimit of each process", _set(Layer.RLIMITS, Layer.CAPABILITIES), proven_by_step=True),)
    ),
    Dimension.LIMIT_FILE_SIZE: Row(
        (Enforcer("rlimit of each process", _set(Layer.RLIMITS, Layer.CAPABILITIES), proven_by_step=True),)
    ),
    Dimension.LIMIT_WALL: Row((Enforcer("the host", proven_by_step=True),)),
    Dimension.LIMIT_OUTPUT: Row((Enforcer("the host", proven_by_step=True),)),
}


def _exposed(situation: Situation) -> str:
    paths = situation.paths
    kept = paths.kept if Layer.MOUNTS not in situation.layers else ()
    return ", ".join(
        path.decode("utf-8", "backslashreplace") for path in (*paths.installation.exposed, *kept)
    )


@record
class Claim:
    """What is to be said of one dimension: before any probe was tried, or after.

    Attributes:
        obstacle: Why it is not fully enforced; None when it is.
    """

    state: EnforcementState
    by: str
    obstacle: Obstacle | None
    enforcer: Enforcer | None

    @property
    def why_not(self) -> str:
        return "" if self.obstacle is None else self.obstacle.text


def claim(
    dimension: Dimension,
    situation: Situation,
    fallen: Mapping[Layer, Obstacle],
    *,
    processes_by: str = "control group",
    memory_by: str = "control group",
) -> Claim:
    obstacles: list[Obstacle] = []
    for enforcer in TABLE[dimension].enforcers:
        if enforcer.stands_in(situation):
            by = enforcer.by.format(
                abi=situation.place.landlock_abi, processes_by=processes_by, memory_by=memory_by
            )
            partial = enforcer.why_partial.format(exposed=_exposed(situation))
            why = joined(Obstacle(partial), *obstacles) if partial else None
            return Claim(enforcer.state, by, why, enforcer)
        obstacle = enforcer.lacks(situation, fallen)
        if obstacle is not None:
            obstacles.append(obstacle)
    if not obstacles and any(Layer.CGROUP in enforcer.layers for enforcer in TABLE[dimension].enforcers):
        obstacles.append(fallen.get(Layer.CGROUP, Obstacle("no control group with the controller for it")))
    if not obstacles:
        obstacles.append(Obstacle("nothing here enforces it"))
    return Claim(EnforcementState.ABSENT, "", joined(*obstacles), None)
