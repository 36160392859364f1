"""Open an execution world by its name; no provider is imported but the chosen one."""

from execworld.world.discovery import ProviderListing, list_providers, load_provider
from execworld.world.groups import leaf_errors
from execworld.world.opening import ResolvedWorld, open_world, resolve_world
from execworld.world.root import root_sandbox
from execworld.world.variables import environment_variable

__all__ = [
    "ProviderListing",
    "ResolvedWorld",
    "environment_variable",
    "leaf_errors",
    "list_providers",
    "load_provider",
    "open_world",
    "resolve_world",
    "root_sandbox",
]
