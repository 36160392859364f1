"""What the kernel, and who opens a world in it, puts before those who may refuse it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Final, TypeVar, cast

from execworld.kernel.keys import AnyKey, Event, Key, Waterfall
from execworld.seams import SandboxPolicy, World, WorldClaims
from execworld.seams.values import value_class

if TYPE_CHECKING:
    from execworld.kernel.context import Context
    from execworld.kernel.fiber import Fiber
    from execworld.kernel.services import Provision
    from execworld.seams.floor import Floor

ValueT = TypeVar("ValueT")


@value_class
class Providing:
    """A service is about to be provided, and nobody sees it yet.

    Attributes:
        key: Of the service.
        value: What is provided.
        context: Where; its realms decide who will see it.
    """

    key: AnyKey
    value: object
    context: Context

    def beside(self, key: Key[ValueT]) -> ValueT | None:
        """What whoever sees the new service in this place sees, or will see, of another one.

        What stands on the provider that is about to be replaced goes with it, and does not count.
        """
        fiber = self.context.fiber
        for provision in reversed(self.context.slot(key).provisions):
            if provision.withdrawn or _goes_with(provision, fiber):
                continue
            if provision.owner.is_visible_to(fiber):
                return cast("ValueT", provision.value)
        return None


@value_class
class Starting:
    """A plugin is about to start on these services, and has done nothing yet.

    Attributes:
        services: What it injects, by name.
    """

    fiber: Fiber
    services: Mapping[str, object]


@value_class
class OpenedWorld:
    """A world was opened to be provided, and nobody but the listener sees it yet.

    Attributes:
        row: Name of what opened it.
        world: The open world.
        asked: The policy that it was asked to obey.
        usual: What its provider takes when nobody asks for anything; None for full access.
        mode_is_said: Somebody wrote down the mode of the policy, so that it is nobody's oversight.
        claims: What its provider said of it before.
        floor: What must hold at the least.
        before: The same row, opened before with the same options; None when it was not.
    """

    row: str
    world: World
    asked: SandboxPolicy
    usual: SandboxPolicy | None
    mode_is_said: bool
    claims: WorldClaims = field(repr=False)  # names in it may be secrets
    floor: Floor
    before: OpenedWorld | None = None


# A listener prevents it by raising, and cannot be async.
PROVIDING: Final = Event[Providing, None]("providing")
STARTING: Final = Event[Starting, None]("starting")
# For `Context.waterfall`: a listener goes on with a policy that is at least as tight as the one it was given.
WORLD_OPENING: Final = Waterfall[SandboxPolicy, SandboxPolicy]("world_opening")
# For `Context.serial`: a listener prevents that the world is provided by raising.
WORLD_OPENED: Final = Event[OpenedWorld, None]("world_opened")


def _goes_with(provision: Provision, newcomer: Fiber) -> bool:
    """Whether *provision* ends when *newcomer* has replaced what it is there to replace."""
    pending, seen = [provision.owner], {provision.owner}
    while pending:
        fiber = pending.pop()
        if newcomer.may_replace(fiber):
            return True
        for each in fiber.lineage:
            bindings = each.run.bindings.values() if each.run is not None else ()
            for owner in (bound.owner for bound in bindings if bound is not None):
                if owner not in seen:
                    seen.add(owner)
                    pending.append(owner)
    return False
