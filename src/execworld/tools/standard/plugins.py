"""Plugins that register the standard tools."""

from __future__ import annotations

from execworld.kernel import Context, plugin
from execworld.tools.jobs import JOBS
from execworld.tools.observations import OBSERVATIONS
from execworld.tools.registry import TOOLS
from execworld.tools.standard.bash import BashConfig, bash_tool
from execworld.tools.standard.edit import edit_tool
from execworld.tools.standard.glob import GlobConfig, glob_tool
from execworld.tools.standard.grep import GrepConfig, grep_tool
from execworld.tools.standard.job_tools import job_kill_tool, job_list_tool, job_output_tool
from execworld.tools.standard.listing import list_tool
from execworld.tools.standard.read import ReadConfig, read_tool
from execworld.tools.standard.write import write_tool


@plugin(inject=(TOOLS,), optional=(JOBS,))
def tool_bash(ctx: Context, config: BashConfig) -> None:
    """Register `bash`, which runs commands in the background where there are jobs."""
    ctx.get(TOOLS).add(ctx, bash_tool(config, ctx.find(JOBS)))


@plugin(inject=(TOOLS, JOBS))
def tool_job_output(ctx: Context) -> None:
    """Register `job_output`."""
    ctx.get(TOOLS).add(ctx, job_output_tool(ctx.get(JOBS)))


@plugin(inject=(TOOLS, JOBS))
def tool_job_list(ctx: Context) -> None:
    """Register `job_list`."""
    ctx.get(TOOLS).add(ctx, job_list_tool(ctx.get(JOBS)))


@plugin(inject=(TOOLS, JOBS))
def tool_job_kill(ctx: Context) -> None:
    """Register `job_kill`."""
    ctx.get(TOOLS).add(ctx, job_kill_tool(ctx.get(JOBS)))


@plugin(inject=(TOOLS,), optional=(OBSERVATIONS,))
def tool_read(ctx: Context, config: ReadConfig) -> None:
    """Register `read`."""
    ctx.get(TOOLS).add(ctx, read_tool(config, ctx.find(OBSERVATIONS)))


@plugin(inject=(TOOLS,), optional=(OBSERVATIONS,))
def tool_write(ctx: Context) -> None:
    """Register `write`, which replaces only what was read where that is observed."""
    ctx.get(TOOLS).add(ctx, write_tool(ctx.find(OBSERVATIONS)))


@plugin(inject=(TOOLS,), optional=(OBSERVATIONS,))
def tool_edit(ctx: Context) -> None:
    """Register `edit`, which changes only what was read where that is observed."""
    ctx.get(TOOLS).add(ctx, edit_tool(ctx.find(OBSERVATIONS)))


@plugin(inject=(TOOLS,))
def tool_list(ctx: Context) -> None:
    """Register `list`."""
    ctx.get(TOOLS).add(ctx, list_tool())


@plugin(inject=(TOOLS,))
def tool_glob(ctx: Context, config: GlobConfig) -> None:
    """Register `glob`."""
    ctx.get(TOOLS).add(ctx, glob_tool(config))


@plugin(inject=(TOOLS,))
def tool_grep(ctx: Context, config: GrepConfig) -> None:
    """Register `grep`."""
    ctx.get(TOOLS).add(ctx, grep_tool(config))
