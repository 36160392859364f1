"""The docker world: a container that is made for it, or one that runs already."""

from execworld.providers.docker.config import DockerConfig
from execworld.providers.docker.provider import provider

__all__ = ["DockerConfig", "provider"]
