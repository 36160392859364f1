"""From the text of an expression to its tree. What only some engines would understand is refused here, for all."""

from __future__ import annotations

from typing import Final

from execworld.tools.search import syntax
from execworld.tools.search.syntax import (
    Characters,
    Choice,
    End,
    Node,
    Ranges,
    Repeat,
    Sequence,
    Start,
    WordEdge,
)

MAX_PATTERN_CHARACTERS: Final = 4096
MAX_NODES: Final = 5000
"""How large a tree may be with its repetitions written out."""
_MAX_DEPTH: Final = 100
_MAX_REPETITION: Final = 1000

_CLASSES: Final[dict[str, Ranges]] = {
    "d": syntax.DIGIT,
    "w": syntax.WORD,
    "s": syntax.SPACE,
    "D": syntax.inverted(syntax.DIGIT),
    "W": syntax.inverted(syntax.WORD),
    "S": syntax.inverted(syntax.SPACE),
}
_NAMED: Final[dict[str, Ranges]] = {
    "alnum": syntax.normal([(0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)]),
    "alpha": syntax.normal([(0x41, 0x5A), (0x61, 0x7A)]),
    "blank": syntax.normal([(0x09, 0x09), (0x20, 0x20)]),
    "digit": syntax.DIGIT,
    "lower": syntax.normal([(0x61, 0x7A)]),
    "punct": syntax.normal([(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)]),
    "space": syntax.SPACE,
    "upper": syntax.normal([(0x41, 0x5A)]),
    "word": syntax.WORD,
    "xdigit": syntax.normal([(0x30, 0x39), (0x41, 0x46), (0x61, 0x66)]),
}
_CONTROL: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "a": 0x07}
_BYTE_ORDER_MARK: Final = Characters(((syntax.BYTE_ORDER_MARK, syntax.BYTE_ORDER_MARK),))
_CARRIAGE_RETURN: Final = Characters(((0x0D, 0x0D),))
_START: Final = Sequence((Start(), Repeat(_BYTE_ORDER_MARK, 0, 1)))
_END: Final = Sequence((Repeat(_CARRIAGE_RETURN, 0, 1), End()))


class PatternError(ValueError):
    """The expression is malformed, or uses what not every engine has."""


def parse(pattern: str) -> Node:
    """The tree of *pattern*.

    Raises:
        PatternError
    """
    if not pattern:
        raise PatternError("it is empty")
    if len(pattern) > MAX_PATTERN_CHARACTERS:
        raise PatternError(f"it is longer than {MAX_PATTERN_CHARACTERS} characters")
    if any(0xD800 <= ord(character) <= 0xDFFF for character in pattern):
        raise PatternError("it holds half of a surrogate pair, which is no character")
    node = _Parser(pattern).parse()
    if size(node) > MAX_NODES:
        raise PatternError(f"its repetitions make more than {MAX_NODES} states")
    return node


def size(node: Node) -> int:
    """Number of states with all repetitions written out."""
    match node:
        case Sequence(parts):
            return 1 + sum(map(size, parts))
        case Choice(branches):
            return 1 + sum(map(size, branches))
        case Repeat(inner, least, most):
            return 1 + (size(inner) + 1) * max(1, least + 1 if most is None else most)
        case _:
            return 1


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0
        self._folds = False

    def parse(self) -> Node:
        if self._take("(?i)"):
            self._folds = True
        node = self._choice()
        if self._at < len(self._text):
            raise self._error("')' without '('")
        return node

    def _error(self, text: str) -> PatternError:
        return PatternError(f"{text} at character {self._at + 1}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _next(self) -> str:
        character = self._peek()
        if not character:
            raise self._error("it ends too early")
        self._at += 1
        return character

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self._at):
            self._at += len(text)
            return True
        return False

    def _choice(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"groups lie more than {_MAX_DEPTH} deep")
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self._depth -= 1
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated())
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _repeated(self) -> Node:
        begin = self._at
        node = self._atom()
        bare_edge = isinstance(node, WordEdge) or node is _START or node is _END
        if (bounds := self._bounds()) is None:
            return node
        if bare_edge:
            self._at = begin
            raise self._error("an anchor cannot be repeated")
        self._take("?")  # lazily or not, the line matches or does not
        if self._bounds() is not None:
            raise self._error("a repetition of a repetition needs a group")
        return Repeat(node, *bounds)

    def _bounds(self) -> tuple[int, int | None] | None:
        if self._take("*"):
            return 0, None
        if self._take("+"):
            return 1, None
        if self._take("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at + 1 : end].partition(",")
        numbers = [least, most] if most else [least]
        if end < 0 or not all(
            number.isascii() and number.isdigit() and len(number) < 5 for number in numbers
        ):
            raise self._error(r"'{' begins no {n}, {n,} or {n,m}; the character itself is \{")
        low = int(least)
        high = int(most) if most else None if comma else low
        if max(low, high or 0) > _MAX_REPETITION or (high is not None and high < low):
            raise self._error(f"a repetition is from n to m, at most {_MAX_REPETITION}")
        self._at = end + 1
        return low, high

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return Characters(self._folded(self._set()))
        if character == ".":
            return Characters(syntax.ANY)
        if character == "^":
            return _START
        if character == "$":
            return _END
        if character in "*+?":
            self._at -= 1
            raise self._error(f"{character!r} has nothing to repeat")
        if character in "{}":
            self._at -= 1
            raise self._error(rf"{character!r} stands alone; the character itself is \{character}")
        if character == "\\":
            if self._take("b"):
                return WordEdge()
            return Characters(self._folded(self._escape()))
        return Characters(self._folded(self._one(ord(character))))

    def _group(self) -> Node:
        if self._take("?"):
            if self._take("P<") or (
                self._peek() == "<"
                and self._text[self._at + 1 : self._at + 2] not in ("=", "!")
                and self._take("<")
            ):
                end = self._text.find(">", self._at)
                if end < 0 or not self._text[self._at : end].isidentifier():
                    raise self._error("the name of a group is malformed")
                self._at = end + 1
            elif not self._take(":"):
                raise self._error(
                    "look-around and flags are not part of the expressions here; (?i) may begin the whole pattern"
                )
        node = self._choice()
        if not self._take(")"):
            raise self._error("'(' is not closed")
        return Sequence((node,))  # a node of its own, so that an anchor in a group may be repeated

    def _one(self, code: int) -> Ranges:
        if code == syntax.LINE_FEED:
            raise self._error("lines are matched one by one, so no line feed can match")
        if 0xD800 <= code <= 0xDFFF or code > syntax.LAST:
            raise self._error("no such character")
        return ((code, code),)

    def _folded(self, ranges: Ranges) -> Ranges:
        if not ranges:
            raise self._error("a set without characters matches nothing")
        return syntax.with_other_case(ranges) if self._folds else ranges

    def _escape(self) -> Ranges:
        character = self._next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in _CONTROL:
            return self._one(_CONTROL[character])
        if character in "xu":
            return self._one(self._hexadecimal(2 if character == "x" else 4))
        if character.isascii() and not character.isalnum():
            return self._one(ord(character))
        self._at -= 1
        raise self._error(rf"\{character} is not part of the expressions here")

    def _hexadecimal(self, digits: int) -> int:
        if self._take("{"):
            end = self._text.find("}", self._at)
            text, following = self._text[self._at : max(end, self._at)], end + 1
        else:
            text, following = self._text[self._at : self._at + digits], self._at + digits
            if len(text) < digits:
                text = ""
        if not 0 < len(text) <= 6 or any(character not in "0123456789abcdefABCDEF" for character in text):
            raise self._error("the number of a character is malformed")
        self._at = following
        return int(text, 16)

    def _set(self) -> Ranges:
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            low = self._member(first=first)
            first = False
            if self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                high = self._member(first=False)
                if len(low) != 1 or len(high) != 1 or low[0][0] != low[0][1] or high[0][0] != high[0][1]:
                    raise self._error("a range goes from one character to another")
                if low[0][0] > high[0][0]:
                    raise self._error("a range goes backwards")
                ranges.append((low[0][0], high[0][0]))
            else:
                ranges += low
        self._at += 1
        members = syntax.normal(ranges)
        if negated and self._folds:
            members = syntax.with_other_case(members)
        return syntax.inverted(members) if negated else members

    def _member(self, *, first: bool) -> Ranges:
        character = self._next()
        if character == "\\":
            if self._peek() == "n":  # in a set it is harmless: [^\n] is what lines are made of
                self._at += 1
                return ((syntax.LINE_FEED, syntax.LINE_FEED),)
            return self._escape()
        if character == "[":
            if self._take(":"):
                end = self._text.find(":]", self._at)
                name = self._text[self._at : max(end, self._at)]
                if name not in _NAMED:
                    raise self._error("no such class of characters")
                self._at = end + 2
                return _NAMED[name]
            self._at -= 1
            raise self._error(r"'[' in a set means different things to engines; the character itself is \[")
        if character in "&-~" and self._peek() == character:
            self._at -= 1
            raise self._error(f"'{character * 2}' in a set means different things to engines")
        del first  # `]` as the first member is taken as itself, as everywhere
        return self._one(ord(character))
