"""Which tools every agent gets, and what they stand on; each is imported when it is started."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from pydantic import BaseModel, Field

from execworld.kernel import Context, Plugin, as_plugin, plugin
from execworld.seams import ConfigurationError
from execworld.tools.guards import GUARDS
from execworld.tools.pipeline import PIPELINE, tool_pipeline
from execworld.tools.registry import TOOLS

SERVICES: Final[Mapping[str, str]] = {"hold_time": "execworld.tools.hold_time"}
"""Plugins that tools stand on, or that hold for all of them: name of the plugin, and where it is."""

TOOL_PLUGINS: Final[Mapping[str, str]] = dict[str, str]()
"""Plugins that give one tool of the same name each: its name, and where it is."""


def load_plugin(name: str, module: str) -> Plugin:
    """The plugin *name* of a module."""
    return as_plugin(getattr(import_module(module), name))


class StandardTools(BaseModel, extra="forbid", frozen=True):
    """Which tools there are, and their options."""

    only: tuple[str, ...] | None = Field(default=None, description="tools that there are; all without it")
    without: tuple[str, ...] = Field(default=(), description="tools that there are not")
    options: dict[str, dict[str, Any]] = Field(
        default_factory=dict[str, dict[str, Any]], description="options by plugin"
    )


@plugin(name="tools", provides=(PIPELINE, TOOLS, GUARDS))
def standard_tools(ctx: Context, config: StandardTools) -> None:
    """The pipeline, the standard tools, and what these stand on.

    Raises:
        ConfigurationError: a name is none of them.
    """
    known = {*TOOL_PLUGINS, *SERVICES}
    for name in (*(config.only or ()), *config.without, *config.options):
        if name not in known:
            hint = f"there are {', '.join(sorted(known))}"
            raise ConfigurationError(f"tools: there is no `{name}`", hint=hint)
    chosen = {
        name: module
        for name, module in TOOL_PLUGINS.items()
        if (config.only is None or name in config.only) and name not in config.without
    }
    ctx.plugin(tool_pipeline)
    for name, module in {**SERVICES, **chosen}.items():
        ctx.plugin(load_plugin(name, module), config.options.get(name), name=name)
