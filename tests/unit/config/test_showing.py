"""The effective document as people and programs read it: every value with its layer, and no secret."""

from __future__ import annotations

import json

from execworld.config import show_document, show_places

from .documents import composed, layer


def test_each_value_stands_beside_the_layer_that_said_it() -> None:
    document = layer(
        "world:\n  use: box\n  config:\n    image: debian\n    mounts: [{source: /a, target: x}, {source: '1'}]\n"
        "    names: []\n    env: {TOKEN: !env TOKEN, KEY: !file key, D: !env {name: D, default: 'x y'}}"
    ).root
    assert show_document(document) == (
        "world:\n"
        "  use: box  # patch: x.yml:2\n"
        "  config:\n"
        "    image: debian  # patch: x.yml:4\n"
        "    mounts:\n"
        "      - source: /a  # patch: x.yml:5\n"
        "        target: x  # patch: x.yml:5\n"
        '      - source: "1"  # patch: x.yml:5\n'
        "    names: []  # patch: x.yml:6\n"
        "    env:\n"
        "      TOKEN: !env TOKEN  # patch: x.yml:7\n"
        '      KEY: !file "/d/key"  # patch: x.yml:7\n'
        '      D: !env {name: D, default: "x y"}  # patch: x.yml:7\n'
    )


def test_secrets_are_shown_as_they_are_written() -> None:
    composition = composed(
        "world: {use: box, config: {image: !env IMAGE, env: {T: !env {name: T, default: none}}}}",
        environment={"IMAGE": "correct-horse", "T": "battery-staple"},
    )
    shown = show_document(composition.document) + json.dumps(show_places(composition.document))
    assert composition.world.config.image == "correct-horse"
    assert "horse" not in shown
    assert "staple" not in shown
    assert "!env IMAGE" in shown


def test_places_are_found_by_pointer() -> None:
    composition = composed("world:\n  use: box\n  config: {env: {a/b~c: x}, names: [n, m], labels: {}}")
    places = show_places(composition.document)
    assert set(places) == {
        "/world/use",
        "/world/config/env/a~1b~0c",
        "/world/config/names/0",
        "/world/config/names/1",
        "/world/config/labels",
    }
    assert places["/world/config/names/1"] == {"layer": "patch", "file": "1.yml", "line": 3, "column": 40}


def test_the_name_of_a_file_cannot_end_its_comment() -> None:
    document = layer("a: 1", file="x\nb: 2\x1b[2J.yml").root
    shown = show_document(document)
    assert len(shown.splitlines()) == 1
    assert "\x1b" not in shown
