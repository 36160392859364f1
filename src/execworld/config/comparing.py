"""What one composition guarantees and another does not."""

from __future__ import annotations

from execworld.config.composition import Composition, Row, without_secrets
from execworld.config.folding import WORLD
from execworld.config.nodes import same_value
from execworld.seams.policy_order import Shortfall, policy_losses


def losses(before: Composition, after: Composition) -> tuple[Shortfall, ...]:
    """What is lost when *after* takes the place of *before*, as far as can be told before anything is started.

    What cannot be compared counts as lost: another host and a container, or writable directories of two places.
    """
    lost: list[Shortfall] = []
    old, new = before.claims(), after.claims()
    if not new.boundary.at_least(old.boundary):
        lost.append(Shortfall("world.boundary", f"{old.boundary} at least", str(new.boundary)))
    lost += policy_losses(before.policy, after.policy)
    lost += before.floor.lost_in(after.floor)
    lost += _lost_guards(before, after)
    return tuple(without_secrets(after, each) for each in lost)


def _lost_guards(before: Composition, after: Composition) -> list[Shortfall]:
    lost: list[Shortfall] = []
    for name, row in before.rows.items():
        if name == WORLD or row.disabled or not before.registry.plugins[row.use].guards:
            continue
        other = after.rows.get(name)
        if other is None or other.use != row.use:
            lost.append(
                Shortfall(name, f"the guard `{row.use}`", "none" if other is None else f"`{other.use}`")
            )
        elif other.disabled:
            lost.append(Shortfall(name, f"the guard `{row.use}`", "it disabled"))
        elif not _same_config(row, other):
            lost.append(Shortfall(name, f"the guard `{row.use}` as it is", "other options"))
    return lost


def _same_config(row: Row, other: Row) -> bool:
    mine, theirs = row.node.entries.get("config"), other.node.entries.get("config")
    return mine is theirs or (mine is not None and theirs is not None and same_value(mine, theirs))
