"""What the `use` of a row may name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from execworld.kernel import Plugin
from execworld.seams import Provider
from execworld.seams.values import value_class
from execworld.world import list_providers, load_provider


@value_class
class PluginType:
    """A kind of plugin.

    Attributes:
        config_type: A dataclass or a pydantic model that forbids further keys; its fields are the options.
        guards: Rows of it guarantee something, so that a composition without one, or with another, is weaker.
        summary: One line for editors.
        plugin: What is started; None for one that can only be checked.
    """

    config_type: type[Any]
    guards: bool = False
    summary: str = ""
    plugin: Plugin | None = None


def _no_plugins() -> Mapping[str, PluginType]:
    return MappingProxyType({})


@value_class
class Registry:
    """Attributes:
    worlds: Providers by name, for the row `world`.
    plugins: Kinds of plugins by name, for all other rows.
    """

    worlds: Mapping[str, Provider[Any]]
    plugins: Mapping[str, PluginType] = field(default_factory=_no_plugins)


class InstalledWorlds(Mapping[str, Provider[Any]]):
    """The providers that are installed now. One is imported when it is looked up, and not to list its name."""

    def __init__(self) -> None:
        self._names = tuple(dict.fromkeys(listing.name for listing in list_providers()))

    def __getitem__(self, name: str) -> Provider[Any]:
        if name not in self._names:
            raise KeyError(name)
        return load_provider(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def installed_registry(plugins: Mapping[str, PluginType] | None = None) -> Registry:
    """The worlds that are installed, and *plugins*; without them, the plugins that are installed."""
    if plugins is None:
        from execworld.config.plugins import InstalledPlugins  # which is made of what is defined here

        plugins = InstalledPlugins()
    return Registry(InstalledWorlds(), plugins)
