"""The floor of a composition: each layer may raise it, none may lower it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from execworld.config.nodes import ListNode, MappingNode, Node, Origin, ScalarNode, describe
from execworld.config.options import Options, validated
from execworld.config.problems import fault, refuse_references
from execworld.config.references import Lookup
from execworld.config.sections import FloorSection
from execworld.seams import FloorViolated
from execworld.seams.floor import Floor
from execworld.seams.policy_order import Shortfall

_ADDED: Final = ("require", "hidden", "guards")
"""Lists that a layer adds to; others it can only shorten."""


@dataclass(slots=True)
class FloorFold:
    """The floor of the layers so far.

    Attributes:
        node: The same as a tree, with the place of each demand; None when no layer has a floor.
    """

    floor: Floor = field(default_factory=Floor)
    node: MappingNode | None = None

    def lay(self, node: Node) -> None:
        """Raise the floor by the section *node*.

        Raises:
            ConfigurationError: it is no section of a floor.
            FloorViolated: it would lower the floor.
        """
        if not isinstance(node, MappingNode):
            raise fault(
                node.origin, f"`floor` is {describe(node)}: it must be a mapping, and cannot be cleared"
            )
        refuse_references("floor", node)
        _refuse_removal(node)
        section: FloorSection = validated(Options("floor", node, node.origin, FloorSection), Lookup({}))
        stated = section.floor()
        if lost := self.floor.loosened_by(stated):
            raise FloorViolated(
                "\n".join(f"{_place(node, each)}: {_told(each, self._stated_at(each))}" for each in lost),
                op="config.load",
                hint="a layer can raise the floor of those below, and never lower it",
            )
        self.floor = self.floor.tightened_by(stated)
        self.node = node if self.node is None else _raised(self.node, node)

    def _stated_at(self, lost: Shortfall) -> Origin | None:
        return None if self.node is None else _place(self.node, lost)


def _told(lost: Shortfall, below: Origin | None) -> str:
    stated = f", stated at {below}," if below is not None else ""
    return f"this would loosen `{lost.subject}` from {lost.wanted}{stated} to {lost.found}"


def _place(node: MappingNode, lost: Shortfall) -> Origin:
    """Where the key that *lost* is about stands in a section."""
    origin, inner = node.origin, node
    for name in lost.subject.split(".")[1:]:
        if name not in inner.entries:
            break
        origin = inner.keys[name]
        each = inner.entries[name]
        if not isinstance(each, MappingNode):
            break
        inner = each
    return origin


def _refuse_removal(node: Node) -> None:
    if node.replace or (isinstance(node, ScalarNode) and node.value is None):
        what = "`!replace`" if node.replace else "null"
        raise fault(node.origin, f"{what} has no meaning in a floor, which can only be raised")
    if isinstance(node, MappingNode):
        for each in node.entries.values():
            _refuse_removal(each)


def _raised(lower: MappingNode, upper: MappingNode) -> MappingNode:
    entries, keys = dict(lower.entries), dict(lower.keys)
    for name, each in upper.entries.items():
        before = entries.get(name)
        if isinstance(before, MappingNode) and isinstance(each, MappingNode):
            each = _raised(before, each)
        elif name in _ADDED and isinstance(before, ListNode) and isinstance(each, ListNode):
            said = {item.value for item in before.items if isinstance(item, ScalarNode)}
            added = [item for item in each.items if not (isinstance(item, ScalarNode) and item.value in said)]
            each = ListNode((*before.items, *added), each.origin)
        entries[name], keys[name] = each, upper.keys[name]
    return MappingNode(entries, keys, lower.origin)
