"""The sandbox seam over any machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from execworld.seams.enforcement import Enforcement
from execworld.seams.errors import SandboxReason, SandboxUnavailable, WorldMismatch
from execworld.seams.identity import WorldIdentity
from execworld.seams.policy import SandboxPolicy
from execworld.seams.sandbox import Sandbox
from execworld.seams.world import World


class MachineSandbox(Sandbox):
    """Hands out views.

    Args:
        world: The view that this is the sandbox of.
        check: As of every seam.
        confine: Makes views; None where this view cannot.
        is_root: Whether *world* is the root view of its world.
    """

    def __init__(
        self,
        world: World,
        *,
        check: Callable[[str], None],
        confine: Callable[[SandboxPolicy], Awaitable[World]] | None,
        is_root: bool,
    ) -> None:
        self._world = world
        self._check = check
        self._confine = confine
        self._is_root = is_root

    @property
    def world_id(self) -> str:
        return self._world.world_id

    @property
    def view_id(self) -> str:
        return self._world.view_id

    @property
    def policy(self) -> SandboxPolicy:
        return self._world.policy

    @property
    def enforcement(self) -> Enforcement:
        return self._world.enforcement

    async def confine(self, policy: SandboxPolicy) -> World:
        op = "sandbox.confine"
        self._check(op)
        if policy.digest == self._world.policy.digest:
            return self._world
        if not self._is_root:
            raise WorldMismatch(
                f"this view is confined to {self.policy.mode}, and only the root view makes views",
                op=op,
                world=self.world_id,
                hint="ask the view that this one was made by; a world opened with a policy has no other view",
            )
        if not policy.confines:
            raise WorldMismatch(
                "a wider view can be made only from the root view", op=op, world=self.world_id
            )
        if self._confine is None:
            raise cannot_confine(self._world.identity, policy, op)
        return await self._confine(policy)


def cannot_confine(identity: WorldIdentity, policy: SandboxPolicy, op: str) -> SandboxUnavailable:
    """The refusal of a world that confines nothing."""
    missing = tuple(str(dimension) for dimension in sorted(policy.asked(), key=str))
    return SandboxUnavailable(
        f"world {identity.kind} confines nothing, and the policy asks for {policy.mode}",
        reason=SandboxReason.WORLD_CANNOT_CONFINE,
        missing=missing,
        op=op,
        world=identity.world_id,
        hint="choose a world that confines, or ask for full-access by name",
    )
