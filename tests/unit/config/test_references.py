"""`!env` and `!file`: read late, by the row that needs them, and told to nobody."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from execworld.config import Lookup, compose
from execworld.config.references import MAX_FILE_BYTES
from execworld.seams import ConfigurationError

from .documents import REGISTRY, composed, layer, place, refused

SECRET = "correct-horse-battery"


def test_a_variable_is_the_value() -> None:
    composition = composed("world: {use: box, config: {image: !env IMAGE}}", environment={"IMAGE": "debian"})
    assert composition.world.config.image == "debian"


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("port", "22", 22),
        ("weight", "2.5", 2.5),
        ("weight", "2", 2.0),
        ("tty", "true", True),
        ("image", "22", "22"),
    ],
)
def test_a_variable_spells_a_value_of_the_type_that_is_asked_for(
    option: str, text: str, value: object
) -> None:
    composition = composed(f"world: {{use: box, config: {{{option}: !env X}}}}", environment={"X": text})
    found = getattr(composition.world.config, option)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("environment", [{}, {"X": ""}], ids=["unset", "empty"])
def test_a_variable_that_says_nothing_is_an_error_unless_a_default_is_spelt(
    environment: dict[str, str],
) -> None:
    error = refused("world:\n  use: box\n  config: {image: !env X}", environment=environment)
    assert place(error) == "1.yml:3:19"
    assert "`X` is" in error.message
    composition = composed(
        "world: {use: box, config: {port: !env {name: X, default: 23}}}", environment=environment
    )
    assert composition.world.config.port == 23


def test_a_variable_that_nothing_uses_in_the_end_need_not_be_set() -> None:
    composition = composed("world: {use: box, config: {image: !env X}}", "world: {config: {image: debian}}")
    assert composition.world.config.image == "debian"
    composed("world: {use: plain}", "a: {use: needy, disabled: yes, config: {key: !env X}}")


def test_a_file_is_relative_to_the_document_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "key").write_text("of the inner one\n")
    (tmp_path / "key").write_text("of the outer one\r\n")
    layers = (
        layer("world: {use: box, config: {env: {A: !file key}}}", directory=str(tmp_path)),
        layer("world: {config: {env: {B: !file key}}}", directory=str(tmp_path / "inner")),
    )
    composition = compose(layers, REGISTRY)
    assert composition.world.config.env == {"A": "of the outer one", "B": "of the inner one"}


def test_only_the_last_line_end_of_a_file_is_dropped(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" a\n\n")
    composition = composed(f"world: {{use: box, config: {{image: !file {tmp_path}/key}}}}")
    assert composition.world.config.image == " a\n"


def test_what_is_no_small_file_of_text_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "big").write_bytes(b"a" * (MAX_FILE_BYTES + 1))
    (tmp_path / "bytes").write_bytes(SECRET.encode() + b"\xff")
    for name, problem in {
        "absent": "No such file",
        "pipe": "it is no regular file",
        ".": "it is no regular file",
        "big": "is larger than",
        "bytes": "is not UTF-8",
    }.items():
        error = refused(f"world:\n  use: box\n  config:\n    image: !file {tmp_path}/{name}")
        assert place(error) == "1.yml:4:12"
        assert problem in error.message
        assert SECRET not in repr(error.__context__) + str(error)


@pytest.mark.parametrize(
    "config",
    [
        "{port: !env S}",
        "{pull: !env S}",
        "{image: !env S, port: x}",
        "{mounts: [{source: a, read_only: !env S}]}",
        "{build: !env S, image: !env BAD}",
        "{image: !env BAD}",
    ],
)
def test_no_error_repeats_what_a_reference_stands_for(config: str) -> None:
    error = refused(
        f"world: {{use: box, config: {config}}}", environment={"S": SECRET, "BAD": f"bad{SECRET}"}
    )
    seen = f"{error} {error!r} {error.as_dict()} {error.__cause__!r} {error.__context__!r}"
    assert SECRET not in seen
    assert SECRET[:6] not in seen


def test_a_reason_without_a_secret_in_it_is_shown() -> None:
    error = refused("world: {use: box, config: {image: bad, user: !env S}}", environment={"S": SECRET})
    assert error.message.endswith("no such image: 'bad'")
    assert error.hint == "another one"


def test_a_composition_does_not_show_what_it_has_read() -> None:
    composition = composed("world: {use: box, config: {image: !env S}}", environment={"S": SECRET})
    assert composition.world.config.image == SECRET
    assert SECRET not in repr(composition)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("policy: {workspace: !env X}", "1:21"),
        ("policy: {workspace: !env {name: X, default: /}}", "1:21"),
        ("policy: {hidden: [/a, !file x]}", "1:23"),
        ("floor: {worlds: [!env X]}", "1:18"),
        ("world: {use: !env X}", "1:14"),
        ("world: {use: plain, disabled: !env X}", "1:31"),
        ("world: !env X", "1:8"),
        ("policy: !env X", "1:9"),
    ],
)
def test_what_binds_and_what_is_started_cannot_come_from_outside(text: str, where: str) -> None:
    error = refused("world: {use: plain}", text, environment={"X": "/"})
    assert place(error) == f"2.yml:{where}"
    assert "written out" in error.message or "it must be" in error.message


def test_a_variable_that_is_not_text_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="`X` is not UTF-8"):
        compose(
            (layer("world: {use: box, config: {image: !env X}}"),), REGISTRY, lookup=Lookup({b"X": b"\xff"})
        )


def test_whoever_only_looks_needs_no_secret() -> None:
    document = layer("world: {use: box, config: {image: !env X}}")
    assert compose((document,), REGISTRY, lookup=Lookup({}, reads=False)).world.config is None
    with pytest.raises(ConfigurationError, match=r"`world\.config` has no `imge`"):
        compose(
            (layer("world: {use: box, config: {imge: !env X}}"),), REGISTRY, lookup=Lookup({}, reads=False)
        )
