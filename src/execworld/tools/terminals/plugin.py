"""`terminals`: the plugin that offers the terminal service."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from pydantic import BaseModel, Field

from execworld.kernel import Context, plugin
from execworld.tools.terminals.readiness import Timing
from execworld.tools.terminals.service import TERMINALS, open_terminals


class Terminals(BaseModel, extra="forbid", frozen=True):
    """When a program on a terminal is taken to wait for input."""

    settle_s: float = Field(
        default=0.05,
        gt=0,
        description="silence of a program that provably waits for input, after which it does",
    )
    idle_s: float = Field(default=3.0, gt=0, description="silence after which any program is taken to wait")


@plugin(name="terminals", provides=[TERMINALS])
async def terminals(ctx: Context, config: Terminals) -> AsyncGenerator[None]:
    """Offer terminals to tools; all of them end with it."""
    async with open_terminals(Timing(settle_s=config.settle_s, idle_s=config.idle_s)) as service:
        ctx.provide(TERMINALS, service)
        yield
