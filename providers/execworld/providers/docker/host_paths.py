"""What a path of the engine's host means when it is mounted into a container."""

from __future__ import annotations

import posixpath
import re
from typing import Final

_SYSTEM: Final = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/lib64",
    "/proc",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var",
)
_ENGINE_STATE: Final = ("/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet")
_HOMES: Final = re.compile(r"/root|/home(/[^/]+)?|/Users(/[^/]+)?|/var/home(/[^/]+)?")
_ENGINE_SOCKETS: Final = (
    "/run/docker.sock",
    "/var/run/docker.sock",  # where that is no link
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/run/buildkit/buildkitd.sock",
    "/run/cri-dockerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/user",  # those of engines without root are below
)
_ENGINE_SOCKET_NAME: Final = re.compile(
    r"(docker([-.].*)?|containerd([-.].*)?|podman([-.].*)?|crio|buildkitd|cri-dockerd|dockershim)\.sock(\..*)?"
)
_ANY_SOCKET_NAME: Final = re.compile(r".*\.(sock|socket)(\..*)?")


def normal(path: str) -> str:
    """Without the links that every Linux has; `/var/run` is `/run`."""
    path = posixpath.normpath(path if path.startswith("/") else f"/{path}")
    path = path.removeprefix("/") if path.startswith("//") else path
    return path.removeprefix("/var") if contains("/var/run", path) else path


def contains(parent: str, path: str) -> bool:
    return path == parent or path.startswith(parent.rstrip("/") + "/")


def holds_engine_socket(source: str) -> bool:
    """Whether who has *source* can speak to an engine: the socket itself, or a directory above it."""
    path = normal(source)
    return any(contains(path, socket) or contains(socket, path) for socket in _ENGINE_SOCKETS) or bool(
        _ENGINE_SOCKET_NAME.fullmatch(posixpath.basename(path))
    )


def looks_like_socket(source: str) -> bool:
    return bool(_ANY_SOCKET_NAME.fullmatch(posixpath.basename(source)))


def gives_host_away(source: str) -> bool:
    """Whether who may write *source* becomes the host, or the user whose home it is."""
    path = normal(source)
    if _HOMES.fullmatch(path):
        return True
    if any(contains(state, path) or contains(path, state) for state in _ENGINE_STATE):
        return True
    if path == "/" or path in _SYSTEM:
        return True
    return any(
        contains(place, path) for place in ("/boot", "/dev", "/etc", "/proc", "/sys", "/usr/bin", "/usr/sbin")
    )
