"""From what pydantic found to one message: where, what, and the nearest right name; never a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from execworld.config.nodes import EnvironmentNode, FileNode, ListNode, MappingNode, Node, Origin, describe
from execworld.config.problems import fault, nearest, suggestion
from execworld.seams import ConfigurationError
from execworld.seams.values import record

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

_UNKNOWN: Final = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
_MISSING: Final = frozenset({"missing", "missing_argument"})
_KEY: Final = "[key]"  # how pydantic says that it means the key and not the value
_QUOTED: Final = re.compile(r"'([^']*)'")
_SHARED_CHARACTERS: Final = 4


@record
class Fault:
    """One thing that pydantic found.

    Attributes:
        path: How messages name the options.
        node: The options.
        origin: What a fault of the whole is told of.
        config_type: Their type.
        detail: What was found.
        secrets: Texts that no message may hold a part of.
    """

    path: str
    node: MappingNode
    origin: Origin
    config_type: Any
    detail: ErrorDetails
    secrets: tuple[str, ...]

    @property
    def is_unknown(self) -> bool:
        return self.detail["type"] in _UNKNOWN

    @property
    def is_missing(self) -> bool:
        return self.detail["type"] in _MISSING

    @property
    def place(self) -> tuple[str | int, ...]:
        """Where in the options it is."""
        return tuple(self.find()[0])

    def find(self) -> tuple[list[str | int], Node, Origin]:
        """The part of the location that is in the document, the innermost node, and the place of it."""
        node: Node = self.node
        origin, found = self.origin, list[str | int]()
        for part in self.detail["loc"]:
            if isinstance(node, MappingNode) and part in node.entries:
                key = str(part)
                origin = node.keys[key] if self._is_about_key(part) else node.entries[key].origin
                node = node.entries[key]
            elif isinstance(node, ListNode) and isinstance(part, int) and part < len(node.items):
                node = node.items[part]
                origin = node.origin
            else:
                continue  # the member of a union, or what is missing
            found.append(part)
        return found, node, origin

    def _is_about_key(self, part: str | int) -> bool:
        if self.is_unknown:
            return self.detail["loc"][-1] == part
        return self.key_at_fault == part

    @property
    def key_at_fault(self) -> str | int | None:
        """The key that is wrong itself, and not its value; None when none is."""
        location = self.detail["loc"]
        return location[location.index(_KEY) - 1] if _KEY in location else None


def first_fault(faults: Iterable[Fault]) -> ConfigurationError:
    """The error for the most telling fault: an unknown name before a wrong value, that before a missing one."""
    every = list(faults)
    return _error(min(apart_from(every, [each for each in every if each.is_missing]), key=_rank))


def apart_from(faults: Iterable[Fault], excused: Iterable[Fault]) -> list[Fault]:
    """*faults* without those that are told only because the value fits another member of a union but for *excused*."""
    places = [each.place for each in excused]
    return [
        each
        for each in faults
        if each.is_missing or not any(place[: len(each.place)] == each.place for place in places)
    ]


def _rank(each: Fault) -> tuple[bool, bool, int, int, int]:
    found, _, origin = each.find()
    # Of the members of a union, the one that came furthest is the one that was meant.
    return (not each.is_unknown, each.is_missing, -len(found), origin.line, origin.column)


def _error(each: Fault) -> ConfigurationError:
    found, node, origin = each.find()
    where = ".".join([each.path, *map(str, found)])
    if each.is_unknown:
        name = str(each.detail["loc"][-1])
        owner = ".".join([each.path, *map(str, found[:-1])])
        known = _known_names(each)
        return fault(origin, f"`{owner}` has no `{name}`", suggestion(name, known, "it has"))
    if each.is_missing:
        return fault(origin, f"`{where}` needs a value for `{each.detail['loc'][-1]}`")
    own = each.detail.get("ctx", {}).get("error")
    if isinstance(own, ValueError):
        return _own_error(each, own, where, origin)
    message = each.detail["msg"].replace("Input should be", "it must be").replace(", got", ", and is")
    if _holds_part(message, each.secrets):
        message = f"it is not what is expected here ({each.detail['type']})"
    hint = ""
    if isinstance(node, EnvironmentNode | FileNode):
        return fault(origin, f"`{where}`, which is {describe(node)}: {message}")
    if each.detail["type"] in ("enum", "literal_error") and len(found) == len(each.detail["loc"]):
        near = nearest(str(_text_of(node)), _QUOTED.findall(message))
        hint = f"did you mean `{near}`?" if near is not None else ""
    elif each.detail["type"] == "string_type" and describe(node) in ("a number", "yes or no"):
        hint = "put quotes around it if it is text"
    elif each.key_at_fault is not None:
        near = nearest(str(each.key_at_fault), _QUOTED.findall(message))
        hint = f"did you mean `{near}`?" if near is not None else ""
        return fault(origin, f"`{where}`: {message}", hint)
    return fault(origin, f"`{where}` is {describe(node)}: {message}", hint)


def _own_error(each: Fault, own: ValueError, where: str, origin: Origin) -> ConfigurationError:
    """What the type itself refused, in its own words, unless they give away what a reference stands for."""
    message = own.message if isinstance(own, ConfigurationError) else str(own)
    hint = own.hint if isinstance(own, ConfigurationError) else ""
    if _holds_part(f"{message}\n{hint}", each.secrets):
        message = (
            "it was refused; why is not shown, because the reason holds a part of what a reference stands for"
        )
        hint = ""
    return fault(origin, f"`{where}`: {message}", hint)


def _holds_part(message: str, secrets: Iterable[str]) -> bool:
    """Whether any four characters in a row are those of a secret, or the whole of a shorter one."""
    pieces = {
        message[start : start + _SHARED_CHARACTERS] for start in range(len(message) - _SHARED_CHARACTERS + 1)
    }
    return any(
        secret in message if len(secret) < _SHARED_CHARACTERS else any(piece in secret for piece in pieces)
        for secret in secrets
        if secret
    )


def _text_of(node: Node) -> object:
    return getattr(node, "value", "")


def _known_names(each: Fault) -> list[str]:
    """Names that were possible where an unknown one stands, by the schema of the type."""
    from execworld.config.options import adapter_of

    schema = adapter_of(each.config_type).json_schema()
    candidates = [schema]
    for part in each.detail["loc"][:-1]:
        inner = [step for one in _alternatives(candidates, schema) for step in _steps(one, part)]
        candidates = inner or candidates  # the member of a union is no step
    names = (name for one in _alternatives(candidates, schema) for name in one.get("properties", {}))
    return list(dict.fromkeys(names))


def _alternatives(candidates: list[dict[str, Any]], root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for one in candidates:
        while "$ref" in one:
            one = root["$defs"][one["$ref"].rpartition("/")[2]]
        yield one
        for kind in ("anyOf", "oneOf", "allOf"):
            yield from _alternatives(one.get(kind, []), root)


def _steps(schema: dict[str, Any], part: str | int) -> Iterator[dict[str, Any]]:
    if isinstance(part, int):
        items = schema.get("items")
        if isinstance(items, dict):
            yield cast("dict[str, Any]", items)
        return
    if part in schema.get("properties", {}):
        yield schema["properties"][part]
    further = schema.get("additionalProperties")
    if isinstance(further, dict):
        yield cast("dict[str, Any]", further)
