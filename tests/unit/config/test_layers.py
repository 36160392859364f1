"""Which layers there are, in which order, where they are looked for, and what is said of one that is not there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from execworld.config import Layer, Locations, Wanted, compose, read_layers, read_setting, user_locations
from execworld.config.layers import DEFAULTS, begin_document, read_layer
from execworld.config.nodes import plain_value
from execworld.seams import ConfigurationError

from .documents import REGISTRY, place

Write = Callable[[str, str], Path]


@pytest.fixture
def places(tmp_path: Path) -> Locations:
    (tmp_path / "execworld" / "profiles").mkdir(parents=True)
    return Locations(str(tmp_path / "execworld"))


@pytest.fixture
def write(places: Locations) -> Write:
    def write_document(name: str, text: str) -> Path:
        path = Path(places.directory, name)
        path.write_text(text)
        return path

    return write_document


def level(layers: tuple[Layer, ...]) -> object:
    base = Layer("base", "b.yml", read_setting("audit={use: audit, config: {level: 0}}").root)
    world = Layer("base", "b.yml", read_setting("world.use=plain").root)
    return compose((base, world, *layers), REGISTRY).rows["audit"].config.level


def test_a_later_layer_wins_and_the_home_layer_over_a_profile(places: Locations, write: Write) -> None:
    write("profiles/work.yml", "audit: {config: {level: 1}}")
    home = "audit: {config: {level: 2}}"
    first = str(write("first.yml", "audit: {config: {level: 3}}"))
    second = str(write("second.yml", "audit: {config: {level: 4}}"))

    def found(**wanted: object) -> object:
        layers = read_layers(Wanted(**wanted), places)  # type: ignore[arg-type]  # names and values are those of fields
        return level(layers[1:])

    assert found(profile="work") == 1
    write("config.yml", home)
    assert found(profile="work") == 2
    assert found(profile="work", home=False) == 1
    assert found(profile="work", patches=(first,)) == 3
    assert found(profile="work", patches=(first, second)) == 4
    assert found(profile="work", patches=(second, first)) == 3
    assert found(patches=(first,), settings=("audit.config.level=5", "audit.config.level=6")) == 6


def test_layers_are_named_in_order(places: Locations, write: Write) -> None:
    write("profiles/work.yml", "")
    write("config.yml", "# nothing but a comment")
    patch = str(write("p.yml", ""))
    layers = read_layers(Wanted("work", (patch,), ("audit.use=audit",)), places)
    assert [layer.name for layer in layers] == ["defaults", "profile work", "home", "patch", "set"]
    alone = read_layers(Wanted("work", (patch,), alone=True), places)
    assert [layer.file for layer in alone] == [patch]


def test_the_defaults_are_shipped_and_name_the_world_and_the_guards() -> None:
    guards = ("refuse_downgrade", "keep_one_world", "hold_floor")
    rows = {"world": {"use": "landlock"}, **{name: {"use": name} for name in guards}}
    assert plain_value(read_layer("defaults", DEFAULTS).root) == rows


def test_a_home_layer_need_not_be_there(places: Locations) -> None:
    assert [layer.name for layer in read_layers(Wanted(), places)] == ["defaults"]


def test_c227_what_was_named_must_be_there(places: Locations, write: Write) -> None:
    write("profiles/work.yml", "")
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        read_layers(Wanted(patches=("/absent.yml",)), places)
    with pytest.raises(ConfigurationError, match="there is no profile `worrk`") as caught:
        read_layers(Wanted(profile="worrk"), places)
    assert caught.value.hint == "did you mean `work`?"
    assert places.profile("worrk") in caught.value.message


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../config", "a/b", "/etc/passwd", "A", "a.b", "-a", "a" * 65, "a\n"]
)
def test_the_name_of_a_profile_names_no_other_place(places: Locations, name: str) -> None:
    with pytest.raises(ConfigurationError, match="the name of a profile has") as caught:
        read_layers(Wanted(profile=name), places)
    assert places.profiles in caught.value.hint


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("config.yaml", Wanted()), ("config.json", Wanted()), ("profiles/work.yaml", Wanted("work"))],
)
def test_c227_a_document_that_would_never_be_read_is_an_error(
    places: Locations, write: Write, name: str, wanted: Wanted
) -> None:
    """Rules that nobody reads look like rules that hold."""
    written = write(name, "policy: {mode: read-only}")
    with pytest.raises(ConfigurationError, match=f"{written} would never be read") as caught:
        read_layers(wanted, places)
    assert caught.value.hint.startswith("rename it to ")


def test_what_is_there_and_cannot_be_read_is_an_error(places: Locations) -> None:
    os.symlink("/absent", places.home)
    with pytest.raises(ConfigurationError, match=r"config\.yml cannot be read"):
        read_layers(Wanted(), places)


@pytest.mark.parametrize("kind", ["directory", "pipe"])
def test_what_is_no_file_is_an_error(places: Locations, kind: str) -> None:
    if kind == "directory":
        os.mkdir(places.home)
    else:
        os.mkfifo(places.home)
    with pytest.raises(ConfigurationError, match="it is no regular file"):
        read_layers(Wanted(), places)


@pytest.mark.parametrize(
    ("variable", "directory"),
    [("/x", "/x/execworld"), ("", "/home/me/.config/execworld"), ("x", "/home/me/.config/execworld")],
)
def test_documents_are_where_the_xdg_specification_says(
    monkeypatch: pytest.MonkeyPatch, variable: str, directory: str
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", variable)
    assert user_locations() == Locations(directory)


def test_a_setting_is_one_value() -> None:
    assert plain_value(read_setting("world.config.ports=[80, 443]").root) == {
        "world": {"config": {"ports": [80, 443]}}
    }
    assert plain_value(read_setting("a.b=c=d").root) == {"a": {"b": "c=d"}}
    assert plain_value(read_setting("a.b=").root) == {"a": {"b": None}}
    assert plain_value(read_setting("a.b=!env X").root) == {"a": {"b": {"!env": "X"}}}
    assert plain_value(read_setting("a.b=!file k").root) == {"a": {"b": {"!file": f"{os.getcwd()}/k"}}}


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("world", "--set world:1:1"),
        ("=x", "--set :1:1"),
        ("a..b=x", "--set a..b:1:1"),
        ("a.b=b: c: d", "--set a.b:1:9"),
        ("a.b={c: 1, c: 2}", "--set a.b:1:12"),
    ],
)
def test_what_is_wrong_in_a_setting_is_told_with_its_column(text: str, where: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_setting(text)
    assert place(caught.value) == where


def test_the_value_of_a_setting_is_not_repeated() -> None:
    """A secret has no business there, and one that was put there must not get into a log as well."""
    with pytest.raises(ConfigurationError) as caught:
        level((read_setting("audit.config.level=correct-horse"),))
    assert "horse" not in str(caught.value)


def test_a_document_is_begun_for_its_user_alone_and_never_over_another(tmp_path: Path) -> None:
    path = tmp_path / "new" / "execworld" / "config.yml"
    before = os.umask(0)
    try:
        begin_document(str(path), "# nothing\n")
    finally:
        os.umask(before)
    assert path.read_text() == "# nothing\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(ConfigurationError, match="exists already"):
        begin_document(str(path), "other")
    assert path.read_text() == "# nothing\n"
