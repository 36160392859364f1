"""The plugins that rows may name: the guards that are shipped, and what distributions register."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from pydantic import BaseModel

from execworld.config.registry import PluginType
from execworld.kernel import Plugin, as_plugin
from execworld.policies import (
    hold_floor,
    keep_one_world,
    limit_output,
    limit_time,
    refuse_downgrade,
    scrub_environment,
)
from execworld.seams import ConfigurationError

ENTRY_POINT_GROUP: Final = "execworld.plugins"


class NoOptions(BaseModel, extra="forbid", frozen=True):
    """Nothing can be configured."""


def plugin_type(candidate: object, *, guards: bool = False, summary: str = "") -> PluginType:
    """How a row names *candidate*, which is whatever `execworld.kernel.as_plugin` takes."""
    plugin: Plugin = as_plugin(candidate)
    return PluginType(plugin.config_type or NoOptions, guards=guards, summary=summary, plugin=plugin)


SHIPPED: Final[Mapping[str, PluginType]] = {
    "keep_one_world": plugin_type(keep_one_world, guards=True, summary="refuses services of two worlds"),
    "refuse_downgrade": plugin_type(
        refuse_downgrade, guards=True, summary="refuses a world that holds less than was asked for"
    ),
    "hold_floor": plugin_type(hold_floor, guards=True, summary="refuses a world that is below the floor"),
    "scrub_environment": plugin_type(
        scrub_environment, guards=True, summary="lets no variables of the host through but those named"
    ),
    "limit_output": plugin_type(limit_output, guards=True, summary="bounds what a command may write"),
    "limit_time": plugin_type(limit_time, guards=True, summary="bounds how long a command may run"),
}


LATER: Final[Mapping[str, tuple[str, str]]] = {
    "observe_files": (
        "execworld.tools.observations:observe_files",
        "an agent writes and edits only what it has read, and what nobody else has changed since",
    ),
    "tools": (
        "execworld.tools.standard.catalog:standard_tools",
        "the tools of agents, and the road of their calls",
    ),
}
"""Shipped ones that are imported when a row names them: few compositions do, and it takes as long as all others."""


class InstalledPlugins(Mapping[str, PluginType]):
    """The shipped ones, and those under the entry point group ``execworld.plugins``, imported when they are used."""

    def __init__(self) -> None:
        from importlib.metadata import entry_points

        self._points = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
        for name in self._points:
            if name in SHIPPED or name in LATER:
                message = f"plugin `{name}` is shipped, and a distribution registers another one of that name"
                raise ConfigurationError(message, hint=f"uninstall what registers {self._points[name].value}")

    def __getitem__(self, name: str) -> PluginType:
        if name in SHIPPED:
            return SHIPPED[name]
        if name in LATER:
            place, summary = LATER[name]
            module, _, attribute = place.partition(":")
            return plugin_type(getattr(import_module(module), attribute), summary=summary)
        found: object = self._points[name].load()
        return found if isinstance(found, PluginType) else plugin_type(found)

    def __contains__(self, name: object) -> bool:
        return name in SHIPPED or name in LATER or name in self._points

    def __iter__(self) -> Iterator[str]:
        return iter((*SHIPPED, *LATER, *self._points))

    def __len__(self) -> int:
        return len(SHIPPED) + len(LATER) + len(self._points)
