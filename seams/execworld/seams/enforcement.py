"""What is enforced, dimension by dimension, and by what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType

from execworld.seams.values import value_class


class Dimension(StrEnum):
    """One kind of effect that a policy may restrict and a kernel may or may not hold."""

    FS_WRITE = "fs.write"
    FS_READ = "fs.read"
    FS_METADATA = "fs.metadata"
    NET_TCP = "net.tcp"
    NET_UDP = "net.udp"
    NET_OTHER = "net.other"
    IPC_SIGNAL = "ipc.signal"
    IPC_TRACE = "ipc.trace"
    IPC_UNIX = "ipc.unix"
    PROC_VISIBILITY = "proc.visibility"
    KILL_TREE = "kill.tree"
    LIMIT_PROCESSES = "limit.processes"
    LIMIT_MEMORY = "limit.memory"
    LIMIT_CPU = "limit.cpu"
    LIMIT_FILE_SIZE = "limit.file_size"
    LIMIT_WALL = "limit.wall"
    LIMIT_OUTPUT = "limit.output"


class EnforcementState(StrEnum):
    ENFORCED = "enforced"
    PARTIAL = "partial"
    ABSENT = "absent"


@value_class
class DimensionEnforcement:
    """One row of the report.

    Attributes:
        asked: The policy restricts this dimension.
        required: The policy demands that it be enforced, or nothing may run.
        state: What holds, as proven by a probe in the place itself, never by version numbers alone.
        by: What enforces it, for example ``landlock abi 7`` or ``mount namespace``; empty when absent.
        why_not: Why it is not fully enforced; empty when it is.
    """

    asked: bool
    required: bool
    state: EnforcementState
    by: str = ""
    why_not: str = ""


@value_class
class Enforcement:
    """The proven enforcement of one view, one entry a dimension. A dimension without an entry is absent."""

    entries: Mapping[Dimension, DimensionEnforcement] = field(
        default_factory=lambda: MappingProxyType(dict[Dimension, DimensionEnforcement]())
    )

    def __post_init__(self) -> None:
        ordered = {dimension: self.entries[dimension] for dimension in Dimension if dimension in self.entries}
        object.__setattr__(self, "entries", MappingProxyType(ordered))

    def __iter__(self) -> Iterator[tuple[Dimension, DimensionEnforcement]]:
        return iter(self.entries.items())

    def state(self, dimension: Dimension) -> EnforcementState:
        entry = self.entries.get(dimension)
        return EnforcementState.ABSENT if entry is None else entry.state

    def missing(self) -> tuple[Dimension, ...]:
        """Required dimensions that are not fully enforced. Anything here means that nothing may run."""
        return tuple(d for d, e in self if e.required and e.state is not EnforcementState.ENFORCED)

    def unenforced(self) -> tuple[Dimension, ...]:
        """Asked but not fully enforced dimensions: what must be shown to whoever opened the world."""
        return tuple(d for d, e in self if e.asked and e.state is not EnforcementState.ENFORCED)

    def as_dict(self) -> dict[str, dict[str, object]]:
        return {
            str(dimension): {
                "asked": entry.asked,
                "required": entry.required,
                "state": str(entry.state),
                "by": entry.by,
                "why_not": entry.why_not,
            }
            for dimension, entry in self
        }
