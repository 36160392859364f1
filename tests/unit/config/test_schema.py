"""The schema for editors names what the reader accepts, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import Any

from execworld.config import installed_registry, json_schema
from execworld.config.sections import FloorSection, LimitsSection, PolicySection
from execworld.seams import ResourceLimits, SandboxPolicy
from execworld.seams.floor import Floor

from .documents import REGISTRY, BoxConfig


def definitions() -> dict[str, Any]:
    found: dict[str, Any] = json_schema(REGISTRY)["$defs"]
    return found


def references(value: Any) -> list[str]:
    """Every reference in a schema, which is found by its text, so that no part of it is missed."""
    return re.findall(r'"\$ref": "([^"]*)"', json.dumps(value))


def test_every_option_is_in_it_with_what_it_is_for() -> None:
    box = definitions()["world.box"]
    assert list(box["properties"]) == [item.name for item in dataclasses.fields(BoxConfig)]
    assert box["properties"]["image"]["description"] == "what it is made of"
    assert box["additionalProperties"] is False
    assert "required" not in definitions()["plugin.needy"], "what is missing may stand in another layer"


def test_every_reference_leads_somewhere() -> None:
    schema = json_schema(REGISTRY)
    assert {name.removeprefix("#/$defs/") for name in references(schema)} <= set(schema["$defs"])
    assert "world.box.Mount" in schema["$defs"]


def test_names_of_worlds_and_plugins_are_told_apart() -> None:
    schema = json_schema(REGISTRY)
    uses = [each["const"] for each in schema["properties"]["world"]["properties"]["use"]["oneOf"]]
    assert uses == ["box", "plain", "silent"]
    row = schema["additionalProperties"]["anyOf"][0]
    assert [each["const"] for each in row["properties"]["use"]["oneOf"]] == ["audit", "needy", "hold"]


def test_sections_have_a_key_for_every_part_of_what_they_mean() -> None:
    def names(kind: type) -> list[str]:
        return [item.name for item in dataclasses.fields(kind)]

    assert set(names(PolicySection)) == set(names(SandboxPolicy)) - {"require_dimensions"}
    assert names(FloorSection) == names(Floor)
    assert names(LimitsSection) == names(ResourceLimits)


def test_the_installed_worlds_are_in_it() -> None:
    assert {"world.local", "world.landlock", "world.docker"} <= set(
        json_schema(installed_registry())["$defs"]
    )
