"""The standard tools come and go with their plugins."""

from __future__ import annotations

import pytest

from execworld.kernel import Context, open_kernel, plugin
from execworld.tools.jobs import jobs
from execworld.tools.observations import observe_files
from execworld.tools.registry import TOOLS, ToolRegistry
from execworld.tools.standard.catalog import TOOL_PLUGINS, load_plugin

pytestmark = pytest.mark.anyio

FILES = {"read", "write", "edit", "list", "glob", "grep", "bash"}
JOB_TOOLS = {"job_output", "job_list", "job_kill"}


async def test_tools_are_there_as_long_as_what_they_need() -> None:
    registry = ToolRegistry()

    @plugin(provides=(TOOLS,))
    def tools(ctx: Context) -> None:
        ctx.provide(TOOLS, registry)

    async with open_kernel() as root:
        root.plugin(tools)
        root.plugin(observe_files)
        for name in FILES | JOB_TOOLS:
            root.plugin(load_plugin(TOOL_PLUGINS[name]))
        await root.settle()
        assert set(registry.view(root)) == FILES
        background = root.plugin(jobs)
        await root.settle()
        assert set(registry.view(root)) == FILES | JOB_TOOLS
        await background.dispose()
        await root.settle()
        assert set(registry.view(root)) == FILES
