"""Steps that make namespaces and mounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from execworld.confinement.dimensions import Situation, refuses_unix_sockets
from execworld.confinement.landlock import RESOLVE_UNIX_ABI
from execworld.confinement.layers import Layer
from execworld.confinement.paths import (
    PLAIN_DEVICES,
    SHARED_MEMORY,
    SOCKET_PLACES,
    TERMINAL,
    TERMINAL_MASTER,
    TERMINALS,
    contains,
)
from execworld.confinement.steps import StepList
from execworld.machine.cell import (
    LoopbackUp,
    MapIds,
    MountAttribute,
    Namespace,
    PidNamespace,
    PrivateMounts,
    SetMountAttributes,
    Unshare,
)
from execworld.seams.enforcement import Dimension
from execworld.seams.policy import SandboxMode

PRIVATE_TEMP_BYTES: Final = 256 * 1024 * 1024
PRIVATE_TEMP_FILES: Final = 65536
_NULL: Final = b"/dev/null"
_INERT: Final = (
    MountAttribute.READ_ONLY
    | MountAttribute.NO_SETUID
    | MountAttribute.NO_DEVICES
    | MountAttribute.NO_EXECUTE
)
_DEVICE: Final = MountAttribute.READ_ONLY | MountAttribute.NO_SETUID | MountAttribute.NO_EXECUTE
_KINDS: Final = (
    (Layer.MOUNTS, Namespace.MOUNT),
    (Layer.NETWORK_NAMESPACE, Namespace.NETWORK),
    (Layer.IPC_NAMESPACE, Namespace.IPC),
)


def add_namespaces(steps: StepList, layers: frozenset[Layer]) -> None:
    right = Layer.PLAIN_NAMESPACES if Layer.PLAIN_NAMESPACES in layers else Layer.USER_NAMESPACE
    if Layer.USER_NAMESPACE in layers:
        steps.add(Layer.USER_NAMESPACE, Unshare(Namespace.USER), MapIds())
    kinds = [(layer, kind) for layer, kind in _KINDS if layer in layers]
    for position, (layer, kind) in enumerate(kinds):
        # What the first one is refused for is the missing right to make any.
        steps.add(layer if position else right, Unshare(kind))
    if Layer.NETWORK_NAMESPACE in layers:
        steps.add(Layer.NETWORK_NAMESPACE, LoopbackUp())
    if Layer.PID_NAMESPACE in layers:
        steps.add(Layer.PID_NAMESPACE, PidNamespace())


def add_mounts(steps: StepList, situation: Situation, pins: Mapping[bytes, int]) -> None:
    """All that the mount namespace shows. Copies come before the read-only step, covers after everything else."""
    layer, paths = Layer.MOUNTS, situation.paths
    steps.add(layer, PrivateMounts())
    confined = situation.policy.mode is not SandboxMode.FULL_ACCESS
    covered_files = [path for path in covered(situation) if not paths.is_directory(path)]
    null = steps.pin(layer, _NULL) if covered_files else -1
    covers = [(path, steps.clone(layer, null)) for path in covered_files]
    if confined:
        _make_read_only(steps, situation, pins)
    _add_private(steps, situation, writable=situation.policy.mode is SandboxMode.WORKSPACE_WRITE)
    trees = dict(covers)
    for path in covered(situation):
        if path in trees:
            steps.attach(layer, trees[path], steps.pin(layer, path), _INERT)
        else:
            steps.mount(layer, b"tmpfs", path, _INERT, mode="0555")


def covered(situation: Situation) -> tuple[bytes, ...]:
    """What is hidden by a mount, outermost."""
    paths = situation.paths
    extra = tuple(
        path
        for path in (SOCKET_PLACES if _hides_sockets(situation) else ())
        if path in paths.present((path,))
        and not paths.in_use_below(path)
        and not any(contains(other, path) for other in paths.hidden)
    )
    inside = tuple(path for path in paths.hidden if not any(contains(other, path) for other in extra))
    return (*extra, *inside)


def has_private_shared_memory(situation: Situation) -> bool:
    return (
        {Layer.IPC_NAMESPACE, Layer.MOUNTS} <= situation.layers
        and situation.paths.is_directory(SHARED_MEMORY)
        and not situation.paths.in_use_below(SHARED_MEMORY)
    )


def _hides_sockets(situation: Situation) -> bool:
    """Where UNIX sockets stay usable, for want of something that governs them."""
    governed = Layer.LANDLOCK in situation.layers and situation.place.landlock_abi >= RESOLVE_UNIX_ABI
    asked = Dimension.IPC_UNIX in situation.policy.asked()
    return asked and not governed and not refuses_unix_sockets(situation)


def _make_read_only(steps: StepList, situation: Situation, pins: Mapping[bytes, int]) -> None:
    """Everything read-only and without devices; writable roots and harmless devices are put back as they were."""
    layer, paths = Layer.MOUNTS, situation.paths
    devices = [
        (path, steps.pin(layer, path))
        for path in paths.present((*PLAIN_DEVICES, TERMINAL))
        if not paths.is_directory(path)
    ]
    device_trees = [(steps.clone(layer, pin), pin) for _, pin in devices]
    root_trees = [(steps.clone(layer, pins[path]), pins[path]) for path in paths.writable]
    covers = [
        (steps.clone(layer, steps.pin(layer, path, directory=paths.is_directory(path))), path)
        for path in (*paths.present(paths.installation.anchors), *paths.kept)
    ]
    steps.add(layer, SetMountAttributes(MountAttribute.READ_ONLY | MountAttribute.NO_DEVICES))
    for tree, pin in root_trees:
        steps.attach(layer, tree, pin, MountAttribute.NO_DEVICES)
    for tree, pin in device_trees:
        # What is written to a device is not written to the file that names it, whose mode and owner are the host's.
        steps.attach(layer, tree, pin, _DEVICE)
    for tree, path in covers:
        # Found again, because a writable root lies over it by now.
        pin = steps.pin(layer, path, directory=paths.is_directory(path))
        kept = MountAttribute.READ_ONLY if path in paths.kept else MountAttribute.NONE
        steps.attach(layer, tree, pin, kept | MountAttribute.NO_DEVICES)


def _add_private(steps: StepList, situation: Situation, *, writable: bool) -> None:
    layers = situation.layers
    if Layer.PRIVATE_TEMP in layers and situation.paths.own_temp is not None:
        steps.mount(
            Layer.PRIVATE_TEMP,
            b"tmpfs",
            situation.paths.own_temp,
            MountAttribute.NO_SETUID | MountAttribute.NO_DEVICES,
            mode="0700",
            size=str(PRIVATE_TEMP_BYTES),
            nr_inodes=str(PRIVATE_TEMP_FILES),
        )
    if Layer.TERMINALS in layers:
        steps.mount(
            Layer.TERMINALS,
            b"devpts",
            TERMINALS,
            MountAttribute.NO_SETUID | MountAttribute.NO_EXECUTE,
            newinstance="",
            ptmxmode="0666",
            mode="620",
        )
        if Layer.TERMINAL_MASTER in layers:
            master = Layer.TERMINAL_MASTER
            target = steps.pin(master, TERMINAL_MASTER)
            tree = steps.clone(master, steps.pin(master, TERMINALS + b"/ptmx"))
            steps.attach(master, tree, target)
    if has_private_shared_memory(situation):
        attributes = MountAttribute.NO_SETUID | MountAttribute.NO_DEVICES
        if not writable:
            attributes |= MountAttribute.READ_ONLY
        steps.mount(Layer.IPC_NAMESPACE, b"tmpfs", SHARED_MEMORY, attributes, mode="1777")
    if Layer.PID_NAMESPACE in layers:
        for path in situation.paths.process_tables:
            steps.mount(Layer.PID_NAMESPACE, b"proc", path, _INERT)
