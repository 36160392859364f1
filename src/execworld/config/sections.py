"""The sections `policy` and `floor` of a document, and the values that they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypeAlias

from execworld.seams import (
    Boundary,
    ConfigurationError,
    Dimension,
    NetworkMode,
    NetworkPolicy,
    Requirement,
    ResourceLimits,
    SandboxMode,
    SandboxPolicy,
)
from execworld.seams.floor import Floor

NetworkForm: TypeAlias = Literal["none", "all"] | tuple[int, ...]
_ANY_PLACE = "/"


@dataclass(frozen=True, slots=True)
class LimitsSection:
    """Bounds by name; what is not there is not bounded."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    processes: int | None = field(default=None, metadata={"help": "at a time, in the whole view"})
    memory_bytes: int | None = field(default=None, metadata={"help": "of the whole view"})
    cpu_s: float | None = field(default=None, metadata={"help": "of each process"})
    file_size_bytes: int | None = field(default=None, metadata={"help": "of a file that a process writes"})
    wall_s: float | None = field(default=None, metadata={"help": "of each command"})
    output_bytes: int | None = field(default=None, metadata={"help": "of each command"})

    def __post_init__(self) -> None:
        self.limits()

    def limits(self) -> ResourceLimits:
        return ResourceLimits(**{item.name: getattr(self, item.name) for item in fields(self)})


@dataclass(frozen=True, slots=True)
class PolicySection:
    """What a command and a file operation may do in the world. All paths are the world's."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    mode: SandboxMode = SandboxMode.WORKSPACE_WRITE
    workspace: str | None = None
    read_roots: tuple[str, ...] = ()
    write_roots: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: NetworkForm = "all"
    limits: LimitsSection = field(default_factory=LimitsSection)
    environment: tuple[str, ...] = ()
    require: Literal["default", "strict"] | Mapping[Dimension | Literal["strict"], bool] = "default"

    def __post_init__(self) -> None:
        self.policy(_ANY_PLACE)  # whatever it is, all else must be right

    def policy(self, usual_workspace: str | None) -> SandboxPolicy:
        """The policy.

        Args:
            usual_workspace: What is written where no workspace is named; None where one must be.

        Raises:
            ConfigurationError: the parts contradict each other.
        """
        workspace = self.workspace
        if workspace is None and self.mode is SandboxMode.WORKSPACE_WRITE:
            workspace = usual_workspace
        if workspace is None and self.mode is SandboxMode.WORKSPACE_WRITE:
            raise ConfigurationError(
                "workspace-write in this world needs a directory of that world",
                hint="name it: `workspace: /DIRECTORY`",
            )
        chosen = {"strict": self.require == "strict"} if isinstance(self.require, str) else self.require
        return SandboxPolicy(
            mode=self.mode,
            workspace=workspace,
            read_roots=self.read_roots,
            write_roots=self.write_roots,
            hidden=self.hidden,
            network=network_of(self.network),
            limits=self.limits.limits(),
            environment=self.environment,
            require=Requirement.STRICT if chosen.get("strict") else Requirement.DEFAULT,
            require_dimensions={
                dimension: wanted for dimension, wanted in chosen.items() if isinstance(dimension, Dimension)
            },
        )


@dataclass(frozen=True, slots=True)
class FloorSection:
    """The least that layers above must hold, too. They can only raise it."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid"}

    boundary: Boundary | None = None
    worlds: tuple[str, ...] | None = None
    mode: SandboxMode | None = None
    require: tuple[Dimension, ...] = ()
    network: NetworkForm | None = None
    limits: LimitsSection = field(default_factory=LimitsSection)
    writable: tuple[str, ...] | None = None
    hidden: tuple[str, ...] = ()
    environment: tuple[str, ...] | None = None
    images: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None
    guards: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for path in (*(self.writable or ()), *self.hidden):
            if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
                raise ConfigurationError(f"a path of a floor is absolute, and has no `..` in it: {path!r}")
        for image in self.images or ():
            if not image or "*" in image[:-1]:
                raise ConfigurationError(f"`*` stands at the end of an image or nowhere: {image!r}")
        for host in self.hosts or ():
            name = host.removeprefix("*.") if host != "*" else "any"
            if not name or "*" in name:
                raise ConfigurationError(f"a host is a name, `*.` and the end of one, or `*`: {host!r}")
        self.floor()

    def floor(self) -> Floor:
        return Floor(
            boundary=self.boundary,
            worlds=self.worlds,
            mode=self.mode,
            require=self.require,
            network=None if self.network is None else network_of(self.network),
            limits=self.limits.limits(),
            writable=self.writable,
            hidden=self.hidden,
            environment=self.environment,
            images=self.images,
            hosts=self.hosts,
            guards=self.guards,
        )


def network_of(form: NetworkForm) -> NetworkPolicy:
    """``none``, ``all``, or the TCP ports that may be connected to."""
    return (
        NetworkPolicy(NetworkMode(form)) if isinstance(form, str) else NetworkPolicy(NetworkMode.PORTS, form)
    )
