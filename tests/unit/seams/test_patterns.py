"""Glob patterns: what they match, what is malformed, and that no pattern takes for ever."""

from __future__ import annotations

import fnmatch
import itertools
import random
import time

import pytest

from execworld.seams.patterns import Glob

MATCHES: dict[str, tuple[list[str], list[str]]] = {
    "*.py": (["a.py", ".py", ".h.py", "a\nb.py"], ["a/b.py", "a.pyc", "a.PY"]),
    "**": (["a", "a/b/c"], []),
    "**/*.py": (["a.py", "a/b/c.py"], ["a.pyc"]),
    "src/**": (["src/a", "src/a/b"], ["src", "other/src/a"]),
    "src/**/f": (["src/f", "src/a/f", "src/a/b/f"], ["f", "src/f/g"]),
    "**/a/**/b": (["a/b", "x/a/b", "a/x/y/b", "a/a/b/b"], ["b", "a", "b/a"]),
    "a?c": (["abc", "aéc", "a\udcffc", "a\nc"], ["ac", "abbc", "a/c"]),
    "[a-c]x": (["ax", "cx"], ["dx", "x", "-x"]),
    "[!a-c]x": (["dx", "éx"], ["ax", "/x"]),
    "[^a]": (["b"], ["a"]),
    "[]]": (["]"], ["["]),
    "[!]]": (["["], ["]"]),
    "[a-]": (["a", "-"], ["b"]),
    "[[]": (["["], ["]"]),
    "[*?{]": (["*", "?", "{"], ["a"]),
    "[.^$\\\\]": ([".", "^", "$", "\\"], ["a"]),
    "{a,b}/*.{c,h}": (["a/x.c", "b/y.h"], ["c/x.c", "a/x.d"]),
    "{a,b/{c,d}}": (["a", "b/c", "b/d"], ["b", "c"]),
    "x{,y}": (["x", "xy"], ["y"]),
    "{a}": (["a"], ["{a}"]),
    "\\*": (["*"], ["a"]),
    "\\{a,b\\}": (["{a,b}"], ["a"]),
    "./a//b": (["a/b"], []),
    "-rf": (["-rf"], ["rf"]),
    "a+(b)|c.d$": (["a+(b)|c.d$"], ["aab"]),
    "*": (["a"], ["a/b"]),
    "*a*a*": (["aa", "xaxax"], ["a"]),
}


@pytest.mark.parametrize("pattern", MATCHES)
def test_what_a_pattern_matches(pattern: str) -> None:
    matching, others = MATCHES[pattern]
    glob = Glob(pattern)
    assert [path for path in matching if not glob.matches(path, is_directory=False)] == []
    assert [path for path in others if glob.matches(path, is_directory=False)] == []


MALFORMED = (
    *("", "/", "/a", ".", "..", "../a", "a/../b", "[", "[a", "[!", "a[/]b"),
    *("{", "{a", "a}", "{a,{b}", "a**", "**b", "***"),
)


@pytest.mark.parametrize(
    "pattern",
    [*MALFORMED, "a\\", "[z-a]", "{,}", "{a,b}" * 11],
)
def test_a_malformed_pattern_says_so(pattern: str) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Glob(pattern)


def test_a_slash_at_the_end_asks_for_a_directory() -> None:
    glob = Glob("a*/")
    assert glob.matches("ab", is_directory=True)
    assert not glob.matches("ab", is_directory=False)


def test_one_component_agrees_with_fnmatch() -> None:
    """Python's own matcher, for patterns that mean the same in both."""
    numbers = random.Random(5)
    atoms = ("a", "b", "*", "?", "[ab]", "[!a]", "[a-c]", ".")
    for _ in range(3000):
        pattern = "".join(numbers.choices(atoms, k=numbers.randint(1, 6)))
        if "**" in pattern or pattern in (".", ".."):
            continue
        glob = Glob(pattern)
        for name in map("".join, itertools.product("ab.", repeat=3)):
            assert glob.matches(name, is_directory=False) == fnmatch.fnmatchcase(name, pattern), (
                pattern,
                name,
            )


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("*a" * 60 + "b", "a" * 255),
        ("**/" * 60 + "b", "a/" * 200 + "a"),
        ("**/a/" * 30 + "b", "a/" * 200 + "a"),
        ("?*" * 60 + "b", "a" * 255),
    ],
)
def test_no_pattern_takes_for_ever(pattern: str, path: str) -> None:
    glob = Glob(pattern)
    began = time.monotonic()
    assert not glob.matches(path, is_directory=False)
    assert time.monotonic() - began < 5


def test_the_walk_is_no_larger_than_the_pattern() -> None:
    """Directories that every match lies in, and how deep below them a match can lie."""
    for pattern, prefix, depth in (
        ("a/b/*.c", ("a", "b"), 1),
        ("a/b", ("a",), 1),
        ("a/**/b", ("a",), 0),
        ("*/b", (), 2),
        ("a/{b,c}/d/*", ("a",), 3),
        ("a/b{,/*/*}", ("a",), 3),
        ("a\\*/b", ("a*",), 1),
    ):
        glob = Glob(pattern)
        assert (glob.prefix, glob.max_depth) == (prefix, depth), pattern
