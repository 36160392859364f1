"""How a layer is laid over those below it: key by key, and nothing is lost without a word that says so."""

from __future__ import annotations

from dataclasses import replace

from execworld.config.nodes import ListNode, MappingNode, Node, ScalarNode, same_value
from execworld.config.problems import fault


def merged(lower: Node | None, upper: Node) -> Node | None:
    """*upper* laid over *lower*; None when *upper* clears it.

    Mappings are merged key by key; anything else takes the place of what is below. ``null`` clears. ``!replace`` takes
    the place of a mapping, too. A list takes the place of a list when it keeps every item of it.

    Raises:
        ConfigurationError: a list would lose items without ``!replace``.
    """
    if isinstance(upper, ScalarNode) and upper.value is None:
        return None
    if isinstance(upper, MappingNode):
        if isinstance(lower, MappingNode) and not upper.replace:
            return _merged_mapping(lower, upper)
        return settled(upper)
    if isinstance(upper, ListNode) and isinstance(lower, ListNode) and not upper.replace:
        _refuse_loss(lower, upper)
    return settled(upper)


def settled(node: Node) -> Node:
    """*node* without what only says how it is to be laid over others: marks of ``!replace``, and keys that are null."""
    if isinstance(node, MappingNode):
        entries = {name: settled(each) for name, each in node.entries.items() if not _clears(each)}
        return MappingNode(entries, {name: node.keys[name] for name in entries}, node.origin)
    if isinstance(node, ListNode):
        return ListNode(tuple(map(settled, node.items)), node.origin)
    return replace(node, replace=False) if node.replace else node


def _clears(node: Node) -> bool:
    return isinstance(node, ScalarNode) and node.value is None


def _merged_mapping(lower: MappingNode, upper: MappingNode) -> MappingNode:
    entries, keys = dict(lower.entries), dict(lower.keys)
    for name, each in upper.entries.items():
        result = merged(lower.entries.get(name), each)
        if result is None:
            entries.pop(name, None)
            keys.pop(name, None)
        else:
            entries[name] = result
            keys[name] = upper.keys[name]
    return MappingNode(entries, keys, lower.origin)


def _refuse_loss(lower: ListNode, upper: ListNode) -> None:
    lost = [item for item in lower.items if not any(same_value(item, each) for each in upper.items)]
    if not lost:
        return
    count = f"{len(lost)} items" if len(lost) > 1 else "an item"
    raise fault(
        upper.origin,
        f"this list drops {count} of the one below, at {lower.origin}",
        "keep them, or say that they shall go: `!replace [...]`, or null for all",
    )
