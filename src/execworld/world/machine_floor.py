"""The floor of the machine, for a world that is opened by its name. Where there is none, nothing is imported for it."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from execworld.seams import SandboxPolicy, World
    from execworld.seams.floor import Floor
    from execworld.world.opening import ResolvedWorld

DIRECTORY: Final = "/etc/execworld"
"""Where the file is; its reader has its whole name."""

# A world that is opened by its name is one world, its policy is compared with what is enforced, and it is compared with
# the floor: these guards have nothing to add to that.
_HELD_BY_NAME: Final = frozenset({"hold_floor", "keep_one_world", "refuse_downgrade"})
_READER: Final = "execworld.config.system_floor"
"""Documents are read in a layer above this one, which is therefore asked for by its name, as providers are."""


def read_machine_floor() -> Floor | None:
    """The floor of this machine; None where it has none.

    Raises:
        ConfigurationError: there is one, and it cannot be read or trusted. Then nothing may be started.
    """
    try:
        os.lstat(DIRECTORY)
    except FileNotFoundError:
        return None
    except OSError:
        pass  # whatever it is, reading it tells
    floor: Floor | None = import_module(_READER).read_floor()
    return floor


def hold_machine_floor(chosen: ResolvedWorld[Any], policy: SandboxPolicy) -> Floor | None:
    """Refuse *chosen* under *policy* if it is below the floor of this machine, which is returned.

    Raises:
        ConfigurationError, FloorViolated: as of `read_machine_floor` and `refuse_before_opening`.
    """
    floor = read_machine_floor()
    if floor is not None:
        refuse_before_opening(floor, chosen, policy)
    return floor


def refuse_before_opening(floor: Floor, chosen: ResolvedWorld[Any], policy: SandboxPolicy) -> None:
    """Refuse a world that does not hold *floor*, by what its provider says of it. It is not opened.

    Raises:
        FloorViolated: with every difference.
    """
    from execworld.seams import FloorViolated
    from execworld.seams.open_floor import told
    from execworld.seams.policy_order import Shortfall

    lost = list(floor.lacks(chosen.provider.name, chosen.claims(policy), policy))
    lost += [
        Shortfall("floor.guards", f"an enabled row of `{guard}`", "no composition")
        for guard in floor.guards
        if guard not in _HELD_BY_NAME
    ]
    if lost:
        raise FloorViolated(
            f"world {chosen.provider.name} does not hold the floor of this machine\n"
            + "\n".join(map(told, lost)),
            op="world.open",
            hint="`execworld floor show` tells what it is",
        )


def refuse_opened(floor: Floor, chosen: ResolvedWorld[Any], world: World) -> None:
    """As `refuse_before_opening`, by what the open world is."""
    from execworld.seams.open_floor import refuse_below_floor

    refuse_below_floor(floor, world, chosen.claims(world.policy))
