"""Whether a world that was opened holds a floor: by its own facts and by what was proven in it, not by claims."""

from __future__ import annotations

from execworld.seams.enforcement import EnforcementState
from execworld.seams.errors import FloorViolated
from execworld.seams.floor import Floor
from execworld.seams.policy_order import Shortfall
from execworld.seams.provider import WorldClaims
from execworld.seams.world import World


def lacking_when_open(floor: Floor, world: World, claims: WorldClaims) -> tuple[Shortfall, ...]:
    """What *world* does not hold of *floor*.

    Args:
        floor: What is demanded.
        world: The open world.
        claims: What its provider said before. Of images and hosts nothing else is known; its boundary is not believed.
    """
    found = WorldClaims(world.facts.boundary, images=claims.images, hosts=claims.hosts)
    lost = list(floor.lacks(world.identity.kind, found, world.policy))
    for dimension in floor.require:
        entry = world.enforcement.entries.get(dimension)
        state = EnforcementState.ABSENT if entry is None else entry.state
        if state is not EnforcementState.ENFORCED:
            why = f" ({entry.why_not})" if entry is not None and entry.why_not else ""
            lost.append(Shortfall(f"enforcement.{dimension}", "enforced", f"{state}{why}"))
    return tuple(lost)


def refuse_below_floor(floor: Floor, world: World, claims: WorldClaims) -> None:
    """Refuse *world* if it does not hold *floor*.

    Raises:
        FloorViolated: with every difference. Names of images and hosts are not repeated: they may be secrets.
    """
    if lost := lacking_when_open(floor, world, claims):
        raise FloorViolated(
            f"world {world.identity.kind} does not hold the floor\n" + "\n".join(map(told, lost)),
            op="world.open",
            world=world.world_id,
            hint="`execworld floor show` tells who demands what",
        )


def told(lost: Shortfall) -> str:
    """*lost* for people, without the name of an image or a host."""
    if lost.subject in ("world.image", "world.host"):
        return f"{lost.subject}: {lost.wanted} is wanted, and there is another"
    return str(lost)
