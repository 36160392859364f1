"""Options of a row: from the tree of a document to the value that a provider or plugin takes, strictly."""

from __future__ import annotations

import json
from dataclasses import field
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from execworld.config.nodes import (
    ListNode,
    MappingNode,
    Node,
    Origin,
    ScalarNode,
    holds_reference,
)
from execworld.config.option_faults import Fault, apart_from, first_fault
from execworld.config.references import Lookup
from execworld.seams.values import record

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails


@record
class Options:
    """What is to be validated.

    Attributes:
        path: How messages name it, for example ``world.config``.
        node: The merged mapping.
        origin: What a fault of the whole is told of.
    """

    path: str
    node: MappingNode
    origin: Origin
    config_type: Any


@record
class _Texts:
    """Texts that references stood for: by place, to read a number out of one; and all, to keep them out of messages."""

    by_place: dict[tuple[str | int, ...], str] = field(default_factory=dict[tuple[str | int, ...], str])


@cache
def adapter_of(config_type: Any) -> TypeAdapter[Any]:
    """One adapter a type: making one takes longer than using it a hundred times."""
    return TypeAdapter(config_type)


def check_partly(options: Options) -> None:
    """Check what is there. What may still come from a layer above, and what references stand for, is not looked at.

    Raises:
        ConfigurationError: an unknown key or a wrong type.
    """
    texts = _Texts()
    found = _try(options, _value(options.node, (), texts, None))
    if not isinstance(found, ValidationError):
        return
    every = _faults(options, found.errors(include_url=False, include_input=False), texts)
    excused = [each for each in every if _may_be_mended(each, texts)]
    kept = [each for each in apart_from(every, excused) if each not in excused]
    if kept:
        raise first_fault(kept)


def _may_be_mended(each: Fault, texts: _Texts) -> bool:
    """Whether a layer above, or the value of a reference, may make this right."""
    if each.is_unknown:
        return False
    if _at_reference(each.detail, texts):
        return True
    found, node, _ = each.find()
    if isinstance(node, ScalarNode) and node.value is None:
        return True  # it clears what is below
    if any(isinstance(part, int) for part in found):
        return holds_reference(node)  # nothing is merged into an item of a list
    # What a type refuses of a whole mapping hangs on all of its keys.
    return each.is_missing or (each.detail["type"] == "value_error" and isinstance(node, MappingNode))


def validated(options: Options, lookup: Lookup) -> Any:
    """The value that the options mean, with what references stand for.

    Raises:
        ConfigurationError: with the place of what is wrong. Nothing that a reference stands for is in it.
    """
    texts = _Texts()
    value = _value(options.node, (), texts, lookup)
    found = _try(options, value)
    if isinstance(found, ValidationError) and _read_texts(value, found, texts):
        found = _try(options, value)
    if not isinstance(found, ValidationError):
        return found
    details = found.errors(include_url=False, include_input=False)
    refusal = first_fault(_faults(options, details, texts))
    # Raised here and not where it was caught: the error of pydantic repeats the values.
    del found, details
    raise refusal


def _try(options: Options, value: object) -> Any:
    adapter = adapter_of(options.config_type)
    try:
        return adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        return error


def _value(node: Node, place: tuple[str | int, ...], texts: _Texts, lookup: Lookup | None) -> object:
    if isinstance(node, MappingNode):
        return {name: _value(each, (*place, name), texts, lookup) for name, each in node.entries.items()}
    if isinstance(node, ListNode):
        return [_value(each, (*place, index), texts, lookup) for index, each in enumerate(node.items)]
    if isinstance(node, ScalarNode):
        return node.value
    text = "" if lookup is None else lookup.text_of(node)
    texts.by_place[place] = text
    return text


def _at_reference(error: ErrorDetails, texts: _Texts) -> bool:
    return any(_stands_at(error["loc"], place) for place in texts.by_place)


def _stands_at(location: tuple[str | int, ...], place: tuple[str | int, ...]) -> bool:
    """Whether *location*, in which members of unions are named as well, is *place* or lies below it."""
    rest = iter(location)
    return all(any(part == each for each in rest) for part in place)


def _read_texts(value: object, error: ValidationError, texts: _Texts) -> bool:
    """Where text is of the wrong type, and came by a reference, read the number or truth value that it spells."""
    changed = False
    for detail in error.errors(include_url=False, include_input=False):
        for place, text in texts.by_place.items():
            if not _stands_at(detail["loc"], place):
                continue
            try:
                number: object = json.loads(text)
            except ValueError:
                continue
            if isinstance(number, int | float):
                changed = _put(value, place, number) or changed
    return changed


def _put(value: Any, place: tuple[str | int, ...], new: object) -> bool:
    for part in place[:-1]:
        value = value[part]
    value[place[-1]] = new
    return True


def _faults(options: Options, details: list[ErrorDetails], texts: _Texts) -> list[Fault]:
    secrets = tuple(texts.by_place.values())
    return [
        Fault(options.path, options.node, options.origin, options.config_type, each, secrets)
        for each in details
    ]
