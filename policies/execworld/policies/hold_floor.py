"""`hold_floor`: no world is provided that holds less than the floor."""

from __future__ import annotations

from execworld.kernel import WORLD_OPENED, Context, OpenedWorld, plugin
from execworld.seams.open_floor import refuse_below_floor


@plugin()
def hold_floor(ctx: Context) -> None:
    """Compare each world that was opened with the floor, by its own facts and by what was proven in it.

    At load, at a replacement, when it is made again and when a link to it is made again: each of these opens it.

    Raises:
        FloorViolated: to whoever opened it, with every difference. It is closed, and nobody has seen it.
    """
    ctx.on(WORLD_OPENED, _check)


def _check(opened: OpenedWorld) -> None:
    refuse_below_floor(opened.floor, opened.world, opened.claims)
