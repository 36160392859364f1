"""`hold_time`: a tool that declares its time is told when it is over."""

from __future__ import annotations

import anyio

from execworld.kernel import Context, Next, plugin
from execworld.seams import ErrorCode
from execworld.tools.calls import ToolCall
from execworld.tools.decisions import EXECUTE, Failure, Outcome
from execworld.tools.registry import TOOLS


@plugin(inject=(TOOLS,))
def hold_time(ctx: Context) -> None:
    """Cancel the body of a tool when the time that it declares is over, and wait until it has ended.

    Whatever it gives after that, the outcome of the call is TOOL_TIMEOUT, unless the body says more by a failure of its
    own. A tool that declares nothing has no limit here.
    """
    tools = ctx.get(TOOLS)

    async def hold(call: ToolCall, go_on: Next[ToolCall, Outcome]) -> Outcome:
        tool = tools.get(ctx.scoped(call.session.scope), call.name)
        if tool is None or tool.timeout_s is None:
            return await go_on()
        late = Failure(ErrorCode.TOOL_TIMEOUT, f"`{call.name}` was ended after {tool.timeout_s:g} s")
        with anyio.move_on_after(tool.timeout_s) as limit:
            outcome = await go_on()
            return outcome if isinstance(outcome, Failure) or not limit.cancel_called else late
        return late

    ctx.on(EXECUTE, hold)
