"""How layers are laid over each other: key by key, later wins, and a list loses nothing without a word."""

from __future__ import annotations

import pytest

from execworld.config.merging import merged, settled
from execworld.config.nodes import Node, plain_value, same_value
from execworld.config.reading import Source, read_value
from execworld.seams import ConfigurationError

from .documents import composed, place, refused


def node(text: str) -> Node:
    return read_value(text, Source("patch", "x.yml", "/d"))


@pytest.mark.parametrize(
    ("lower", "upper", "result"),
    [
        ("{a: 1, b: 2}", "{b: 3, c: 4}", {"a": 1, "b": 3, "c": 4}),
        ("{a: {x: 1, y: 2}}", "{a: {y: 3}}", {"a": {"x": 1, "y": 3}}),
        ("{a: {x: 1}}", "{a: !replace {y: 3}}", {"a": {"y": 3}}),
        ("{a: 1, b: 2}", "{b: null}", {"a": 1}),
        ("{a: {x: 1}}", "{a: {x: ~}}", {"a": {}}),
        ("{a: {x: 1}}", "{a: ~}", {}),
        ("{a: 1}", "{c: null}", {"a": 1}),
        ("{a: {x: 1}}", "{a: text}", {"a": "text"}),
        ("{a: text}", "{a: {x: 1}}", {"a": {"x": 1}}),
        ("{a: [1]}", "{a: [1, 2]}", {"a": [1, 2]}),
        ("{a: [1, 2]}", "{a: [2, 3, 1]}", {"a": [2, 3, 1]}),
        ("{a: [1, 2]}", "{a: !replace [2]}", {"a": [2]}),
        ("{a: [1, 2]}", "{a: !replace []}", {"a": []}),
        ("{a: [1, 2]}", "{a: ~}", {}),
        ("{a: [1]}", "{a: 1}", {"a": 1}),
        ("{a: 1}", "{a: !env X}", {"a": {"!env": "X"}}),
        ("{a: [{x: 1}]}", "{a: [{x: 1}, {x: 2, y: ~}]}", {"a": [{"x": 1}, {"x": 2}]}),
        ("{}", "{a: !replace {b: !replace {c: ~, d: 1}}}", {"a": {"b": {"d": 1}}}),
    ],
)
def test_one_over_another(lower: str, upper: str, result: object) -> None:
    found = merged(node(lower), node(upper))
    assert found is not None
    assert plain_value(found) == result
    assert same_value(found, settled(found)), "nothing is left that says how it is to be laid"


@pytest.mark.parametrize(
    ("upper", "column"), [("{a: []}", 5), ("{a: [1]}", 5), ("{a: [1, '2']}", 5), ("{a: [1, 2.0]}", 5)]
)
def test_a_list_that_would_lose_something_is_refused(upper: str, column: int) -> None:
    with pytest.raises(ConfigurationError, match=r"drops (an item|2 items)") as caught:
        merged(node("{a: [1, 2]}"), node(upper))
    assert caught.value.column == column
    assert "!replace" in caught.value.hint


def test_layers_are_not_changed_by_laying_them() -> None:
    lower, upper = node("{a: {x: 1}, b: [1]}"), node("{a: {y: 2}, b: !replace [2]}")
    before = plain_value(lower), plain_value(upper)
    first, second = merged(lower, upper), merged(lower, upper)
    assert first is not None
    assert second is not None
    assert same_value(first, second)
    assert (plain_value(lower), plain_value(upper)) == before


def test_a_changed_use_drops_what_was_said_for_another() -> None:
    composition = composed(
        "world: {use: box, config: {image: debian, port: 23}}",
        "world: {use: plain}",
        "world: {config: {host: there}}",
    )
    assert composition.world.use == "plain"
    assert plain_value(composition.world.node) == {"use": "plain", "config": {"host": "there"}}


def test_the_same_use_said_again_drops_nothing() -> None:
    composition = composed(
        "world: {use: box, config: {port: 23}}", "world: {use: box, config: {image: debian}}"
    )
    assert (composition.world.config.image, composition.world.config.port) == ("debian", 23)


def test_a_use_that_is_changed_back_brings_nothing_back() -> None:
    composition = composed(
        "world: {use: box, config: {port: 23}}", "world: {use: plain}", "world: {use: box}"
    )
    assert composition.world.config.port == 22


def test_a_row_is_disabled_enabled_and_removed() -> None:
    base = "world: {use: plain}\na: {use: audit, config: {level: 2}}"
    disabled = composed(base, "a: {disabled: yes}")
    assert disabled.rows["a"].disabled
    assert disabled.rows["a"].config is None
    enabled = composed(base, "a: {disabled: yes}", "a: {disabled: ~}")
    assert enabled.rows["a"].config.level == 2
    assert "a" not in composed(base, "a: ~").rows
    assert composed(base, "a: ~", "a: {use: audit}").rows["a"].config.level == 1


def test_a_row_that_is_replaced_keeps_nothing() -> None:
    base = "world: {use: plain}\na: {use: audit, config: {level: 2}, disabled: yes}"
    row = composed(base, "a: !replace {use: audit}").rows["a"]
    assert (row.disabled, row.config.level) == (False, 1)
    assert place(refused(base, "a: !replace {config: {level: 3}}")) == "2.yml:1:4"
    assert composed(base, "a: {disabled: no, config: !replace {path: /x}}").rows["a"].config.level == 1


def test_c225_an_empty_list_does_not_lay_a_policy_open() -> None:
    base = "world: {use: plain}\npolicy: {hidden: [/a, /b]}"
    error = refused(base, "policy:\n  hidden: []")
    assert place(error) == "2.yml:2:11"
    assert "drops 2 items of the one below, at 1.yml:2:18" in error.message
    assert composed(base, "policy: {hidden: !replace []}").policy.hidden == ()
    assert composed(base, "policy: {hidden: ~}").policy.hidden == ()
    assert composed(base, "policy: {hidden: [/b, /a, /c]}").policy.hidden == ("/a", "/b", "/c")


def test_every_value_knows_the_layer_that_said_it() -> None:
    composition = composed(
        "world:\n  use: box\n  config: {image: debian, port: 1}", "world: {config: {port: 2}}"
    )
    assert str(composition.origin("world.config.image")) == "1.yml:3:12"
    assert str(composition.origin("world.config.port")) == "2.yml:1:18"
    assert str(composition.origin("world.boundary")) == "2.yml:1:1"
    assert composition.origin("nothing") is None
