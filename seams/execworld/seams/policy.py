"""`SandboxPolicy`: what a command may do inside the world."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from enum import StrEnum
from types import MappingProxyType

from execworld.seams.enforcement import Dimension
from execworld.seams.errors import ConfigurationError
from execworld.seams.values import value_class


class SandboxMode(StrEnum):
    READ_ONLY = "read-only"
    WORKSPACE_WRITE = "workspace-write"
    FULL_ACCESS = "full-access"


class NetworkMode(StrEnum):
    NONE = "none"
    PORTS = "ports"
    ALL = "all"


@value_class
class NetworkPolicy:
    """Which network a command may use.

    Attributes:
        mode: Nothing, TCP connections to the given ports only, or everything.
        tcp_ports: Ports that may be connected to; only with mode ``ports``.
    """

    mode: NetworkMode = NetworkMode.ALL
    tcp_ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "tcp_ports", tuple(sorted(set(self.tcp_ports))))
        if (self.mode is NetworkMode.PORTS) != bool(self.tcp_ports):
            raise ConfigurationError("network mode `ports` and a list of TCP ports go together")
        if any(not 1 <= port <= 65535 for port in self.tcp_ports):
            raise ConfigurationError(f"TCP port out of range 1-65535: {self.tcp_ports}")


@value_class
class ResourceLimits:
    """Bounds on everything that one view runs. None means no bound.

    Attributes:
        processes: At a time, in the whole view; a world may add a score for its own that share the view.
        memory_bytes: Of the whole view.
        cpu_s: Of each process by itself, rounded up to whole seconds; one that reaches it is killed.
        file_size_bytes: Largest size to which any one process may make a file grow.
        wall_s: Of each command.
        output_bytes: Of each command.
    """

    processes: int | None = None
    memory_bytes: int | None = None
    cpu_s: float | None = None
    file_size_bytes: int | None = None
    wall_s: float | None = None
    output_bytes: int | None = None

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not None and (isinstance(value, bool) or not value > 0 or math.isinf(value)):
                raise ConfigurationError(f"limit {item.name} must be a positive number, got {value!r}")


class Requirement(StrEnum):
    """Which of the asked dimensions must be enforced."""

    DEFAULT = "default"
    STRICT = "strict"


_REPORTED_ONLY = frozenset({Dimension.FS_METADATA, Dimension.PROC_VISIBILITY})
_LIMIT_DIMENSIONS = MappingProxyType(
    {
        "processes": Dimension.LIMIT_PROCESSES,
        "memory_bytes": Dimension.LIMIT_MEMORY,
        "cpu_s": Dimension.LIMIT_CPU,
        "file_size_bytes": Dimension.LIMIT_FILE_SIZE,
        "wall_s": Dimension.LIMIT_WALL,
        "output_bytes": Dimension.LIMIT_OUTPUT,
    }
)


@value_class
class SandboxPolicy:
    """What a command and a file operation may do. Paths are the world's and are pinned when the view is made.

    Attributes:
        mode: ``read-only``, ``workspace-write`` or ``full-access``.
        workspace: The directory that work happens in; required by ``workspace-write``.
        read_roots: When given, only these, the workspace, the write roots, the view's own temp and cache, and what
            programs need to start (`/usr`, `/bin`, `/sbin`, `/lib*`, `/etc`, `/opt`, `/proc`, harmless devices) may be
            read.
        write_roots: Further directories that may be written.
        hidden: Paths whose content may not be read. Must exist, and contain nothing that the policy grants. What is
            hidden is what is there when the view is made: where somebody outside replaces it, the view is lost, though
            a program that has waited for that moment may have read it by then.
        network: Which network may be used.
        limits: Bounds on processes, memory and so on.
        environment: Names that are let through from the host's environment beside the built-in allow-list.
        require: Which asked dimensions must be enforced.
        require_dimensions: Single dimensions whose requirement differs from that.
    """

    mode: SandboxMode
    workspace: str | None = None
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    environment: tuple[str, ...] = ()
    require: Requirement = Requirement.DEFAULT
    require_dimensions: Mapping[Dimension, bool] = field(
        default_factory=lambda: MappingProxyType(dict[Dimension, bool]())
    )

    def __post_init__(self) -> None:
        for name in ("read_roots", "write_roots", "hidden", "environment"):
            object.__setattr__(self, name, tuple(sorted(set(getattr(self, name)))))
        ordered = {d: self.require_dimensions[d] for d in Dimension if d in self.require_dimensions}
        object.__setattr__(self, "require_dimensions", MappingProxyType(ordered))
        if self.mode is SandboxMode.WORKSPACE_WRITE and not self.workspace:
            raise ConfigurationError(
                "policy workspace-write needs a workspace", hint="name the directory that may be written"
            )
        if self.mode is not SandboxMode.WORKSPACE_WRITE and self.write_roots:
            raise ConfigurationError(f"write roots make no sense with mode {self.mode}")
        for path in (*(filter(None, [self.workspace])), *self.read_roots, *self.write_roots, *self.hidden):
            if not path.startswith("/") or "\0" in path:
                raise ConfigurationError(f"policy path must be absolute and free of NUL: {path!r}")

    @classmethod
    def read_only(
        cls, workspace: str | None = None, *, network: NetworkPolicy | None = None
    ) -> SandboxPolicy:
        """Everything may be read, nothing may be written."""
        return cls(SandboxMode.READ_ONLY, workspace, network=network or NetworkPolicy())

    @classmethod
    def workspace_write(
        cls, workspace: str, *, write_roots: Iterable[str] = (), network: NetworkPolicy | None = None
    ) -> SandboxPolicy:
        """Everything may be read; the workspace, the write roots and the world's private temp may be written."""
        return cls(
            SandboxMode.WORKSPACE_WRITE,
            workspace,
            write_roots=tuple(write_roots),
            network=network or NetworkPolicy(),
        )

    @classmethod
    def full_access(cls) -> SandboxPolicy:
        """No restriction inside the world."""
        return cls(SandboxMode.FULL_ACCESS)

    @property
    def confines(self) -> bool:
        """Whether any dimension is asked for; False only for plain full access."""
        return bool(self.asked())

    def asked(self) -> frozenset[Dimension]:
        """The dimensions that this policy restricts (the table of the policy reference)."""
        dimensions: set[Dimension] = set()
        if self.mode is not SandboxMode.FULL_ACCESS:
            dimensions |= {
                Dimension.FS_WRITE,
                Dimension.FS_METADATA,
                Dimension.IPC_SIGNAL,
                Dimension.IPC_TRACE,
                Dimension.IPC_UNIX,
                Dimension.KILL_TREE,
                Dimension.PROC_VISIBILITY,
            }
        if self.hidden or self.read_roots:
            dimensions.add(Dimension.FS_READ)
        if self.network.mode is not NetworkMode.ALL:
            dimensions |= {Dimension.NET_TCP, Dimension.NET_UDP, Dimension.NET_OTHER}
        dimensions |= {d for name, d in _LIMIT_DIMENSIONS.items() if getattr(self.limits, name) is not None}
        return frozenset(dimensions)

    def required(self) -> frozenset[Dimension]:
        """The asked dimensions without whose enforcement nothing may run."""
        asked = self.asked()
        chosen = asked if self.require is Requirement.STRICT else asked - _REPORTED_ONLY
        return frozenset(d for d in asked if self.require_dimensions.get(d, d in chosen))

    def as_dict(self) -> dict[str, object]:
        return {
            "mode": str(self.mode),
            "workspace": self.workspace,
            "read_roots": list(self.read_roots),
            "write_roots": list(self.write_roots),
            "hidden": list(self.hidden),
            "network": {"mode": str(self.network.mode), "tcp_ports": list(self.network.tcp_ports)},
            "limits": {item.name: getattr(self.limits, item.name) for item in fields(self.limits)},
            "environment": list(self.environment),
            "require": str(self.require),
            "require_dimensions": {str(d): wanted for d, wanted in self.require_dimensions.items()},
        }

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def digest(self) -> str:
        """Identifies the policy: equal policies have equal digests, on every host and in every release of this form."""
        canonical = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("utf-8", "surrogateescape")).hexdigest()[:16]
