"""Rows give tools and guards; another world row moves every tool, and the floor binds what a call may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.integration.compositions.doubles import GUARDS, Setting

from execworld.assembly import open_composition
from execworld.assembly.tooling import open_tools
from execworld.kernel import Context, plugin
from execworld.seams import ErrorCode
from execworld.tools.approval import Answer, ApprovalRequest
from execworld.tools.calls import ToolCall, ToolContext
from execworld.tools.content import Text
from execworld.tools.definition import Tool
from execworld.tools.escalation import Escalatable
from execworld.tools.guards import GUARDS as GUARD_REGISTRY
from execworld.tools.registry import TOOLS
from execworld.tools.standard import standard_tools

pytestmark = pytest.mark.anyio

LOCAL = "world: {use: local}\npolicy: {mode: full-access}\n" + GUARDS
ROWS = "tools: {use: tools}\nwhere: {use: where}\n"


class Put(Escalatable, extra="forbid", frozen=True):
    path: str | None = None


class Place(BaseModel):
    kind: str
    mode: str


async def where(ctx: ToolContext, arguments: Put) -> Place:
    if arguments.path is not None:
        await ctx.world.fs.write_text(arguments.path, "x")
    return Place(kind=ctx.world.identity.kind, mode=str(ctx.world.policy.mode))


@plugin(name="where", inject=(TOOLS,))
def where_plugin(ctx: Context) -> None:
    tool = Tool("where", "Tells where.", Put, Place, where, lambda _, value: (Text(value.kind),))
    ctx.get(TOOLS).add(ctx, tool)


@plugin(inject=(GUARD_REGISTRY,))
def deny_all(ctx: Context) -> None:
    def no(call: ToolCall) -> str:
        return "no"

    ctx.get(GUARD_REGISTRY).add(ctx, no)


@pytest.fixture
def tools(setting: Setting) -> Setting:
    setting.plugins |= {"tools": standard_tools, "where": where_plugin, "deny_all": deny_all}
    return setting


async def allow(request: ApprovalRequest) -> Answer:
    return Answer.ALLOWED_ONCE


async def test_another_world_row_moves_every_tool(tools: Setting) -> None:
    before, after = tools.compose(LOCAL + ROWS), tools.compose("world: {use: box}\n" + GUARDS + ROWS)
    async with open_composition(before) as running, open_tools(running) as found:
        assert (await found.functions["where"]()).text == "local"
        await running.change_to(after)
        assert (await found.functions["where"]()).text == running.world.identity.kind
        assert running.world.identity.kind != "local"


async def test_a_guard_is_a_row_and_goes_with_it(tools: Setting) -> None:
    with_guard = tools.compose(LOCAL + ROWS + "deny_all: {use: deny_all}\n")
    async with open_composition(with_guard) as running, open_tools(running) as found:
        assert (await found.call("where")).code == ErrorCode.TOOL_DENIED
        await running.change_to(tools.compose(LOCAL + ROWS))
        assert (await found.call("where")).ok


async def test_a_composition_without_a_row_for_tools_has_them_as_long_as_they_are_wanted(
    tools: Setting,
) -> None:
    async with open_composition(tools.compose(LOCAL)) as running:
        for _ in range(2):
            async with open_tools(running) as found:
                assert (await found.call("nothing")).code == ErrorCode.UNKNOWN_TOOL
        assert running.context.find(TOOLS) is None


@pytest.mark.landlock
async def test_the_floor_of_a_composition_binds_what_a_call_may_ask_for(
    tools: Setting, tmp_path: Path
) -> None:
    document = (
        "world: {use: landlock}\nfloor: {mode: workspace-write}\n"
        f"policy: {{mode: read-only, workspace: {tmp_path}}}\n"
    )
    target = str(tmp_path / "a")
    async with (
        open_composition(tools.compose(document + GUARDS + ROWS)) as running,
        open_tools(running, approve=allow) as found,
    ):
        call = found.functions["where"]
        assert (await call(path=target)).code == ErrorCode.FS_SANDBOX_DENIED
        wide = await call(path=target, sandbox_permissions="full-access", justification="to see")
        assert wide.code == ErrorCode.FLOOR_VIOLATED
        wider = await call(path=target, sandbox_permissions="workspace-write", justification="to see")
        assert wider.ok
        assert (tmp_path / "a").exists()
