"""From the text of a document to its tree. Nothing in it is evaluated, and nothing in it is looked up.

A document is YAML without what makes YAML surprising: no anchors, aliases and merge keys, no tags but ``!env``,
``!file`` and ``!replace``, no key twice, one document a file. Size, depth and number of values are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

from execworld.config.nodes import (
    ListNode,
    MappingNode,
    Node,
    Origin,
    ScalarNode,
    empty_mapping,
)
from execworld.config.problems import fault, suggestion
from execworld.config.reference_forms import environment_reference, file_reference
from execworld.config.scalars import plain_scalar

MAX_BYTES: Final = 1 << 20
MAX_DEPTH: Final = 32
MAX_VALUES: Final = 100_000

_TAGS: Final = ("!env", "!file", "!replace")
_UNPRINTABLE: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a text comes from.

    Attributes:
        layer: The layer that it is.
        file: How messages name it.
        directory: What paths in it are relative to.
        first_column: How many characters stand before it in its first line.
    """

    layer: str
    file: str
    directory: str
    first_column: int = 0

    def at(self, line: int, column: int) -> Origin:
        """The place of *line* and *column*, both from 0."""
        return Origin(self.layer, self.file, line + 1, column + 1 + (0 if line else self.first_column))

    @property
    def start(self) -> Origin:
        return self.at(0, 0)


@dataclass(slots=True)
class _Open:
    """A collection whose end is still to come."""

    origin: Origin
    tag: str | None
    is_mapping: bool
    items: list[Node] = field(default_factory=list[Node])
    entries: dict[str, Node] = field(default_factory=dict[str, Node])
    keys: dict[str, Origin] = field(default_factory=dict[str, Origin])
    key: str | None = None


def read_document(data: bytes, source: Source) -> MappingNode:
    """The mapping that *data* holds; an empty one when there is nothing in it but comments.

    Raises:
        ConfigurationError: with the place of what is wrong.
    """
    node = read_value(_decode(data, source), source)
    if isinstance(node, ScalarNode) and node.value is None:
        return empty_mapping(source.start)
    if not isinstance(node, MappingNode):
        raise fault(node.origin, "a document is a mapping of rows", "begin with `world:`, for example")
    if node.replace:
        raise fault(
            node.origin, "a whole document cannot replace", "write `!replace` before what shall replace"
        )
    return node


def read_value(text: str, source: Source) -> Node:
    """The one value that *text* holds.

    Raises:
        ConfigurationError: with the place of what is wrong.
    """
    if match := _UNPRINTABLE.search(text):
        origin = _place_of(text, match.start(), source)
        raise fault(origin, f"a character that may not stand here: {ascii(match[0])[1:-1]}")
    try:
        return _build(yaml.parse(text, Loader=_PARSER), source)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        origin = source.start if mark is None else source.at(mark.line, mark.column)
        raise fault(origin, f"this is not YAML: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise fault(source.start, f"this is not YAML: {error}") from None


def _decode(data: bytes, source: Source) -> str:
    if len(data) > MAX_BYTES:
        raise fault(source.start, f"the document is larger than {MAX_BYTES} bytes")
    try:
        return data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise fault(_place_of(before, len(before), source), "the document is not UTF-8") from None


def _place_of(text: str, index: int, source: Source) -> Origin:
    lines = re.split(r"\r\n|[\r\n\x85\u2028\u2029]", text[:index])
    return source.at(len(lines) - 1, len(lines[-1]))


def _build(events: Iterable[Any], source: Source) -> Node:
    stack: list[_Open] = []
    root: Node | None = None
    count = documents = 0
    for event in events:
        finished: Node | None = None
        origin = source.at(event.start_mark.line, event.start_mark.column)
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise fault(origin, "a second document begins here", "put it into a file of its own")
            if event.tags:
                raise fault(origin, "`%TAG` is not read")
        elif isinstance(event, yaml.CollectionEndEvent):
            finished = _finished(stack.pop(), source)
        elif isinstance(event, yaml.NodeEvent):
            count += 1
            if count > MAX_VALUES:
                raise fault(origin, f"the document has more than {MAX_VALUES} values")
            _refuse_anchor(event, origin)
            if stack and stack[-1].is_mapping and stack[-1].key is None:
                _take_key(stack[-1], event, origin)
            elif isinstance(event, yaml.ScalarEvent):
                finished = _scalar(event, origin, source)
            else:
                if len(stack) >= MAX_DEPTH:
                    raise fault(origin, f"the document is nested deeper than {MAX_DEPTH} levels")
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                stack.append(_Open(origin, _checked_tag(event, origin), is_mapping))
        if finished is None:
            continue
        if not stack:
            root = finished
        elif stack[-1].is_mapping:
            parent = stack[-1]
            assert parent.key is not None
            parent.entries[parent.key] = finished
            parent.key = None
        else:
            stack[-1].items.append(finished)
    return ScalarNode(None, source.start) if root is None else root


def _refuse_anchor(event: Any, origin: Origin) -> None:
    if event.anchor is not None:
        sign = "*" if isinstance(event, yaml.AliasEvent) else "&"
        raise fault(
            origin,
            f"anchors and aliases are not read: `{sign}{event.anchor}`",
            "write the value out, or put what repeats into a layer below",
        )


def _take_key(parent: _Open, event: Any, origin: Origin) -> None:
    if not isinstance(event, yaml.ScalarEvent):
        raise fault(origin, "a key is text, not a list or a mapping")
    key: str = event.value
    if event.tag is not None:
        raise fault(origin, f"a key takes no tag: `{event.tag}`")
    if not event.style and key == "<<":
        raise fault(origin, "merge keys are not read: `<<`", "layers are merged; put what is shared into one")
    if key in parent.entries:
        raise fault(origin, f"the key `{key}` is there already, in line {parent.keys[key].line}")
    _refuse_surrogates(key, origin)
    parent.keys[key] = origin
    parent.key = key


def _scalar(event: Any, origin: Origin, source: Source) -> Node:
    tag = _checked_tag(event, origin)
    text: str = event.value
    _refuse_surrogates(text, origin)
    if tag == "!env":
        return environment_reference(text, origin)
    if tag == "!file":
        return file_reference(text, origin, source.directory)
    if event.style:
        return ScalarNode(text, origin, replace=tag is not None)
    try:
        return ScalarNode(plain_scalar(text), origin, replace=tag is not None)
    except ValueError as error:
        raise fault(origin, str(error), "put quotes around it if it is text") from None


def _finished(done: _Open, source: Source) -> Node:
    if done.tag == "!env" and done.is_mapping:
        return _environment_with_default(done)
    if done.tag in ("!env", "!file"):
        what = "a name, or a mapping with `name` and `default`" if done.tag == "!env" else "a path"
        raise fault(done.origin, f"`{done.tag}` takes {what}")
    replace = done.tag is not None
    if done.is_mapping:
        return MappingNode(done.entries, done.keys, done.origin, replace)
    return ListNode(tuple(done.items), done.origin, replace)


def _environment_with_default(done: _Open) -> Node:
    for key, origin in done.keys.items():
        if key not in ("name", "default"):
            raise fault(
                origin, f"`!env` has no `{key}`", suggestion(key, ("name", "default"), "what it takes")
            )
    name, default = done.entries.get("name"), done.entries.get("default")
    if not isinstance(name, ScalarNode) or not isinstance(name.value, str):
        raise fault(done.origin, "`!env` needs a `name`")
    if default is None:
        return environment_reference(name.value, done.origin)
    if not isinstance(default, ScalarNode) or default.value is None:
        raise fault(default.origin, "the `default` of `!env` is text, a number, yes or no")
    value = default.value
    text = ("true" if value else "false") if isinstance(value, bool) else str(value)
    return environment_reference(name.value, done.origin, text)


def _checked_tag(event: Any, origin: Origin) -> str | None:
    tag: str | None = event.tag
    if tag is None or tag in _TAGS:
        return tag
    raise fault(origin, f"there is no tag `{tag}`", suggestion(tag, _TAGS, "the tags"))


def _refuse_surrogates(text: str, origin: Origin) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise fault(origin, "half of a character: an escape of one that needs two") from None
