"""`scrub_environment`: variables of the host reach a command only if they are named here."""

from __future__ import annotations

from dataclasses import replace

from pydantic import BaseModel, Field

from execworld.kernel import WORLD_OPENING, Context, Next, plugin
from execworld.seams import SandboxPolicy


class ScrubEnvironment(BaseModel, extra="forbid", frozen=True):
    """What may pass beside the built-in allow-list."""

    allow: tuple[str, ...] = Field(default=(), description="names that a policy may let through")


@plugin()
def scrub_environment(ctx: Context, config: ScrubEnvironment) -> None:
    """Take out of the policy of each world that is opened the variables that it would let through and are not named.

    What passes in any case is the built-in allow-list, on which there is no name that looks like a credential.
    """
    allowed = frozenset(config.allow)

    async def tighten(policy: SandboxPolicy, go_on: Next[SandboxPolicy, SandboxPolicy]) -> SandboxPolicy:
        kept = tuple(name for name in policy.environment if name in allowed)
        return await go_on(replace(policy, environment=kept))

    ctx.on(WORLD_OPENING, tighten)
