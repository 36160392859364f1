"""What a document may be, and where it says that something is wrong. Nothing in it is evaluated."""

from __future__ import annotations

import pytest
import yaml

from execworld.config.nodes import MappingNode, plain_value
from execworld.config.reading import MAX_BYTES, MAX_DEPTH, Source, read_document
from execworld.config.scalars import is_read_as_text, plain_scalar
from execworld.seams import ConfigurationError

from .documents import place


@pytest.fixture(autouse=True, params=["CSafeLoader", "SafeLoader"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of it holds of the fast parser, which an installation may lack, and of the slow one."""
    monkeypatch.setattr("execworld.config.reading._PARSER", getattr(yaml, request.param))


SOURCE = Source("home", "x.yml", "/d")


def read(text: str | bytes) -> object:
    return plain_value(read_document(text if isinstance(text, bytes) else text.encode(), SOURCE))


def fault_of(text: str | bytes) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        read(text)
    return caught.value


@pytest.mark.parametrize(
    "text", ["", "\n", "# a comment\n", "---\n", "~", "\ufeff# with a byte order mark\n"]
)
def test_a_document_without_values_is_empty(text: str) -> None:
    assert read(text) == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-7", -7),
        ("0x1f", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("yes", True),
        ("No", False),
        ("off", False),
        ("TRUE", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("0755", "0755"),
        ("22:22", "22:22"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        (".inf", ".inf"),
        ("yEs", "yEs"),
        ("1.2.3", "1.2.3"),
        ("debian:bookworm", "debian:bookworm"),
    ],
)
def test_a_value_without_quotes(text: str, value: object) -> None:
    found = plain_scalar(text)
    assert (found, type(found)) == (value, type(value))
    assert is_read_as_text(text) is isinstance(value, str)


@pytest.mark.parametrize("text", ["'yes'", '"1"', "'~'", "|\n    1\n"])
def test_what_is_quoted_is_text(text: str) -> None:
    assert isinstance(read(f"a: {text}"), dict)
    assert read("a: 'yes'\nb: \"1\"\nc: '~'") == {"a": "yes", "b": "1", "c": "~"}


def test_a_key_is_text_however_it_looks() -> None:
    assert read("1: a\nyes: b\n~: c\n'x': d") == {"1": "a", "yes": "b", "~": "c", "x": "d"}


def test_places_are_counted_from_one_in_characters() -> None:
    document = read_document("é: {ü: 1,\n  b: 2}".encode(), SOURCE)
    inner = document.entries["é"]
    assert isinstance(inner, MappingNode)
    assert str(document.keys["é"]) == "x.yml:1:1"
    assert [str(origin) for origin in inner.keys.values()] == ["x.yml:1:5", "x.yml:2:3"]


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ("a: 1\na: 2", "2:1", "`a` is there already, in line 1"),
        ("a: {b: 1, b: 2}", "1:11", "`b` is there already, in line 1"),
        ("1: a\n'1': b", "2:1", "`1` is there already"),
        ("a: &x 1", "1:4", "anchors and aliases are not read: `&x`"),
        ("a: *x", "1:4", "anchors and aliases are not read: `*x`"),
        ("? &k a\n: 1", "1:3", "anchors and aliases are not read: `&k`"),
        ("<<: {a: 1}", "1:1", "merge keys are not read"),
        ("? [a]\n: 1", "1:3", "a key is text"),
        ("!x a: 1", "1:1", "a key takes no tag"),
        ("a: !!python/object/apply:os.system [ls]", "1:4", "there is no tag"),
        ("a: !!str 1", "1:4", "there is no tag"),
        ("a: !evn X", "1:4", "there is no tag `!evn`"),
        ("a: 1\n---\nb: 2", "2:1", "a second document begins here"),
        ("%TAG ! tag:x,2000:\n---\na: 1", "1:1", "`%TAG` is not read"),
        ("- a", "1:1", "a document is a mapping of rows"),
        ("text", "1:1", "a document is a mapping of rows"),
        ("!replace {a: 1}", "1:1", "a whole document cannot replace"),
        ("a: b: c", "1:5", "this is not YAML"),
        ("a:\n  - 1\n b: 2", "3:2", "this is not YAML"),
        (b"a: 1\nb: \xff", "2:4", "the document is not UTF-8"),
        ("a: 1\r\nb: é\x07", "2:5", r"a character that may not stand here: \x07"),
        ("a: x\u200b\x85y: \x00", "2:4", r"a character that may not stand here: \x00"),
        ("a: " + "9" * 41, "1:4", "a number of more than 40 digits"),
        ("a: 1e999", "1:4", "a number beyond"),
        ("a: !env", "1:4", "takes the name of a variable"),
        ("a: !env A B", "1:4", "takes the name of a variable"),
        ("a: !env ${A}", "1:4", "takes the name of a variable"),
        ("a: !env [A]", "1:4", "`!env` takes a name, or a mapping"),
        ("a: !env {xname: A}", "1:10", "`!env` has no `xname`"),
        ("a: !env {default: A}", "1:4", "`!env` needs a `name`"),
        ("a: !env {name: 1}", "1:4", "`!env` needs a `name`"),
        ("a: !env {name: A, default: ~}", "1:28", "the `default` of `!env` is"),
        ("a: !env {name: A, default: [1]}", "1:28", "the `default` of `!env` is"),
        ("a: !file", "1:4", "`!file` takes the path of a file"),
        ("a: !file ~/x", "1:4", "`~` is not expanded"),
        ("a: !file {path: x}", "1:4", "`!file` takes a path"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str | bytes, where: str, problem: str) -> None:
    error = fault_of(text)
    assert place(error) == f"x.yml:{where}"
    assert error.message.startswith(f"x.yml:{where}: ")
    assert problem in error.message


def test_half_of_a_character_is_refused() -> None:
    """No text with one in it could be written anywhere."""
    error = fault_of(r'a: "\ud800"')
    assert (error.line, error.column > 0) == (1, True)


def test_a_misspelt_tag_is_answered_with_the_nearest() -> None:
    assert fault_of("a: !evn X").hint == "did you mean `!env`?"


def test_depth_is_bounded() -> None:
    read("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))
    assert "nested deeper" in fault_of("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH).message
    assert "nest" in fault_of("[" * (MAX_BYTES - 1)).message  # a parser may have a bound of its own
    assert "nested deeper" in fault_of("a:\n" + "".join(f"{' ' * n}a:\n" for n in range(1, 400))).message


def test_size_and_number_of_values_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("execworld.config.reading.MAX_VALUES", 100)
    read("a: [" + "1," * 90 + "]")
    assert "larger than" in fault_of(b"#" * (MAX_BYTES + 1)).message
    assert "more than" in fault_of("a: [" + "1," * 100 + "]").message


def test_nothing_grows_by_naming_it_again() -> None:
    """Nine lines that would be a billion values, if names of values were followed."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    assert place(fault_of("\n".join(lines))) == "x.yml:1:5"


def test_what_replaces_and_what_refers_is_kept_apart_from_values() -> None:
    document = read_document(b"a: !replace [1]\nb: !env X\nc: !file k/x\nd: !file /k", SOURCE)
    assert document.entries["a"].replace
    assert plain_value(document) == {
        "a": [1],
        "b": {"!env": "X"},
        "c": {"!file": "/d/k/x"},
        "d": {"!file": "/k"},
    }
