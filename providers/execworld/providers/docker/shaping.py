"""What a container is made of: the options as the engine wants them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from execworld.providers.docker.config import DockerConfig, Mount, MountKind, Port
from execworld.providers.docker.contexts import EngineAddress
from execworld.providers.docker.crossings import capability
from execworld.providers.docker.injecting import PROGRAM
from execworld.providers.docker.labels import Purpose, labels_for
from execworld.providers.docker.seccomp import has_profile, profile_json
from execworld.seams.errors import ConfigurationError, PolicyRefused

_ARCHITECTURES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
_SETFCAP: Final = "CAP_SETFCAP"
_SOCKETS: Final = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What the options do not say, or leave open.

    Attributes:
        image: That the container is made of, by its id.
        architecture: Of the image.
        user: That the warden runs as; empty for that of the image.
        is_root: Whether that is root.
        network: Empty for the engine's default.
        environment: Beside that of the image.
    """

    image: str
    architecture: str
    user: str = ""
    is_root: bool = True
    network: str = ""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])


def is_root(user: str) -> bool:
    """Whether a user, as the engine takes it, is known to be root."""
    return user.partition(":")[0] in ("", "0", "root")


def has_own_profile(config: DockerConfig, architecture: str) -> bool:
    """Whether the container gets our profile, under which programs have to be kept from what cells need."""
    return (
        not config.seccomp
        and config.no_new_privileges
        and has_profile(_ARCHITECTURES.get(architecture, architecture))
    )


def lends_setfcap(config: DockerConfig, shape: Shape) -> bool:
    """Whether the container gets CAP_SETFCAP against what was asked for.

    Without it root cannot map itself into the namespaces of a cell. Programs have to be kept from it.
    """
    dropped, added = _capabilities(config.cap_drop), _capabilities(config.cap_add)
    return (
        shape.is_root
        and has_own_profile(config, shape.architecture)
        and not dropped.isdisjoint({"CAP_ALL", _SETFCAP})
        and added.isdisjoint({"CAP_ALL", _SETFCAP})
    )


def _capabilities(names: Iterable[str]) -> set[str]:
    return {capability(name) for name in names}


def configuration(config: DockerConfig, shape: Shape, name: str) -> dict[str, Any]:
    """The request for a container of the given *name*."""
    ports = [Port.parse(text) for text in config.ports]
    document: dict[str, Any] = {
        "Image": shape.image,
        # The image's own entrypoint and command are not run, and no check of its health either: the engine would run
        # that beside the warden.
        "Entrypoint": [PROGRAM],
        "Cmd": [],
        "Healthcheck": {"Test": ["NONE"]},
        "Env": [f"{key}={value}" for key, value in shape.environment.items()],
        "Labels": labels_for(Purpose.WORLD, name, lifetime_s=config.lifetime_s, keep=config.keep),
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        # When the one client is gone, so is the input of the warden, which then ends.
        "StdinOnce": True,
        "Tty": False,
        "ExposedPorts": {f"{port.container}/{port.protocol}": {} for port in ports},
        "HostConfig": _host_configuration(config, shape, ports),
    }
    if shape.user:
        document["User"] = shape.user
    return document


def refuse_engine_sockets(config: DockerConfig, address: EngineAddress) -> None:
    """Refuse mounts that bring a socket of an engine in: whoever has it is root on the host.

    Raises:
        PolicyRefused
    """
    if config.allow_engine_socket:
        return
    sockets = {*_SOCKETS, *([address.url.removeprefix("unix://")] if address.scheme == "unix" else [])}
    real = {os.path.realpath(path) for path in sockets} | sockets
    for mount in config.all_mounts:
        sources = {os.path.normpath(mount.source), os.path.realpath(mount.source)}
        if mount.kind is MountKind.BIND and any(
            Path(path).is_relative_to(source) for path in real for source in sources
        ):
            raise PolicyRefused(
                f"the mount of {mount.source} brings in the socket of an engine",
                op="world.open",
                hint="mount less; or set the option `allow_engine_socket`, and the container owns the host",
            )


def _host_configuration(config: DockerConfig, shape: Shape, ports: list[Port]) -> dict[str, Any]:
    lent = lends_setfcap(config, shape)
    found: dict[str, Any] = {
        "AutoRemove": not config.keep,
        # The default driver would write each byte of the protocol to a file of the host.
        "LogConfig": {"Type": "none", "Config": {}},
        "Init": False,
        "Mounts": [_mount(mount) for mount in config.all_mounts if mount.kind is not MountKind.TMPFS],
        "Tmpfs": {
            mount.target: _tmpfs_options(mount)
            for mount in config.all_mounts
            if mount.kind is MountKind.TMPFS
        },
        "ReadonlyRootfs": config.read_only,
        "CapDrop": [name for name in config.cap_drop if not lent or capability(name) != _SETFCAP],
        "CapAdd": [*config.cap_add, *([_SETFCAP] if lent else [])],
        "SecurityOpt": _security_options(config, shape.architecture),
        # Loopback only: what listens in the container is nobody's business but that of this host.
        "PortBindings": {
            f"{port.container}/{port.protocol}": [{"HostIp": "127.0.0.1", "HostPort": str(port.host or "")}]
            for port in ports
        },
    }
    if shape.network:
        found["NetworkMode"] = shape.network
    if config.runtime:
        found["Runtime"] = config.runtime
    if config.memory_bytes is not None:
        found["Memory"] = found["MemorySwap"] = config.memory_bytes
    if config.cpus is not None:
        found["NanoCpus"] = int(config.cpus * 1e9)
    if config.pids is not None:
        found["PidsLimit"] = config.pids
    return found


def _mount(mount: Mount) -> dict[str, Any]:
    found: dict[str, Any] = {
        "Type": str(mount.kind),
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": mount.read_only,
    }
    if mount.kind is MountKind.BIND:
        found["BindOptions"] = {"Propagation": "rprivate"}
    return found


def _tmpfs_options(mount: Mount) -> str:
    size = "" if mount.size_bytes is None else f",size={mount.size_bytes}"
    return f"rw,nosuid,nodev,{'exec' if mount.executable else 'noexec'},mode=1777{size}"


def _security_options(config: DockerConfig, architecture: str) -> list[str]:
    found = ["no-new-privileges"] if config.no_new_privileges else []
    profile = _seccomp(config, architecture)
    return [*found, f"seccomp={profile}"] if profile else found


def _seccomp(config: DockerConfig, architecture: str) -> str:
    """The profile as the engine wants it; empty for the engine's own.

    Raises:
        ConfigurationError: there is no profile at that path. The engine would say so only when it starts the container.
    """
    chosen = config.seccomp
    if has_own_profile(config, architecture):
        return profile_json()
    if chosen in ("", "engine"):
        return ""
    if chosen == "unconfined":
        return chosen
    try:
        document: object = json.loads(Path(chosen).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"world `docker`: {chosen} is no seccomp profile: {error}",
            hint="give the path of a JSON file, or `engine` or `unconfined`",
        ) from error
    if not isinstance(document, dict) or "defaultAction" not in document:
        raise ConfigurationError(f"world `docker`: {chosen} is no seccomp profile: it has no defaultAction")
    return json.dumps(document)
