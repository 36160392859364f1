"""Layers: groups of steps that stand or fall together, and which of them can stand in a place."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from execworld.confinement.landlock import REFER_ABI
from execworld.confinement.obstacle import Obstacle
from execworld.confinement.paths import TERMINAL_MASTER, TERMINALS, PolicyPaths
from execworld.confinement.place import NamespaceBit, PathKind, Place
from execworld.confinement.syscalls import ARCHITECTURES
from execworld.seams.errors import SandboxReason
from execworld.seams.policy import NetworkMode, SandboxMode, SandboxPolicy
from execworld.seams.values import record


class Layer(StrEnum):
    PLAIN_NAMESPACES = "namespaces without a user namespace"
    USER_NAMESPACE = "user namespace"
    MOUNTS = "mount namespace"
    PID_NAMESPACE = "pid namespace"
    NETWORK_NAMESPACE = "network namespace"
    IPC_NAMESPACE = "ipc namespace"
    PRIVATE_TEMP = "private temp"
    TERMINALS = "private terminals"
    TERMINAL_MASTER = "private /dev/ptmx"
    LANDLOCK = "landlock"
    INNER_LANDLOCK = "inner landlock"
    SECCOMP = "seccomp"
    CAPABILITIES = "capabilities"
    CGROUP = "control group"
    RLIMITS = "rlimits"


CONTENT: Final[Mapping[Layer, str]] = {
    Layer.PLAIN_NAMESPACES: "root with CAP_SYS_ADMIN makes the namespaces directly",
    Layer.USER_NAMESPACE: "maps the own user and group alone; what gives the right to the other namespaces",
    Layer.MOUNTS: "all mounts read-only and without devices, writable roots and harmless devices put back; "
    "hidden paths covered, and the installation of execworld kept read-only",
    Layer.PID_NAMESPACE: "new process numbers together with a private /proc, never one without the other",
    Layer.NETWORK_NAMESPACE: "a network of its own with nothing but loopback",
    Layer.IPC_NAMESPACE: "System V and POSIX objects of its own, and a private /dev/shm",
    Layer.PRIVATE_TEMP: "TMPDIR of a read-only view: a file system of its own in memory, of limited size, "
    "gone with the view",
    Layer.TERMINALS: "a private instance of /dev/pts",
    Layer.TERMINAL_MASTER: "its ptmx in the place of /dev/ptmx",
    Layer.LANDLOCK: "the cell's ruleset: the policy, and what the warden needs beyond it",
    Layer.INNER_LANDLOCK: "a further ruleset for programs: exactly the policy; keeps them away from the cell",
    Layer.SECCOMP: "system calls and arguments that no program needs and no other layer governs",
    Layer.CAPABILITIES: "what root keeps; nothing for anybody else",
    Layer.CGROUP: "limits of a group around the whole cell",
    Layer.RLIMITS: "limits of each program",
}

_NAMESPACES: Final = {
    Layer.MOUNTS: NamespaceBit.MOUNT,
    Layer.PID_NAMESPACE: NamespaceBit.PID,
    Layer.NETWORK_NAMESPACE: NamespaceBit.NETWORK,
    Layer.IPC_NAMESPACE: NamespaceBit.IPC,
}
_NEEDS: Final = {
    Layer.PID_NAMESPACE: Layer.MOUNTS,
    Layer.PRIVATE_TEMP: Layer.MOUNTS,
    Layer.TERMINALS: Layer.MOUNTS,
    Layer.TERMINAL_MASTER: Layer.TERMINALS,
    Layer.INNER_LANDLOCK: Layer.LANDLOCK,
}
_OLD_KERNEL: Final = Obstacle(
    "ENOSYS: the kernel has no Landlock; Linux 5.13 is the first that can have it",
    SandboxReason.KERNEL_LACKS_FEATURE,
)
_DENIED: Final = "the system calls of Landlock are denied, as by the filter of a container engine"
_NO_LANDLOCK: Final = {
    errno.EOPNOTSUPP: Obstacle(
        "EOPNOTSUPP: Landlock is built into the kernel and not enabled (its parameter lsm=)",
        SandboxReason.FEATURE_DISABLED,
    ),
    errno.EPERM: Obstacle(f"EPERM: {_DENIED}", SandboxReason.BLOCKED),
    errno.EACCES: Obstacle(f"EACCES: {_DENIED}", SandboxReason.BLOCKED),
}
_REFUSED_TO_PROBE: Final = Obstacle("unshare(2) refused it to the warden's probe", SandboxReason.BLOCKED)
_NO_CONTROLLER: Final = Obstacle("no control group with a usable controller can be made")
_WITHHELD: Final = Obstacle(
    "the control group that this runs in has processes, so it hands no controllers down, and beside it no group can be "
    "made that has them: start it where control groups are delegated, as with `systemd-run --user --scope`, or as a "
    "service with Delegate=yes and DelegateSubgroup=",
    SandboxReason.BLOCKED,
)
_NOT_ASKED_FOR: Final = Obstacle("not asked for")


@record
class Standing:
    """Attributes:
    layers: Those that the plan has.
    fallen: Those that the policy would use, and why they are not there.
    """

    layers: frozenset[Layer]
    fallen: Mapping[Layer, Obstacle]


def standing(
    policy: SandboxPolicy, place: Place, paths: PolicyPaths, without: Mapping[Layer, Obstacle]
) -> Standing:
    wanted = wanted_layers(policy, place)
    fallen = {layer: without[layer] for layer in wanted if layer in without}
    for layer, reason in _impossible(place, paths).items():
        if layer in wanted:
            fallen.setdefault(layer, reason)
    layers = wanted - fallen.keys()
    layers, fallen = _with_right_to_namespaces(layers, fallen, policy, place, without)
    for layer, needed in _NEEDS.items():  # in an order in which what is needed comes first
        if layer in layers and needed not in layers:
            layers -= {layer}
            why = fallen.get(needed, _NOT_ASKED_FOR)
            fallen[layer] = Obstacle(f"it needs the {needed}, which is not there ({why})", why.reason)
    if (
        place.landlock_abi < REFER_ABI
        and {Layer.MOUNTS, Layer.PID_NAMESPACE} <= layers
        and not policy.read_roots
    ):
        for layer in (Layer.LANDLOCK, Layer.INNER_LANDLOCK):
            if layer in layers:
                layers -= {layer}
                fallen[layer] = Obstacle(
                    "abi 1 refuses every rename between two directories, and other layers enforce the same"
                )
    return Standing(frozenset(layers), fallen)


def wanted_layers(policy: SandboxPolicy, place: Place) -> frozenset[Layer]:
    """What the policy would use, were everything there."""
    if not policy.confines:
        return frozenset()
    wanted = {Layer.SECCOMP, Layer.CAPABILITIES}
    confined = policy.mode is not SandboxMode.FULL_ACCESS
    if confined or policy.hidden:
        wanted |= {
            Layer.MOUNTS,
            Layer.PID_NAMESPACE,
            Layer.TERMINALS,
            Layer.TERMINAL_MASTER,
            Layer.LANDLOCK,
            Layer.INNER_LANDLOCK,
        }
    if confined:
        wanted.add(Layer.IPC_NAMESPACE)
    if policy.mode is SandboxMode.READ_ONLY:
        wanted.add(Layer.PRIVATE_TEMP)
    if policy.read_roots:
        wanted |= {Layer.LANDLOCK, Layer.INNER_LANDLOCK}
    if policy.network.mode is not NetworkMode.ALL:
        wanted.add(
            Layer.LANDLOCK
        )  # also where it governs no port: nobody outside may be traced into connecting
    if policy.network.mode is NetworkMode.NONE:
        wanted.add(Layer.NETWORK_NAMESPACE)
    limits = policy.limits
    if limits.processes is not None or limits.memory_bytes is not None:
        wanted.add(Layer.CGROUP)
    if limits.cpu_s is not None or limits.file_size_bytes is not None:
        wanted.add(Layer.RLIMITS)
    if limits.processes is not None and place.uid != 0:
        wanted.add(Layer.RLIMITS)
    return frozenset(wanted)


def _impossible(place: Place, paths: PolicyPaths) -> dict[Layer, Obstacle]:
    reasons: dict[Layer, Obstacle] = {}
    if not place.landlock_abi:
        reasons[Layer.LANDLOCK] = _NO_LANDLOCK.get(place.landlock_error, _OLD_KERNEL)
    if place.arch not in ARCHITECTURES:
        reasons[Layer.SECCOMP] = Obstacle(f"no table of system calls for {place.arch}")
    if not (place.counts_processes or place.bounds_memory):
        reasons[Layer.CGROUP] = _WITHHELD if place.withholds_controllers else _NO_CONTROLLER
    if not paths.is_directory(TERMINALS):
        reasons[Layer.TERMINALS] = Obstacle("there is no /dev/pts")
    if paths.kind(TERMINAL_MASTER) is not PathKind.OTHER:
        reasons[Layer.TERMINAL_MASTER] = Obstacle(
            "there is no /dev/ptmx, or it is a link to that of /dev/pts"
        )
    for layer, bit in _NAMESPACES.items():
        if not place.namespaces & bit:
            reasons[layer] = _REFUSED_TO_PROBE
    return reasons


def _with_right_to_namespaces(
    layers: frozenset[Layer],
    fallen: dict[Layer, Obstacle],
    policy: SandboxPolicy,
    place: Place,
    without: Mapping[Layer, Obstacle],
) -> tuple[frozenset[Layer], dict[Layer, Obstacle]]:
    """Add the layer that gives the right to make namespaces, or take out all that needs it."""
    only_rlimit = policy.limits.processes is not None and place.uid != 0 and not place.counts_processes
    if not (layers & _NAMESPACES.keys() or only_rlimit):
        return layers, fallen
    if place.uid == 0 and Layer.PLAIN_NAMESPACES not in without:
        return layers | {Layer.PLAIN_NAMESPACES}, fallen
    if Layer.USER_NAMESPACE in without:
        reason = without[Layer.USER_NAMESPACE]
    elif not place.namespaces & NamespaceBit.USER:
        reason = _REFUSED_TO_PROBE
    else:
        return layers | {Layer.USER_NAMESPACE}, fallen
    fallen = {**fallen, Layer.USER_NAMESPACE: reason}
    for layer in _NAMESPACES:
        if layer in layers:
            fallen[layer] = Obstacle(f"no right to make namespaces: {reason}", reason.reason)
    return layers - _NAMESPACES.keys(), fallen
