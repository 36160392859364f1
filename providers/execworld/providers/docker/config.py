"""Options of the docker world."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar, Final

from execworld.seams.errors import ConfigurationError

_IMAGE: Final = re.compile(r"[A-Za-z0-9][\w.:/@+-]*", re.ASCII)
_CONTAINER: Final = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_VOLUME: Final = re.compile(r"[A-Za-z0-9][\w.-]+", re.ASCII)
_PORT: Final = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})(?:/(tcp|udp))?", re.ASCII)
_VARIABLE: Final = re.compile(r"[^=\0]+")
_FORBID: Final = MappingProxyType({"extra": "forbid"})


def _refuse(problem: str, hint: str = "") -> ConfigurationError:
    return ConfigurationError(f"world `docker`: {problem}", hint=hint)


class MountKind(StrEnum):
    """What is mounted."""

    BIND = "bind"
    VOLUME = "volume"
    TMPFS = "tmpfs"


class PullPolicy(StrEnum):
    """When an image is fetched from its registry."""

    MISSING = "missing"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that is mounted into the container.

    Attributes:
        target: Where, in the container.
        kind: ``bind``, ``volume`` or ``tmpfs``.
        source: A path of the engine's host, or the name of a volume; nothing for a tmpfs.
        read_only: Whether it may not be written.
        size_bytes: Bound of a tmpfs.
        executable: Whether programs may be run from a tmpfs.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = dict(_FORBID)

    target: str
    kind: MountKind = MountKind.BIND
    source: str = ""
    read_only: bool = False
    size_bytes: int | None = None
    executable: bool = False

    def __post_init__(self) -> None:
        _check_absolute("the target of a mount", self.target)
        if self.target == "/":
            raise _refuse("nothing can be mounted over the root of the container")
        if self.kind is MountKind.BIND:
            _check_absolute("the source of a bind mount", self.source)
        elif self.kind is MountKind.VOLUME and not _VOLUME.fullmatch(self.source):
            raise _refuse(f"no name of a volume: {self.source!r}")
        elif self.kind is MountKind.TMPFS and (self.source or self.read_only):
            raise _refuse(f"a tmpfs has no source and is not read-only: {self.target}")
        if self.kind is not MountKind.TMPFS and (self.size_bytes is not None or self.executable):
            raise _refuse(f"`size_bytes` and `executable` are for a tmpfs, not for {self.target}")
        if self.size_bytes is not None and self.size_bytes <= 0:
            raise _refuse(f"the size of {self.target} must be positive")


@dataclass(frozen=True, slots=True)
class Build:
    """An image that is built.

    Attributes:
        context: Directory of this host that is sent to the engine.
        dockerfile: In that directory.
        target: Stage to stop at; empty for the last.
        args: For the ARG lines. They stay visible in the history of the image, so they are no place for secrets.
    """

    __pydantic_config__: ClassVar[dict[str, Any]] = dict(_FORBID)

    context: str
    dockerfile: str = "Dockerfile"
    target: str = ""
    args: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        if not self.context or "\0" in self.context:
            raise _refuse(f"no directory to build from: {self.context!r}")
        path = os.path.normpath(self.dockerfile)
        if os.path.isabs(path) or path.partition("/")[0] in (".", ".."):
            raise _refuse(f"the Dockerfile lies outside the directory that is built: {self.dockerfile}")

    @classmethod
    def parse(cls, text: str) -> Build:
        """A directory; or, as on a command line, a mapping in JSON."""
        if not text.startswith("{"):
            return cls(text)
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError) as error:
            if isinstance(error, ConfigurationError):
                raise
            raise _refuse(f"`build` is neither a directory nor a mapping: {error}") from error


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the container that is reached from the loopback interface of the engine's host.

    Attributes:
        container: In the container.
        host: On the host; None for one that is free.
        protocol: ``tcp`` or ``udp``.
    """

    container: int
    host: int | None = None
    protocol: str = "tcp"

    @classmethod
    def parse(cls, text: str) -> Port:
        match = _PORT.fullmatch(text)
        numbers = [] if match is None else [int(number) for number in match.groups()[:2] if number]
        if match is None or not all(0 < number < 65536 for number in numbers):
            raise _refuse(f"no port: {text!r}", "write it as CONTAINER, HOST:CONTAINER or HOST:CONTAINER/udp")
        host = int(match[1]) if match[1] else None
        return cls(int(match[2]), host, match[3] or "tcp")


@dataclass(frozen=True, slots=True)
class DockerConfig:
    """Options of the docker world. Exactly one of `image`, `build` and `container` says which container."""

    __pydantic_config__: ClassVar[dict[str, Any]] = dict(_FORBID)

    image: str = field(
        default="", metadata={"help": "image that a container is made of, and removed at the end"}
    )
    build: Build | str | None = field(
        default=None,
        metadata={
            "help": (
                "directory with the Dockerfile that the image is built from; "
                "or a mapping: context, dockerfile, args, target"
            )
        },
    )
    container: str = field(
        default="",
        metadata={"help": "name or id of a running container that is joined, and left as it was found"},
    )

    pull: PullPolicy = field(
        default=PullPolicy.MISSING, metadata={"help": "when the image is fetched: missing, always or never"}
    )
    platform: str = field(default="", metadata={"help": "platform of the image, for example linux/arm64"})
    runtime: str = field(default="", metadata={"help": "container runtime of the engine, for example runsc"})

    user: str = field(
        default="",
        metadata={
            "help": "user, or user:group, instead of that of the image; with `workspace` the calling user"
        },
    )
    env: Mapping[str, str] = field(
        default_factory=dict[str, str], metadata={"help": "environment beside that of the image"}
    )
    start_entrypoint: bool = field(
        default=False,
        metadata={"help": "run the image's own entrypoint in the background, as a command of the world"},
    )

    workspace: str = field(
        default="", metadata={"help": "directory of this host that is mounted at `workspace_target`"}
    )
    workspace_volume: str = field(default="", metadata={"help": "volume that is mounted there instead"})
    workspace_target: str = field(
        default="/workspace", metadata={"help": "where the workspace is, in the container"}
    )
    mounts: tuple[Mount, ...] = field(default=(), metadata={"help": "further mounts"})
    allow_engine_socket: bool = field(
        default=False,
        metadata={"help": "let a mount bring in the engine's socket, with which the container owns the host"},
    )

    network: str = field(
        default="",
        metadata={
            "help": (
                "none, bridge, host or the name of a network; without it none for a policy without network, "
                "else the engine's default"
            )
        },
    )
    ports: tuple[str, ...] = field(
        default=(),
        metadata={"help": "ports that are published on the loopback interface: CONTAINER or HOST:CONTAINER"},
    )

    memory_bytes: int | None = field(default=None, metadata={"help": "bound of memory and swap together"})
    cpus: float | None = field(default=None, metadata={"help": "bound of processors, for example 1.5"})
    pids: int | None = field(default=None, metadata={"help": "bound of processes and threads"})

    read_only: bool = field(
        default=False, metadata={"help": "mount the root read-only, with a tmpfs at /tmp"}
    )
    cap_drop: tuple[str, ...] = field(
        default=(), metadata={"help": "capabilities that are taken away, ALL for all"}
    )
    cap_add: tuple[str, ...] = field(default=(), metadata={"help": "capabilities that are given"})
    no_new_privileges: bool = field(
        default=True, metadata={"help": "let no program gain rights, as sudo does"}
    )
    seccomp: str = field(
        default="",
        metadata={
            "help": (
                "filter of system calls: empty for our own profile, `engine` for the engine's, `unconfined`, "
                "or the path of a profile"
            )
        },
    )

    keep: bool = field(
        default=False, metadata={"help": "leave the container, stopped, when the world is closed"}
    )
    lifetime_s: float = field(
        default=7 * 86_400.0,
        metadata={
            "help": "after this time `execworld clean` takes the container for forgotten, if it cannot ask its owner"
        },
    )

    host: str = field(
        default="",
        metadata={"help": "address of the engine: unix:///path, tcp://host:port or ssh://user@host:port"},
    )
    context: str = field(default="", metadata={"help": "context of the docker command that names the engine"})
    from_environment: bool = field(
        default=False, metadata={"help": "let DOCKER_HOST, DOCKER_CONTEXT and their kin name the engine"}
    )
    engine_timeout_s: float = field(
        default=60.0, metadata={"help": "how long the engine may take for one answer"}
    )

    warden: str = field(
        default="", metadata={"help": "path of another warden than the one that is installed"}
    )

    def __post_init__(self) -> None:
        named = [name for name in ("image", "build", "container") if getattr(self, name)]
        if len(named) != 1:
            raise _refuse(
                "it needs an image, a build or a container"
                if not named
                else f"{' and '.join(f'`{name}`' for name in named)} exclude each other",
                "name it: docker://IMAGE for a new container, docker+attach://CONTAINER for one that runs",
            )
        if self.image and not _IMAGE.fullmatch(self.image):
            raise _refuse(f"no name of an image: {self.image!r}")
        if self.container and not _CONTAINER.fullmatch(self.container):
            raise _refuse(f"no name of a container: {self.container!r}")
        if self.build is not None and self.pull is PullPolicy.NEVER:
            raise _refuse(
                "an engine that builds pulls the base that it lacks", "`pull` set to never needs an image"
            )
        if isinstance(self.build, str):
            object.__setattr__(self, "build", Build.parse(self.build))
        self._check_workspace()
        for name, value in self.env.items():
            if not _VARIABLE.fullmatch(name) or "\0" in value:
                raise _refuse(f"no name and value of an environment variable: {name!r}")
        for text in self.ports:
            Port.parse(text)
        for name in ("memory_bytes", "cpus", "pids"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise _refuse(f"`{name}` must be positive")
        for name in ("lifetime_s", "engine_timeout_s"):
            if not 1 <= getattr(self, name) <= 366 * 86_400:
                raise _refuse(f"`{name}` must lie between a second and a year")
        if self.warden and not os.path.isabs(self.warden):
            raise _refuse(f"the path of the warden is not absolute: {self.warden}")

    def _check_workspace(self) -> None:
        if self.workspace and self.workspace_volume:
            raise _refuse("`workspace` and `workspace_volume` exclude each other")
        _check_absolute("`workspace_target`", self.workspace_target)
        if self.workspace:
            _check_absolute("`workspace`", self.workspace)
        if self.workspace_volume and not _VOLUME.fullmatch(self.workspace_volume):
            raise _refuse(f"no name of a volume: {self.workspace_volume!r}")

    @property
    def all_mounts(self) -> tuple[Mount, ...]:
        """Those that were asked for in any way, the workspace first."""
        found: list[Mount] = []
        if self.workspace:
            found.append(Mount(self.workspace_target, MountKind.BIND, self.workspace))
        if self.workspace_volume:
            found.append(Mount(self.workspace_target, MountKind.VOLUME, self.workspace_volume))
        found += self.mounts
        if self.read_only and all(mount.target != "/tmp" for mount in found):  # noqa: S108 - a path of the container
            found.append(Mount("/tmp", MountKind.TMPFS, executable=True))  # noqa: S108 - as above
        return tuple(found)

    @property
    def has_workspace(self) -> bool:
        return bool(self.workspace or self.workspace_volume)


def config_from_url(url: str) -> Mapping[str, Any]:
    """Options of ``docker://IMAGE`` or ``docker+attach://CONTAINER``.

    Raises:
        ConfigurationError: it is neither.
    """
    scheme, _, rest = url.partition("://")
    option = {"docker": "image", "docker+attach": "container"}.get(scheme)
    if option is None or not rest:
        raise _refuse(
            f"no such address: `{scheme}://`" if option is None else f"nothing is named after `{scheme}://`",
            "write it as docker://IMAGE or docker+attach://CONTAINER",
        )
    return {option: rest}


def _check_absolute(what: str, path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise _refuse(f"{what} is no absolute path: {path!r}")
