"""`refuse_downgrade`: what was asked for is enforced, and stays so, or nothing runs."""

from __future__ import annotations

from weakref import WeakValueDictionary

from execworld.kernel import PROVIDING, WORLD, WORLD_OPENED, Context, OpenedWorld, Providing, plugin
from execworld.policies.parts import PART_NAMES, view_id_of
from execworld.seams import (
    Dimension,
    Enforcement,
    EnforcementState,
    Sandbox,
    SandboxPolicy,
    SandboxReason,
    SandboxUnavailable,
    World,
)
from execworld.seams.policy_order import policy_losses


@plugin()
def refuse_downgrade(ctx: Context) -> None:
    """Refuse a world that holds less than its policy asks for, one that confines without a policy that anybody wrote,
    one that came back weaker than it was, and services that belong to no world that was looked at.

    A world that is there when this guard starts is looked at as well.

    Raises:
        SandboxUnavailable: to whoever opened or provides it; nothing ran.
    """
    admitted = _Admitted()
    if (present := ctx.find(WORLD)) is not None:
        admitted.check_present(present)
    ctx.on(WORLD_OPENED, admitted.check_opened)
    ctx.on(PROVIDING, admitted.check_provided)


class _Admitted:
    """The worlds that were opened under the eyes of this guard, by view."""

    def __init__(self) -> None:
        self._views: WeakValueDictionary[str, World] = WeakValueDictionary()
        self._confined = False

    def check_present(self, world: World) -> None:
        _check_enforced(world, world.policy, world.enforcement)
        self._admit(world)

    def check_opened(self, opened: OpenedWorld) -> None:
        world = opened.world
        if lost := policy_losses(opened.asked, world.policy):
            raise _refusal(world, f"it does not obey the policy that was asked for: {lost[0]}")
        _check_enforced(world, opened.asked, world.enforcement)
        usual = opened.usual is not None and opened.usual.confines
        if usual and not world.policy.confines and not opened.mode_is_said:
            hint = "write it down if it is meant: `policy: {mode: full-access}`"
            raise _refusal(world, "it would run without the policy that such a world has", hint=hint)
        if opened.before is not None:
            _check_again(opened.before.world, world)
        self._admit(world)

    def _admit(self, world: World) -> None:
        self._views[world.view_id] = world
        self._confined = self._confined or world.policy.confines

    def check_provided(self, providing: Providing) -> None:
        if providing.key.name not in PART_NAMES:
            return
        who = f"service `{providing.key}` of plugin `{providing.context.fiber.name}`"
        view_id = view_id_of(providing.value)
        world = None if view_id is None else self._views.get(view_id)
        if world is not None and world.closed:
            world = None
        if world is None and self._confined and not self._is_tighter_view(view_id):
            message = f"{who} belongs to no view that was opened under the policy"
            raise SandboxUnavailable(message, reason=SandboxReason.CANNOT_VERIFY, op="world.provide")
        if isinstance(providing.value, World | Sandbox):
            _check_statement(who, providing.value, world)

    def _is_tighter_view(self, view_id: str | None) -> bool:
        """Whether it is a view of a world that was looked at and is confined by nothing itself."""
        return view_id is not None and any(
            view_id.startswith(f"{world.world_id}/") and not world.policy.confines and not world.closed
            for world in self._views.values()
        )


def _check_enforced(world: World, asked: SandboxPolicy, enforcement: Enforcement) -> None:
    missing = _not_enforced(asked, enforcement)
    if missing:
        raise _refusal(
            world, "the policy requires what is not enforced there", SandboxReason.MISSING_DIMENSION, missing
        )


def _check_again(before: World, world: World) -> None:
    """Whether the same row, opened again, is what it was: an engine or a host may have become weaker meanwhile."""
    if world.identity.kind != before.identity.kind:
        raise _refusal(world, f"it was {before.identity.kind} before")
    old, new = before.facts.boundary, world.facts.boundary
    if not new.at_least(old):
        raise _refusal(world, f"its boundary is {new} now, and was {old} before")
    missing = tuple(
        str(dimension)
        for dimension in Dimension
        if dimension in before.policy.asked()
        and before.enforcement.state(dimension) is EnforcementState.ENFORCED
        and world.enforcement.state(dimension) is not EnforcementState.ENFORCED
    )
    if missing:
        raise _refusal(world, "it enforces less than it did before", SandboxReason.MISSING_DIMENSION, missing)
    if lost := policy_losses(before.policy, world.policy):
        raise _refusal(world, f"its policy is weaker than it was before: {lost[0]}")


def _check_statement(who: str, value: World | Sandbox, world: World | None) -> None:
    """Whether what a service says of itself hangs together, and is what was proven of its view."""
    missing = _not_enforced(value.policy, value.enforcement)
    if missing:
        raise SandboxUnavailable(
            f"{who} has a policy that it does not enforce: {', '.join(missing)}",
            reason=SandboxReason.MISSING_DIMENSION,
            missing=missing,
            op="world.provide",
        )
    if world is None:
        return
    invented = [
        str(dimension)
        for dimension, entry in value.enforcement
        if entry.state is EnforcementState.ENFORCED
        and world.enforcement.state(dimension) is not EnforcementState.ENFORCED
    ]
    if invented or value.policy != world.policy:
        what = (
            f"claims to enforce what is not: {', '.join(invented)}" if invented else "states another policy"
        )
        raise SandboxUnavailable(
            f"{who} {what}", reason=SandboxReason.CANARY_CONTRADICTS, op="world.provide", world=world.world_id
        )


def _not_enforced(policy: SandboxPolicy, enforcement: Enforcement) -> tuple[str, ...]:
    required = policy.required()
    return tuple(
        str(dimension)
        for dimension in Dimension
        if dimension in required and enforcement.state(dimension) is not EnforcementState.ENFORCED
    )


def _refusal(
    world: World,
    problem: str,
    reason: SandboxReason = SandboxReason.WORLD_CANNOT_CONFINE,
    missing: tuple[str, ...] = (),
    hint: str = "",
) -> SandboxUnavailable:
    names = f": {', '.join(missing)}" if missing else ""
    return SandboxUnavailable(
        f"world {world.identity.kind} is not taken: {problem}{names}",
        reason=reason,
        missing=missing,
        op="world.open",
        world=world.world_id,
        hint=hint,
    )
