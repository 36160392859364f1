"""Rows of compositions, as they are started and compared."""

from __future__ import annotations

from typing import Any, Final

from execworld.config import Composition, Row
from execworld.config.nodes import same_value
from execworld.kernel import WORLD, Key, Plugin
from execworld.policies.parts import PARTS
from execworld.seams import ConfigurationError

WORLD_ROW: Final = "world"


def enabled_rows(composition: Composition) -> dict[str, Row]:
    """Rows that are to be started beside the world."""
    return {name: row for name, row in composition.rows.items() if name != WORLD_ROW and not row.disabled}


def is_guard(composition: Composition, row: Row) -> bool:
    """Whether *row* has to be there before a world is opened."""
    return composition.registry.plugins[row.use].guards


def startable(name: str, row: Row, composition: Composition) -> tuple[Plugin, object]:
    """The plugin of a row, and its configuration.

    Raises:
        ConfigurationError: it can only be checked.
    """
    plugin = composition.registry.plugins[row.use].plugin
    if plugin is None:
        raise ConfigurationError(f"row `{name}`: plugin `{row.use}` can be checked, and not started")
    return plugin, None if plugin.config_type is None else row.config


def parts_with_rows(composition: Composition) -> tuple[Key[Any], ...]:
    """Parts of the world that rows of their own provide."""
    plugins = [startable(name, row, composition)[0] for name, row in enabled_rows(composition).items()]
    return tuple(key for key in PARTS if key != WORLD and any(key in plugin.provides for plugin in plugins))


def refuse_other_parts(old: Composition, new: Composition) -> None:
    """Refuse what would need two providers of one part for a moment.

    Raises:
        ConfigurationError
    """
    if parts_with_rows(old) != parts_with_rows(new):
        message = "which parts of the world have rows of their own cannot change while it is open"
        raise ConfigurationError(message, hint="start again with that composition")


def same_row(old: Row, new: Row) -> bool:
    """Whether both say the same, and what their references stand for is the same."""
    return old.use == new.use and same_value(old.node, new.node) and old.config == new.config


def same_world(old: Composition, new: Composition) -> bool:
    """Whether the world that is open is the one that *new* asks for."""
    return same_row(old.world, new.world) and old.policy == new.policy and old.floor == new.floor


def guards_differ(old: Composition, new: Composition) -> bool:
    """Guards see a world, or tighten its policy, when it is opened."""
    before, after = (
        {name: row for name, row in enabled_rows(each).items() if is_guard(each, row)} for each in (old, new)
    )
    return before.keys() != after.keys() or not all(
        same_row(row, after[name]) for name, row in before.items()
    )
