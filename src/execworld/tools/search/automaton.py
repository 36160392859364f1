"""Matching in time that grows with the line alone, whatever the expression: states are found as they are needed.

The engine of the standard library backtracks: a hostile file could hold the whole process for hours with an expression
that looks harmless, since it does not let go of the interpreter meanwhile.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from execworld.tools.search.syntax import (
    WORD,
    Characters,
    Choice,
    End,
    Node,
    Ranges,
    Repeat,
    Sequence,
    Start,
)

_MAX_STATES: Final = 2000
_CHECK_EVERY: Final = 4096
_State: TypeAlias = tuple[frozenset[int], bool, bool]
"""Positions reached, not closed yet; whether a word character came last; whether this is the start of the line."""
_WORD: Final = frozenset(chr(code) for low, high in WORD for code in range(low, high + 1))

_CONSUME: Final = 0
_SPLIT: Final = 1
_START: Final = 2
_END: Final = 3
_EDGE: Final = 4
_ACCEPT: Final = 5


class Matcher:
    """Says of single lines whether an expression occurs in them.

    Not for use by several threads at once.

    Args:
        check: Called now and then during long work; it raises to end that.
    """

    def __init__(self, node: Node, check: Callable[[], None] = lambda: None) -> None:
        self._check = check
        self._kinds: list[int] = []
        self._targets: list[tuple[int, ...]] = []
        self._sets: dict[int, tuple[list[int], list[int]]] = {}
        accept = self._add(_ACCEPT)
        self._first = self._build(node, accept)
        self._states: dict[_State, dict[str, _State | Literal[True]]] = {}

    def occurs_in(self, line: str) -> bool:
        key: _State = (frozenset((self._first,)), False, True)
        transitions = self._transitions(key)
        for position, character in enumerate(line):
            following = transitions.get(character)
            if following is None:
                following = transitions[character] = self._follow(key, character)
            if following is True:
                return True
            if not position % _CHECK_EVERY:
                self._check()
            if following != key:
                key = following
                transitions = self._transitions(key)
        reached, after_word, at_start = key
        return self._closed(reached, after_word, next_is_word=False, at_start=at_start, at_end=True) is None

    def _transitions(self, key: _State) -> dict[str, _State | Literal[True]]:
        transitions = self._states.get(key)
        if transitions is None:
            if len(self._states) >= _MAX_STATES:
                self._states.clear()
            self._check()
            transitions = self._states[key] = {}
        return transitions

    def _follow(self, key: _State, character: str) -> _State | Literal[True]:
        """The next state, or True when the expression matched before *character*."""
        reached, after_word, at_start = key
        is_word = character in _WORD
        closed = self._closed(reached, after_word, next_is_word=is_word, at_start=at_start, at_end=False)
        if closed is None:
            return True
        code = ord(character)
        moved = {self._targets[position][0] for position in closed if self._takes(position, code)}
        moved.add(self._first)  # a match may begin anywhere
        return frozenset(moved), is_word, False

    def _takes(self, position: int, code: int) -> bool:
        lows, highs = self._sets[position]
        index = bisect_right(lows, code) - 1
        return index >= 0 and code <= highs[index]

    def _closed(
        self, reached: frozenset[int], after_word: bool, *, next_is_word: bool, at_start: bool, at_end: bool
    ) -> list[int] | None:
        """Positions that take a character, behind all that takes none; None when the end of the expression is there."""
        pending, seen, consuming = list(reached), set(reached), list[int]()
        holds = {_SPLIT: True, _START: at_start, _END: at_end, _EDGE: after_word is not next_is_word}
        while pending:
            position = pending.pop()
            kind = self._kinds[position]
            if kind == _ACCEPT:
                return None
            if kind == _CONSUME:
                consuming.append(position)
            elif holds[kind]:
                for target in self._targets[position]:
                    if target not in seen:
                        seen.add(target)
                        pending.append(target)
        return consuming

    def _add(self, kind: int, *targets: int) -> int:
        self._kinds.append(kind)
        self._targets.append(targets)
        return len(self._kinds) - 1

    def _build(self, node: Node, after: int) -> int:
        """Add *node* so that it goes on to position *after*; gives where it begins."""
        match node:
            case Characters(ranges):
                position = self._add(_CONSUME, after)
                self._sets[position] = _bounds(ranges)
                return position
            case Sequence(parts):
                for part in reversed(parts):
                    after = self._build(part, after)
                return after
            case Choice(branches):
                return self._add(_SPLIT, *[self._build(branch, after) for branch in branches])
            case Repeat(inner, least, most):
                if most is None:
                    loop = self._add(_SPLIT, after)
                    self._targets[loop] = (self._build(inner, loop), after)
                    after = loop
                else:
                    end = after
                    for _ in range(most - least):
                        after = self._add(_SPLIT, self._build(inner, after), end)
                for _ in range(least):
                    after = self._build(inner, after)
                return after
            case Start():
                return self._add(_START, after)
            case End():
                return self._add(_END, after)
            case _:
                return self._add(_EDGE, after)


def _bounds(ranges: Ranges) -> tuple[list[int], list[int]]:
    return [low for low, _ in ranges], [high for _, high in ranges]
