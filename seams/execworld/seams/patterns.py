"""Glob patterns, matched component by component without backtracking over the path."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from execworld.seams.values import record

_MAX_ALTERNATIVES: Final = 1024


@record
class Alternative:
    """One pattern without braces: an expression a component, None for ``**``."""

    components: tuple[re.Pattern[str] | None, ...]
    literals: tuple[str | None, ...]
    directory_only: bool

    @property
    def depth(self) -> int:
        """How deep a match can lie; 0 without a bound."""
        return 0 if None in self.components else len(self.components)

    def matches(self, path: Sequence[str]) -> bool:
        # Which prefixes of the pattern match what was seen of the path so far.
        pattern = self.components
        reached = {0}
        for name in path:
            following: set[int] = set()
            for position in _with_skips(pattern, reached):
                if position == len(pattern):
                    continue
                component = pattern[position]
                if component is None:
                    following.add(position)
                elif component.fullmatch(name):
                    following.add(position + 1)
            if not following:
                return False
            reached = following
        return len(pattern) in _with_skips(pattern, reached)


class Glob:
    """A parsed pattern.

    Raises:
        ValueError: it is malformed.
    """

    def __init__(self, pattern: str) -> None:
        self._alternatives = [_parse(text) for text in _expand_braces(pattern)]
        prefixes = [_literal_directories(alternative) for alternative in self._alternatives]
        self.prefix = _common(prefixes)
        """Names of directories that every match lies in."""
        depths = [alternative.depth for alternative in self._alternatives]
        self.max_depth = 0 if 0 in depths else max(depths) - len(self.prefix)
        """How deep below the prefix a match can lie; 0 without a bound."""

    def matches(self, path: str, *, is_directory: bool) -> bool:
        """Whether a relative path matches."""
        names = path.split("/")
        return any(
            alternative.matches(names)
            for alternative in self._alternatives
            if is_directory or not alternative.directory_only
        )


def _with_skips(pattern: Sequence[re.Pattern[str] | None], positions: set[int]) -> set[int]:
    """*positions* and those behind each ``**``, which also stands for no component at all."""
    result = set(positions)
    for position in positions:
        while position < len(pattern) and pattern[position] is None:
            position += 1
            result.add(position)
    return result


def _expand_braces(pattern: str) -> list[str]:
    results: list[str] = []
    pending = [pattern]
    while pending:
        text = pending.pop()
        braces = _first_braces(text)
        if braces is None:
            results.append(text)
        else:
            start, parts, end = braces
            pending += (text[:start] + part + text[end:] for part in reversed(parts))
        if len(results) + len(pending) > _MAX_ALTERNATIVES:
            message = f"the pattern has more than {_MAX_ALTERNATIVES} alternatives"
            raise ValueError(message)
    return results


def _first_braces(text: str) -> tuple[int, list[str], int] | None:
    """Start, parts and end of the first outermost ``{a,b}``."""
    start = depth = 0
    begin = -1
    parts: list[str] = []
    for position, character in _significant(text):
        if character == "{":
            if depth == 0:
                begin, start = position, position + 1
            depth += 1
        elif character == "}":
            if depth == 0:
                message = f"malformed pattern: '}}' without '{{' at {position}"
                raise ValueError(message)
            depth -= 1
            if depth == 0:
                parts.append(text[start:position])
                return begin, parts, position + 1
        elif character == "," and depth == 1:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        message = f"malformed pattern: '{{' at {begin} is not closed"
        raise ValueError(message)
    return None


def _significant(text: str) -> Iterator[tuple[int, str]]:
    """Characters outside sets and not escaped."""
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 2
            continue
        if character == "[":
            position = _set_end(text, position)
            continue
        yield position, character
        position += 1


def _set_end(text: str, start: int) -> int:
    """Position behind the set that begins at *start*."""
    position = start + 1
    if text[position : position + 1] in ("!", "^"):
        position += 1
    if text[position : position + 1] == "]":
        position += 1  # the first one is a member
    end = text.find("]", position)
    if end < 0 or "/" in text[start:end]:
        message = f"malformed pattern: '[' at {start} is not closed"
        raise ValueError(message)
    return end + 1


def _parse(text: str) -> Alternative:
    if not text:
        message = "malformed pattern: it is empty"
        raise ValueError(message)
    if text.startswith("/"):
        message = "malformed pattern: it is matched below a root, so it cannot be absolute"
        raise ValueError(message)
    directory_only = text.endswith("/")
    names = [name for name in _components(text) if name not in ("", ".")]
    if not names or ".." in names:
        message = "malformed pattern: it names nothing below the root"
        raise ValueError(message)
    components: list[re.Pattern[str] | None] = []
    literals: list[str | None] = []
    for name in names:
        if name == "**":
            components.append(None)
            literals.append(None)
            continue
        expression, literal = _translate(name)
        components.append(re.compile(expression, re.DOTALL))
        literals.append(literal)
    if components[-1] is None:
        # What lies below a directory, and not the directory itself.
        components.append(re.compile(".*", re.DOTALL))
        literals.append(None)
    return Alternative(tuple(components), tuple(literals), directory_only)


def _components(text: str) -> Iterator[str]:
    start = 0
    for position, character in _significant(text):
        if character == "/":
            yield text[start:position]
            start = position + 1
    yield text[start:]


def _translate(name: str) -> tuple[str, str | None]:
    """Expression for one component, and its text when it has no wildcard.

    Each ``*`` but the last takes the first place where what follows matches and never tries another, as
    ``fnmatch.translate`` does; that is enough, and bounds the time.
    """
    pieces: list[list[str]] = [[]]
    literal: str | None = ""
    position = 0
    while position < len(name):
        character = name[position]
        if character == "*":
            run = len(name) - position - len(name[position:].lstrip("*"))
            if run > 1:
                message = f"malformed pattern: '**' is not a component of its own in {name!r}"
                raise ValueError(message)
            pieces.append([])
            literal = None
        elif character == "?":
            pieces[-1].append(".")
            literal = None
        elif character == "[":
            end = _set_end(name, position)
            pieces[-1].append(_translate_set(name[position + 1 : end - 1]))
            literal = None
            position = end
            continue
        else:
            if character == "\\":
                position += 1
                character = name[position : position + 1]
                if not character:
                    message = "malformed pattern: it ends in a backslash"
                    raise ValueError(message)
            pieces[-1].append(re.escape(character))
            if literal is not None:
                literal += character
        position += 1
    first, *rest = ("".join(piece) for piece in pieces)
    if not rest:
        return first, literal
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    return f"{first}{middle}.*{rest[-1]}", None


def _translate_set(body: str) -> str:
    negated = body.startswith(("!", "^"))
    members = body[1:] if negated else body
    parts: list[str] = []
    position = 0
    while position < len(members):
        low = members[position]
        if members[position + 1 : position + 2] == "-" and position + 2 < len(members):
            high = members[position + 2]
            if low > high:
                message = f"malformed pattern: the range {low}-{high} is empty"
                raise ValueError(message)
            parts.append(f"{re.escape(low)}-{re.escape(high)}")
            position += 3
        else:
            parts.append(re.escape(low))
            position += 1
    return f"[{'^' if negated else ''}{''.join(parts)}]"


def _literal_directories(alternative: Alternative) -> tuple[str, ...]:
    """First components without a wildcard, the last component left out: that one is matched by the walk."""
    names: list[str] = []
    for literal in alternative.literals[:-1]:
        if literal is None:
            break
        names.append(literal)
    return tuple(names)


def _common(prefixes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    first, last = min(prefixes), max(prefixes)
    length = 0
    while length < min(len(first), len(last)) and first[length] == last[length]:
        length += 1
    return first[:length]
