"""Lays layers over each other and checks each as it is laid, so that a mistake is an error in whatever layer it is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from execworld.config.floors import FloorFold
from execworld.config.layers import Layer
from execworld.config.merging import merged, settled
from execworld.config.nodes import (
    MappingNode,
    Node,
    Origin,
    ScalarNode,
    describe,
    empty_mapping,
)
from execworld.config.options import Options, check_partly
from execworld.config.problems import fault, nearest, refuse_references, suggestion
from execworld.config.registry import Registry
from execworld.config.sections import PolicySection

WORLD: Final = "world"
POLICY: Final = "policy"
FLOOR: Final = "floor"
ROW_KEYS: Final = ("use", "config", "disabled")
_ROW_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)


@dataclass(slots=True)
class Fold:
    """What the layers so far amount to.

    Attributes:
        rows: Merged rows by name.
        keys: Where each was said last.
        policy: The merged section; None when no layer has one.
        floor: The floor so far.
    """

    registry: Registry
    rows: dict[str, MappingNode] = field(default_factory=dict[str, MappingNode])
    keys: dict[str, Origin] = field(default_factory=dict[str, Origin])
    policy: MappingNode | None = None
    floor: FloorFold = field(default_factory=FloorFold)

    def lay(self, layer: Layer) -> None:
        """Lay *layer* over what is there.

        Raises:
            ConfigurationError: something in it is unknown or of the wrong type.
            FloorViolated: it would loosen the floor.
        """
        for name, node in layer.root.entries.items():
            key = layer.root.keys[name]
            if name == FLOOR:
                self.floor.lay(node)
            elif name == POLICY:
                self._lay_policy(node, key)
            else:
                self._lay_row(name, node, key)

    def _lay_policy(self, node: Node, key: Origin) -> None:
        if _is_null(node):
            self.policy = None
            return
        section = _mapping("`policy`", node)
        refuse_references(POLICY, section)
        check_partly(Options(POLICY, section, key, PolicySection))
        self.policy = _mapping("`policy`", merged(self.policy, section))
        self.keys[POLICY] = key

    def _lay_row(self, name: str, node: Node, key: Origin) -> None:
        lower = self.rows.get(name)
        if lower is None and (
            _is_null(node) or not (isinstance(node, MappingNode) and "use" in node.entries)
        ):
            raise self._unknown_row(name, key)
        if not _ROW_NAME.fullmatch(name):
            raise fault(key, f"`{name}` cannot be the name of a row", "small letters, digits, `-` and `_`")
        if _is_null(node):
            del self.rows[name], self.keys[name]
            return
        row = _mapping(f"row `{name}`", node)
        use = self._checked_use(name, row, lower)
        self._check_keys(name, row, use)
        if lower is not None and (row.replace or _use_of(lower) != use):
            lower = _without(lower, ROW_KEYS if row.replace else ("config",))
        check_partly(config_options(name, row, key, config_type_of(self.registry, name, use)))
        result = settled(row) if lower is None else merged(lower, row)
        assert isinstance(result, MappingNode)
        self.rows[name], self.keys[name] = result, key

    def _unknown_row(self, name: str, key: Origin) -> Exception:
        known = [*dict.fromkeys((WORLD, POLICY, FLOOR, *self.rows))]
        near = nearest(name, known)
        hint = (
            f"did you mean `{near}`?"
            if near is not None
            else f"rows and sections: {', '.join(known)}; a new row has a `use`"
        )
        return fault(key, f"there is no row `{name}`", hint)

    def _checked_use(self, name: str, row: MappingNode, lower: MappingNode | None) -> str:
        node = row.entries.get("use")
        if node is None:
            if lower is None or row.replace:
                raise fault(row.origin, f"row `{name}` needs a `use`")
            return _use_of(lower)
        if not isinstance(node, ScalarNode) or not isinstance(node.value, str):
            raise fault(node.origin, f"`{name}.use` is {describe(node)}: it must be a name, written out")
        use = node.value
        if use in (self.registry.worlds if name == WORLD else self.registry.plugins):
            return use
        raise self._unknown_use(name, use, node.origin)

    def _unknown_use(self, name: str, use: str, origin: Origin) -> Exception:
        worlds, plugins = list(self.registry.worlds), list(self.registry.plugins)
        if name == WORLD:
            kind, separator, _ = use.partition("://")
            if separator:
                shown = kind.partition("+")[0]
                hint = f"write `use: {shown}`, and the rest as options below `config`"
                return fault(origin, "`world.use` is a name and not an address", hint)
            return fault(origin, f"no world is named `{use}`", suggestion(use, worlds, "installed worlds"))
        if use in worlds:
            hint = "a composition has one world, in the row `world`"
            return fault(origin, f"`{use}` is a world, and `{name}` is not the row of the world", hint)
        return fault(origin, f"no plugin is named `{use}`", suggestion(use, plugins, "plugins"))

    def _check_keys(self, name: str, row: MappingNode, use: str) -> None:
        for key, node in row.entries.items():
            if key not in ROW_KEYS:
                near = nearest(key, ROW_KEYS)
                hint = f"did you mean `{near}`?" if near else f"options of `{use}` stand below `config`"
                raise fault(row.keys[key], f"row `{name}` has no `{key}`", hint)
            if _is_null(node):
                continue
            if key == "config":
                _mapping(f"{name}.config", node)
            elif key == "disabled":
                if not isinstance(node, ScalarNode) or not isinstance(node.value, bool):
                    raise fault(node.origin, f"`{name}.disabled` is {describe(node)}: it must be yes or no")
                if node.value and name == WORLD:
                    raise fault(node.origin, "the world cannot be disabled")


def config_options(name: str, row: MappingNode, key: Origin, config_type: Any) -> Options:
    """The options of a row; none where it has no `config`."""
    node = row.entries.get("config")
    if isinstance(node, MappingNode):
        return Options(f"{name}.config", node, key, config_type)
    return Options(f"{name}.config", empty_mapping(key), key, config_type)


def config_type_of(registry: Registry, name: str, use: str) -> Any:
    """What the options of a row are made into."""
    return registry.worlds[use].config_type if name == WORLD else registry.plugins[use].config_type


def _use_of(row: MappingNode) -> str:
    node = row.entries["use"]
    assert isinstance(node, ScalarNode)
    return str(node.value)


def _is_null(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _mapping(what: str, node: Node | None) -> MappingNode:
    assert node is not None
    if not isinstance(node, MappingNode):
        raise fault(node.origin, f"{what} is {describe(node)}: it must be a mapping")
    return node


def _without(row: MappingNode, names: Iterable[str]) -> MappingNode:
    entries = {name: each for name, each in row.entries.items() if name not in names}
    return MappingNode(entries, {name: row.keys[name] for name in entries}, row.origin)
