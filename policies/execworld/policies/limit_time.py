"""`limit_time`: no command of the world runs longer."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, Field

from execworld.kernel import WORLD_OPENING, Context, Next, plugin
from execworld.seams import SandboxPolicy


class LimitTime(BaseModel, extra="forbid", frozen=True):
    """How long a command may run."""

    wall_s: float = Field(gt=0, description="seconds, of each command and of what it leaves behind")


@plugin()
def limit_time(ctx: Context, config: LimitTime) -> None:
    """Put a limit into the policy of each world that is opened; a smaller one stays.

    The world holds it: in the shell, in terminals and for what a command leaves behind. Where a world cannot hold any
    policy, it is not opened.
    """

    async def tighten(policy: SandboxPolicy, go_on: Next[SandboxPolicy, SandboxPolicy]) -> SandboxPolicy:
        given = policy.limits.wall_s
        limit = config.wall_s if given is None else min(given, config.wall_s)
        return await go_on(replace(policy, limits=replace(policy.limits, wall_s=limit)))

    ctx.on(WORLD_OPENING, tighten)
