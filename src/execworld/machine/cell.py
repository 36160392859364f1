"""Cells: what a machine is asked to lock itself into, and what it answers.

A cell is a second machine in the same place, which has applied a list of set-up steps before it does anything else. It
is all of the list or nothing: the first step that fails ends it, and its answer says which one that was. What to do
without that step is decided by whoever compiled the list. Values only; `execworld.confinement` says what they are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import IntEnum, IntFlag
from typing import TypeAlias

from execworld.seams.values import record


class Namespace(IntFlag):
    """Bits of unshare(2) (linux/sched.h). The pid namespace has a step of its own."""

    MOUNT = 0x0002_0000
    IPC = 0x0800_0000
    USER = 0x1000_0000
    NETWORK = 0x4000_0000


class MountAttribute(IntFlag):
    """Bits of mount_setattr(2) and fsmount(2) (linux/mount.h)."""

    NONE = 0
    READ_ONLY = 0x1
    NO_SETUID = 0x2
    NO_DEVICES = 0x4
    NO_EXECUTE = 0x8
    NO_SYMLINK_FOLLOW = 0x20_0000


@record
class Unshare:
    """New namespaces of these kinds."""

    namespaces: Namespace


@record
class MapIds:
    """The effective ids of the cell are the only ones of its user namespace, under the same numbers."""


@record
class PidNamespace:
    """A new pid namespace whose init the cell becomes. Comes before every step whose effect is a process's own."""


@record
class PrivateMounts:
    """No mount propagates in or out from here on."""


@record
class Pin:
    """Open a path, which has no symbolic link in it, for later steps; they name it by its number among the pins.

    Attributes:
        directory: It must be one.
    """

    path: bytes
    directory: bool = False


@record
class CloneTree:
    """Copy the mounts at a pin as they are now, detached; later steps name the copy by its number among the copies."""

    pin: int


@record
class SetMountAttributes:
    """Set attributes of the mounts at ``/`` and all below."""

    attributes: MountAttribute


@record
class AttachTree:
    """Mount a copy at a pin. *attributes* are set on all of the copy before."""

    tree: int
    pin: int
    attributes: MountAttribute = MountAttribute.NONE


@record
class NewFileSystem:
    """Mount a new file system at a pin (fsopen(2)): ``tmpfs``, ``proc``, ``devpts``."""

    kind: bytes
    pin: int
    options: tuple[tuple[bytes, bytes], ...] = ()
    attributes: MountAttribute = MountAttribute.NONE


@record
class LoopbackUp:
    """Bring up ``lo``, which is down in a new network namespace."""


@record
class PathRule:
    """Landlock rights (linux/landlock.h) at and below a pin."""

    pin: int
    access: int


@record
class PortRule:
    """Landlock rights for a TCP port."""

    port: int
    access: int


@record
class Ruleset:
    """One Landlock layer (landlock_create_ruleset(2)). Only bits that the kernel knows may be set."""

    handled_fs: int
    handled_net: int = 0
    scoped: int = 0
    paths: tuple[PathRule, ...] = ()
    ports: tuple[PortRule, ...] = ()


@record
class Restrict:
    """Put the cell under a Landlock layer. Sets no_new_privs."""

    ruleset: Ruleset


@record
class KeepCapabilities:
    """Drop all capabilities but those of the mask, from the bounding set too (capabilities(7))."""

    mask: int


@record
class Filter:
    """Put the cell under a seccomp filter: `struct sock_filter` in sequence. Sets no_new_privs."""

    program: bytes


CellStep: TypeAlias = (
    Unshare
    | MapIds
    | PidNamespace
    | PrivateMounts
    | Pin
    | CloneTree
    | SetMountAttributes
    | AttachTree
    | NewFileSystem
    | LoopbackUp
    | Restrict
    | KeepCapabilities
    | Filter
)


@record
class ProgramLock:
    """What every program in the cell is under beside the cell itself, from before its first instruction.

    Attributes:
        ruleset: A further Landlock layer, so that a program can neither trace the cell nor speak for it.
        program: Seccomp filter; empty for none.
        capabilities: What is kept, from the bounding set too; None to leave them alone.
        limits: Resource limits (getrlimit(2)): number, soft, hard.
    """

    ruleset: Ruleset | None = None
    program: bytes = b""
    capabilities: int | None = None
    limits: tuple[tuple[int, int, int], ...] = ()


class ProbeKind(IntEnum):
    """An effect to try. Its target lies outside of the cell, where ordinary permissions allow the effect.

    ``READ`` and ``WRITE_BELOW`` name their target: a path whose content the cell must not see, or must see; a directory
    in which a nameless file is made. Those from ``OWN_TCP`` on are controls: the effect is one on what the prober made,
    as a policy allows it. ``GRANTED_PORT`` names a TCP port, in decimal.
    """

    WRITE = 1
    TRUNCATE = 2
    CREATE = 3
    REMOVE = 4
    CHANGE_MODE = 5
    READ = 6
    WRITE_BELOW = 7
    CONNECT_TCP = 8
    FAST_OPEN = 9
    MULTIPATH_TCP = 10
    SEND_UDP = 11
    VSOCK = 12
    SIGNAL = 13
    SET_LIMIT = 14
    TRACE = 15
    READ_ENVIRONMENT = 16
    CONNECT_UNIX = 17
    CONNECT_ABSTRACT = 18
    SEE_PROCESS = 19
    NETLINK = 20
    OWN_TCP = 21
    OWN_UDP = 22
    OWN_SIGNAL = 23
    OWN_TRACE = 24
    OWN_UNIX = 25
    OWN_PAIR = 26
    GRANTED_PORT = 27


@record
class Probe:
    kind: ProbeKind
    target: bytes = b""


@record
class ProbeResult:
    """What a probe did, once without and once with confinement.

    Attributes:
        unconfined: 0: the effect was seen at its target. Else the errno of the attempt; then the probe proves nothing.
        confined: The same from within the cell, by a child under the lock of a program.
    """

    unconfined: int
    confined: int


class LimitMethod(IntEnum):
    NONE = 0
    CGROUP_V2 = 1
    CGROUP_V1 = 2


@record
class CellPlan:
    """What a cell is to be.

    Attributes:
        steps: Applied in order.
        lock: Of every program.
        processes: Most processes that the cell may have at a time; None for no limit.
        memory_bytes: Most memory that the cell may use.
        probes: Tried when the cell is locked, before it runs anything.
        scratch: Existing directory in the world in which the targets of the probes are made, and removed again; it must
            be writable for the world and lie outside of what the cell may write.
        timeout_s: For making it.
    """

    steps: Sequence[CellStep]
    lock: ProgramLock = field(default_factory=ProgramLock)
    processes: int | None = None
    memory_bytes: int | None = None
    probes: Sequence[Probe] = ()
    scratch: bytes = b""
    timeout_s: float = 10.0


class CellStage(IntEnum):
    """Where the making of a cell failed."""

    START = 0
    """It could not be started, or ended, or gave no answer in time (ETIMEDOUT)."""
    STEP = 1
    LOCK = 2
    """The lock of a program could not be applied to a child that tried it."""
    TARGETS = 3
    """The targets of the probes could not be made."""


class CellFailed(Exception):
    """No cell was made, and nothing was left of it.

    Attributes:
        stage: Where it failed.
        step: Number of the step with stage STEP.
        error: errno in numbers of this host.
    """

    def __init__(self, stage: CellStage, step: int, error: int) -> None:
        super().__init__(f"{stage.name} {step}: errno {error}")
        self.stage = stage
        self.step = step
        self.error = error


class CellsUnsupported(Exception):
    """This machine cannot make cells at all."""


@record
class CellReport:
    """A cell that is running.

    Attributes:
        handle: A stream to it; what speaks on it is a warden in its own right.
        processes_by: What holds the limit on processes, and *memory_by* that on memory; the errors tell why nothing.
        probes: One result for each probe of the plan.
    """

    handle: int
    processes_by: LimitMethod
    memory_by: LimitMethod
    processes_error: int
    memory_error: int
    probes: tuple[ProbeResult, ...]
