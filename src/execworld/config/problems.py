"""How a fault of a document is told: where, what, and the nearest right name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from execworld.config.nodes import EnvironmentNode, FileNode, ListNode, MappingNode, Node, Origin, describe
from execworld.seams import ConfigurationError


def fault(origin: Origin, problem: str, hint: str = "") -> ConfigurationError:
    """An error for what stands at *origin*."""
    return ConfigurationError(
        f"{origin}: {problem}", file=origin.file, line=origin.line, column=origin.column, hint=hint
    )


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The name that was probably meant, in whatever case and with whatever kind of dash it was spelt."""
    spelt = {_plain(each): each for each in known}
    near = difflib.get_close_matches(_plain(name), spelt, n=1)
    return spelt[near[0]] if near else None


def suggestion(name: str, known: Iterable[str], what: str) -> str:
    """A hint: the nearest of the *known* names; where none is near, all of them after *what*."""
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean `{near}`?"
    return f"{what}: {', '.join(names) if names else 'nothing'}"


def refuse_references(section: str, node: Node) -> None:
    """Refuse what would let the environment of whoever starts a composition say what binds it."""
    if isinstance(node, EnvironmentNode | FileNode):
        raise fault(node.origin, f"`{section}` is written out: {describe(node)} is not read there")
    if isinstance(node, MappingNode):
        for each in node.entries.values():
            refuse_references(section, each)
    elif isinstance(node, ListNode):
        for each in node.items:
            refuse_references(section, each)


def _plain(name: str) -> str:
    return name.casefold().replace("-", "_")
