"""Plugins that share services, and go with everything they did: the kernel of a composition."""

from execworld.kernel.admission import (
    PROVIDING,
    STARTING,
    WORLD_OPENED,
    WORLD_OPENING,
    OpenedWorld,
    Providing,
    Starting,
)
from execworld.kernel.context import Context
from execworld.kernel.effects import AsyncEffect, Effect
from execworld.kernel.fiber import Fiber
from execworld.kernel.graph import FiberDescription, MissingService, ProvidedService, ServiceUse, describe
from execworld.kernel.keys import FS, SANDBOX, SHELL, SUBPROCESS, WORLD, Event, Key, Next, Waterfall
from execworld.kernel.opening import open_kernel
from execworld.kernel.plugins import Plugin, as_plugin, plugin
from execworld.kernel.reporting import ErrorReport, OnError
from execworld.kernel.scopes import Registry, Scope
from execworld.kernel.states import FiberState
from execworld.kernel.updating import CONFIG_UPDATE, ConfigUpdate

__all__ = [
    "CONFIG_UPDATE",
    "FS",
    "PROVIDING",
    "SANDBOX",
    "SHELL",
    "STARTING",
    "SUBPROCESS",
    "WORLD",
    "WORLD_OPENED",
    "WORLD_OPENING",
    "AsyncEffect",
    "ConfigUpdate",
    "Context",
    "Effect",
    "ErrorReport",
    "Event",
    "Fiber",
    "FiberDescription",
    "FiberState",
    "Key",
    "MissingService",
    "Next",
    "OnError",
    "OpenedWorld",
    "Plugin",
    "ProvidedService",
    "Providing",
    "Registry",
    "Scope",
    "ServiceUse",
    "Starting",
    "Waterfall",
    "as_plugin",
    "describe",
    "open_kernel",
    "plugin",
]
