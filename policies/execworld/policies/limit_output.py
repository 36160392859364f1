"""`limit_output`: no command of the world writes more."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, Field

from execworld.kernel import WORLD_OPENING, Context, Next, plugin
from execworld.seams import SandboxPolicy


class LimitOutput(BaseModel, extra="forbid", frozen=True):
    """How much a command may write to its output."""

    output_bytes: int = Field(gt=0, description="of each command, all its streams together")


@plugin()
def limit_output(ctx: Context, config: LimitOutput) -> None:
    """Put a limit into the policy of each world that is opened; a smaller one stays.

    The world holds it: whoever reads the output, a command that passes it is ended with its tree. Where a world cannot
    hold any policy, it is not opened.
    """

    async def tighten(policy: SandboxPolicy, go_on: Next[SandboxPolicy, SandboxPolicy]) -> SandboxPolicy:
        given = policy.limits.output_bytes
        limit = config.output_bytes if given is None else min(given, config.output_bytes)
        return await go_on(replace(policy, limits=replace(policy.limits, output_bytes=limit)))

    ctx.on(WORLD_OPENING, tighten)
