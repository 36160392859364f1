"""The expressions that a search understands, as a tree that every engine is given the same way.

Engines differ in what ``\\w`` holds, in what a dot takes, in line ends and in what they accept at all. So none of them
reads the text that the caller wrote: it is parsed here, and each engine gets what the tree says, written out.

An expression is matched against single lines, as code points; bytes that are not UTF-8 are no characters, and nothing
takes one. ``\\d \\w \\s \\b`` are ASCII. ``$`` is before LF, CR LF and at the end; ``^`` is at the start, and before
the first character behind a byte order mark as well.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from execworld.seams.values import record

LAST: Final = 0x10FFFF
LINE_FEED: Final = 0x0A
BYTE_ORDER_MARK: Final = 0xFEFF
_ALPHABET: Final = ((0, LINE_FEED - 1), (LINE_FEED + 1, 0xD7FF), (0xE000, LAST))
"""Every character that a line can hold."""

Ranges: TypeAlias = tuple[tuple[int, int], ...]


@record
class Characters:
    """One character out of a set, given by ranges in order that neither touch nor overlap."""

    ranges: Ranges


@record
class Sequence:
    parts: tuple[Node, ...]


@record
class Choice:
    branches: tuple[Node, ...]


@record
class Repeat:
    """*most* is None without a bound."""

    node: Node
    least: int
    most: int | None


@record
class Start:
    """The start of the line."""


@record
class End:
    """The end of the line."""


@record
class WordEdge:
    """Between a character of ``[0-9A-Za-z_]`` and one outside."""


Node: TypeAlias = Characters | Sequence | Choice | Repeat | Start | End | WordEdge


def normal(ranges: list[tuple[int, int]]) -> Ranges:
    """*ranges* in order, joined where they touch, without what no line can hold."""
    joined: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    return tuple(
        (max(low, first), min(high, last))
        for low, high in joined
        for first, last in _ALPHABET
        if low <= last and first <= high
    )


def inverted(ranges: Ranges) -> Ranges:
    gaps: list[tuple[int, int]] = []
    following = 0
    for low, high in ranges:
        if following < low:
            gaps.append((following, low - 1))
        following = high + 1
    gaps.append((following, LAST))
    return normal([gap for gap in gaps if gap[0] <= gap[1]])


DIGIT: Final = normal([(0x30, 0x39)])
WORD: Final = normal([(0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
SPACE: Final = normal([(0x09, 0x0D), (0x20, 0x20)])
ANY: Final = normal([(0, LAST)])


def with_other_case(ranges: Ranges) -> Ranges:
    """*ranges* with the other case of each letter that has exactly one, within the sets that people write."""
    added = list(ranges)
    for low, high in ranges:
        for code in range(low, min(high, low + 0x2FF) + 1):
            character = chr(code)
            added += [
                (ord(other), ord(other))
                for other in (character.lower(), character.upper())
                if len(other) == 1
            ]
    return normal(added)


def as_rust(node: Node) -> str:
    """*node* for the regex crate, in ASCII, with ``multi_line`` on."""
    match node:
        case Characters(ranges):
            if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
                return f"\\x{{{ranges[0][0]:x}}}"
            return "[" + "".join(f"\\x{{{low:x}}}-\\x{{{high:x}}}" for low, high in ranges) + "]"
        case Sequence(parts):
            return "".join(map(as_rust, parts))
        case Choice(branches):
            return "(?:" + "|".join(map(as_rust, branches)) + ")"
        case Repeat(inner, least, most):
            return f"(?:{as_rust(inner)}){{{least},{'' if most is None else most}}}"
        case Start():
            return "^"
        case End():
            return "$"
        case WordEdge():
            return r"(?-u:\b)"
