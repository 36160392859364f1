"""The local world: this host, this user, no confinement."""

from execworld.providers.local.provider import LocalConfig, provider

__all__ = ["LocalConfig", "provider"]
