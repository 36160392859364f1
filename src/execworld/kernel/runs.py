"""Runs: a run is one time that a plugin is active, and holds what has to be undone when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import anyio

from execworld.kernel.effects import EffectStack

if TYPE_CHECKING:
    from execworld.kernel.fiber import Fiber
    from execworld.kernel.services import Provision, Slot

Bindings: TypeAlias = "dict[Slot, Provision | None]"


class Run:
    """One time that a plugin is active, from its start to the last thing undone.

    Attributes:
        bindings: The providers that it runs on. Another set of them is another run.
        start_scope: Cancelled when the start is no longer wanted.
        shield: Shields the body of the plugin from that, and from everything else, from when it is undone.
        crash: What ended the run from inside, after the start.
    """

    def __init__(self, fiber: Fiber, bindings: Bindings) -> None:
        self.fiber: Final = fiber
        self.bindings: Final = bindings
        self.signature: Final = fiber.signature(bindings)
        self.effects: Final = EffectStack(fiber.name)
        self.provisions: dict[Provision, None] = {}
        self.children: dict[Fiber, None] = {}
        self.start_scope: Final = anyio.CancelScope()
        self.shield: Final = anyio.CancelScope()
        self.crash: Exception | None = None
        self.undo_errors: list[Exception] = []
        self.started = False
        self.unwound = False
        self.over = False
