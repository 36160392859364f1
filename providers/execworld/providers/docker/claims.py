"""What the options of a docker world say of it before it is opened."""

from __future__ import annotations

from urllib.parse import urlsplit

from execworld.providers.docker.config import DockerConfig, MountKind
from execworld.providers.docker.crossings import HOST_CAPABILITIES, capability
from execworld.providers.docker.host_paths import gives_host_away, holds_engine_socket
from execworld.seams.identity import Boundary
from execworld.seams.policy import SandboxPolicy
from execworld.seams.provider import WorldClaims


def claims(config: DockerConfig, policy: SandboxPolicy) -> WorldClaims:
    """A container that runs already, and an image that is still to be built, may be anything."""
    return WorldClaims(
        boundary=Boundary.NONE if config.container or _is_fiction(config) else Boundary.CONTAINER,
        images=(config.image,) if config.image else None,
        hosts=_hosts(config),
    )


def _is_fiction(config: DockerConfig) -> bool:
    """Whether options hand out the host, so that the container separates nothing."""
    if config.allow_engine_socket or {capability(name) for name in config.cap_add} & HOST_CAPABILITIES:
        return True
    return any(
        mount.kind is MountKind.BIND
        and (holds_engine_socket(mount.source) or (not mount.read_only and gives_host_away(mount.source)))
        for mount in config.all_mounts
    )


def _hosts(config: DockerConfig) -> tuple[str, ...] | None:
    if config.context or config.from_environment:
        return None
    if not config.host or config.host.startswith("unix://"):
        return ()
    name = urlsplit(config.host).hostname
    return None if name is None else (name,)
