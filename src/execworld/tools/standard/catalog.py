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

SERVICES: Final[Mapping[str, str]] = {
    "hold_time": "execworld.tools.hold_time:hold_time",
    "jobs": "execworld.tools.jobs:jobs",
    "terminals": "execworld.tools.terminals.plugin:terminals",
}
"""Plugins that tools stand on, or that hold for all of them, and where each is."""

_HERE: Final = "execworld.tools.standard"
TOOL_PLUGINS: Final[Mapping[str, str]] = {
    "bash": f"{_HERE}.plugins:tool_bash",
    "bash_persistent": f"{_HERE}.bash_persistent:bash_persistent",
    "edit": f"{_HERE}.plugins:tool_edit",
    "glob": f"{_HERE}.plugins:tool_glob",
    "grep": f"{_HERE}.plugins:tool_grep",
    "job_kill": f"{_HERE}.plugins:tool_job_kill",
    "job_list": f"{_HERE}.plugins:tool_job_list",
    "job_output": f"{_HERE}.plugins:tool_job_output",
    "list": f"{_HERE}.plugins:tool_list",
    "read": f"{_HERE}.plugins:tool_read",
    "terminal_close": f"{_HERE}.terminal_close:terminal_close",
    "terminal_list": f"{_HERE}.terminal_list:terminal_list",
    "terminal_open": f"{_HERE}.terminal_open:terminal_open",
    "terminal_read": f"{_HERE}.terminal_read:terminal_read",
    "terminal_send": f"{_HERE}.terminal_send:terminal_send",
    "terminal_signal": f"{_HERE}.terminal_signal:terminal_signal",
    "write": f"{_HERE}.plugins:tool_write",
}
"""By the name of the one tool that each gives: where the plugin is."""


def load_plugin(place: str) -> Plugin:
    """The plugin at a *place* of the tables above."""
    module, _, name = place.partition(":")
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
        name: place
        for name, place in TOOL_PLUGINS.items()
        if (config.only is None or name in config.only) and name not in config.without
    }
    ctx.plugin(tool_pipeline)
    for name, place in {**SERVICES, **chosen}.items():
        if name not in config.without:
            ctx.plugin(load_plugin(place), config.options.get(name), name=name)
