"""The tree that a document is read into. Every value knows where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TypeAlias

from execworld.seams.values import record


@record
class Origin:
    """Where something stands.

    Attributes:
        layer: Which layer it belongs to, in words: ``defaults``, ``home``, ``profile work``, ``patch``, ``set``.
        file: The document, as the reader knows it.
        line: From 1.
        column: From 1, in characters.
    """

    layer: str
    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


PlainValue: TypeAlias = str | int | float | bool | None


@record
class ScalarNode:
    value: PlainValue
    origin: Origin
    replace: bool = False


@record
class EnvironmentNode:
    """``!env NAME``: the value of a variable of this process. It is read late, and shown never.

    Attributes:
        default: What to take when the variable is unset or empty; None when that is an error.
    """

    name: str
    default: str | None
    origin: Origin
    replace: bool = False


@record
class FileNode:
    """``!file PATH``: the text of a file. It is read late, and shown never.

    Attributes:
        path: Absolute; in the document it is relative to the document.
    """

    path: str
    origin: Origin
    replace: bool = False


@record
class ListNode:
    items: tuple[Node, ...]
    origin: Origin
    replace: bool = False


@record
class MappingNode:
    """A mapping.

    Attributes:
        entries: Values by key.
        keys: Where each key stands.
        replace: It replaces what layers below say, instead of being merged into it (``!replace``).
    """

    entries: Mapping[str, Node]
    keys: Mapping[str, Origin] = field(compare=False)
    origin: Origin
    replace: bool = False


Reference: TypeAlias = EnvironmentNode | FileNode
Node: TypeAlias = ScalarNode | EnvironmentNode | FileNode | ListNode | MappingNode


def plain_value(node: Node) -> object:
    """*node* as values of Python, without places. A reference is a mapping with its tag."""
    if isinstance(node, MappingNode):
        return {name: plain_value(each) for name, each in node.entries.items()}
    if isinstance(node, ListNode):
        return [plain_value(each) for each in node.items]
    if isinstance(node, EnvironmentNode):
        if node.default is None:
            return {"!env": node.name}
        return {"!env": {"name": node.name, "default": node.default}}
    return {"!file": node.path} if isinstance(node, FileNode) else node.value


def same_value(left: Node, right: Node) -> bool:
    """Whether both say the same, wherever they stand. A number is no truth value, and 1 is not 1.0."""
    if isinstance(left, MappingNode) and isinstance(right, MappingNode):
        return left.entries.keys() == right.entries.keys() and all(
            same_value(each, right.entries[name]) for name, each in left.entries.items()
        )
    if isinstance(left, ListNode) and isinstance(right, ListNode):
        return len(left.items) == len(right.items) and all(map(same_value, left.items, right.items))
    if isinstance(left, ScalarNode) and isinstance(right, ScalarNode):
        return type(left.value) is type(right.value) and left.value == right.value
    return type(left) is type(right) and plain_value(left) == plain_value(right)


def describe(node: Node) -> str:
    """What *node* is, in words, without its value."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, ListNode):
        return "a list"
    if isinstance(node, EnvironmentNode):
        return f"`!env {node.name}`"
    if isinstance(node, FileNode):
        return "`!file`"
    if isinstance(node.value, bool):
        return "yes or no"
    if isinstance(node.value, str):
        return "text"
    return "nothing" if node.value is None else "a number"


def holds_reference(node: Node) -> bool:
    if isinstance(node, MappingNode):
        return any(map(holds_reference, node.entries.values()))
    if isinstance(node, ListNode):
        return any(map(holds_reference, node.items))
    return isinstance(node, EnvironmentNode | FileNode)


def empty_mapping(origin: Origin) -> MappingNode:
    return MappingNode({}, {}, origin)
