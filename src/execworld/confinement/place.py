"""Where a cell is to be made: what the kernel and the rights of the warden allow there."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntFlag
from types import MappingProxyType
from typing import TypeAlias

from execworld.confinement.installation import NOT_HERE, Installation
from execworld.machine.warden.facts import WardenFacts
from execworld.seams.values import record


class NamespaceBit(IntFlag):
    """What unshare(2) gave to the warden's probe (section 5 of its protocol)."""

    USER = 1
    MOUNT = 2
    PID = 4
    NETWORK = 8
    IPC = 16


class CgroupBit(IntFlag):
    """What the warden can do with control groups (section 5 of its protocol)."""

    V2_MEMORY = 16
    V2_PROCESSES = 32
    V1_PROCESSES = 64
    V1_MEMORY = 128
    V2_WITHHELD = 256
    """Version 2 has such a controller here, and no group of the warden can be given it."""


@record
class Place:
    """What is known of a place before anything is tried in it. Hints only: attempts and probes decide.

    Attributes:
        uid: Effective, like *gid*.
        landlock_abi: 0 for none; *landlock_error* is the errno that told so.
        namespaces: `NamespaceBit`; *cgroup* `CgroupBit`.
        home: Of the user; empty when not known.
        installation: What the host runs, where this is the place that the host runs in.
    """

    arch: str
    kernel: str
    uid: int
    gid: int
    landlock_abi: int
    landlock_errata: int = 0
    landlock_error: int = 0
    namespaces: int = 0
    cgroup: int = 0
    home: bytes = b""
    installation: Installation = NOT_HERE

    @classmethod
    def of(cls, facts: WardenFacts) -> Place:
        return cls(
            arch=facts.machine.arch,
            kernel=facts.machine.kernel,
            uid=facts.machine.uid,
            gid=facts.machine.gid,
            landlock_abi=facts.landlock_abi,
            landlock_errata=facts.landlock_errata,
            landlock_error=facts.landlock_error,
            namespaces=facts.namespaces,
            cgroup=facts.cgroup,
            home=facts.machine.home,
        )

    @property
    def counts_processes(self) -> bool:
        return bool(self.cgroup & (CgroupBit.V2_PROCESSES | CgroupBit.V1_PROCESSES))

    @property
    def bounds_memory(self) -> bool:
        return bool(self.cgroup & (CgroupBit.V2_MEMORY | CgroupBit.V1_MEMORY))

    @property
    def withholds_controllers(self) -> bool:
        return bool(self.cgroup & CgroupBit.V2_WITHHELD)


@record
class CellDirectories:
    """Existing directories of the world, resolved, that a cell uses beside those of its policy.

    Attributes:
        temp: Private to the world and shared by its views that may write; TMPDIR of all.
        cache: Private and writable; programs are told to keep their caches there.
        scratch: For the targets of probes. Outside of all that a cell may write, or hides.
    """

    temp: bytes
    cache: bytes
    scratch: bytes


class PathKind(Enum):
    DIRECTORY = "directory"
    OTHER = "other"
    """Anything else that can be opened as it is: a file, a device, a socket."""
    PROCESS_TABLE = "process table"
    """A mount of procfs beside the one at /proc."""
    LINK = "link"
    MISSING = "missing"


PathKinds: TypeAlias = Mapping[bytes, PathKind]

NOTHING_KNOWN: PathKinds = MappingProxyType(dict[bytes, PathKind]())
