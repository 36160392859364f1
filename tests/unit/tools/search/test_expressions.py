"""Expressions: what is understood means one thing, and takes time that grows with the line alone."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from execworld.tools.search.automaton import Matcher
from execworld.tools.search.parsing import PatternError, parse
from execworld.tools.search.prefilter import prefilter

ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", "^", "$", r"\b", r"\w", r"\W", " ", "é"])


def _grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}"])),
    )


@given(st.recursive(ATOMS, _grow, max_leaves=6), st.text(alphabet="ab é_-", max_size=8))
def test_it_means_what_it_means_everywhere(pattern: str, line: str) -> None:
    expected = re.search(pattern, line, re.ASCII) is not None
    node = parse(pattern)
    assert Matcher(node).occurs_in(line) is expected
    quick = prefilter(node)
    if quick is not None:
        found = quick[0].search(line) is not None
        assert found is expected if quick[1] else found or not expected


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "(",
        ")",
        "(?=a)",
        "(?<=a)b",
        "(?!a)",
        r"(a)\1",
        r"\p{L}",
        r"\B",
        r"\K",
        r"\Aa",
        "a\nb",
        r"a\nb",
        "[a",
        "[z-a]",
        r"[\d-z]",
        "[a&&b]",
        "[[a]]",
        "a{2",
        "{",
        "}",
        "a**",
        "*a",
        "^*",
        "a{1001}",
        "(a{1000}){1000}",
        "(?s)a",
        "(?i:a)",
        r"\q",
        "\\",
        r"[\n]",
        r"\x{110000}",
        r"\xd",
        "(" * 200,
        "a" * 5000,
    ],
)
def test_what_not_every_engine_has_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        parse(pattern)


@pytest.mark.slow
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)*c", "(a*)*b", "a*a*a*b", "(.*)(.*)(.*)[^a]$"])
def test_no_line_holds_it_up(pattern: str) -> None:
    """Engines that backtrack would need longer than anybody lives."""
    begin = time.monotonic()
    Matcher(parse(pattern)).occurs_in("a" * 100_000 + "-a")
    assert time.monotonic() - begin < 10
