"""The effective document as text. Read again, it is the same tree; what references stand for is not in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from execworld.config.nodes import EnvironmentNode, FileNode, ListNode, MappingNode, Node, Origin, ScalarNode
from execworld.config.scalars import is_read_as_text

_STEP: Final = "  "
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_PLAIN_TEXT: Final = re.compile(r"[A-Za-z0-9_/][A-Za-z0-9_/.:@+,=-]*(?<!:)", re.ASCII)
_HARMLESS: Final = re.compile(
    "[\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)


def show_document(document: MappingNode, *, origins: bool = True) -> str:
    """*document* as YAML, one value a line, with the place that each comes from in a comment."""
    if not document.entries:
        return "{}\n"
    return "".join(f"{line}\n" for line in _mapping(document, "", origins))


def show_places(document: MappingNode) -> dict[str, dict[str, object]]:
    """Where each value was said, by JSON pointer (RFC 6901)."""
    return {
        pointer: {
            "layer": origin.layer,
            "file": origin.file,
            "line": origin.line,
            "column": origin.column,
        }
        for pointer, origin in _places(document, "")
    }


def _places(node: Node, pointer: str) -> Iterator[tuple[str, Origin]]:
    if isinstance(node, MappingNode) and node.entries:
        for name, each in node.entries.items():
            escaped = name.replace("~", "~0").replace("/", "~1")
            yield from _places(each, f"{pointer}/{escaped}")
    elif isinstance(node, ListNode) and node.items:
        for index, each in enumerate(node.items):
            yield from _places(each, f"{pointer}/{index}")
    else:
        yield pointer, node.origin


def _mapping(node: MappingNode, indent: str, origins: bool) -> Iterator[str]:
    for name, each in node.entries.items():
        key = name if _PLAIN_KEY.fullmatch(name) else _quoted(name)
        yield from _value(f"{indent}{key}:", each, indent, origins)


def _list(node: ListNode, indent: str, origins: bool) -> Iterator[str]:
    for each in node.items:
        if isinstance(each, MappingNode | ListNode) and (inner := _inner(each, indent + _STEP, origins)):
            first, *rest = inner
            yield f"{indent}- {first.lstrip(' ')}"
            yield from rest
        else:
            yield from _value(f"{indent}-", each, indent, origins)


def _inner(node: MappingNode | ListNode, indent: str, origins: bool) -> list[str]:
    lines = _mapping(node, indent, origins) if isinstance(node, MappingNode) else _list(node, indent, origins)
    return list(lines)


def _value(before: str, node: Node, indent: str, origins: bool) -> Iterator[str]:
    if isinstance(node, MappingNode | ListNode) and (inner := _inner(node, indent + _STEP, origins)):
        yield before
        yield from inner
        return
    comment = f"  # {_shown(node.origin)}" if origins else ""
    yield f"{before} {_scalar(node)}{comment}"


def _scalar(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "{}"
    if isinstance(node, ListNode):
        return "[]"
    if isinstance(node, EnvironmentNode):
        if node.default is None:
            return f"!env {node.name}"
        return f"!env {{name: {node.name}, default: {_quoted(node.default)}}}"
    if isinstance(node, FileNode):
        return f"!file {_quoted(node.path)}"
    return _plain(node)


def _plain(node: ScalarNode) -> str:
    value = node.value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return value if _PLAIN_TEXT.fullmatch(value) and is_read_as_text(value) else _quoted(value)


def _quoted(text: str) -> str:
    encoded = json.dumps(text, ensure_ascii=False)
    return "".join(each if _HARMLESS.fullmatch(each) else _escaped(each) for each in encoded)


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _shown(origin: Origin) -> str:
    file = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in origin.file)
    return f"{origin.layer}: {file}:{origin.line}"
