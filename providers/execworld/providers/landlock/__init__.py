"""The landlock world: this host and this user, under a policy that the kernel holds."""

from execworld.providers.landlock.provider import LandlockConfig, provider

__all__ = ["LandlockConfig", "provider"]
