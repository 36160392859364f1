"""The form of a document as JSON Schema, for editors."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from execworld.config.folding import FLOOR, POLICY, ROW_KEYS, WORLD
from execworld.config.options import adapter_of
from execworld.config.registry import Registry
from execworld.config.sections import FloorSection, PolicySection

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(registry: Registry) -> dict[str, Any]:
    """The schema of one layer. Options that are missing may stand in another, and null clears what is below."""
    definitions: dict[str, Any] = {}
    worlds = {name: registry.worlds[name] for name in registry.worlds}
    world_types = {name: provider.config_type for name, provider in worlds.items()}
    plugin_types = {name: plugin.config_type for name, plugin in registry.plugins.items()}
    properties: dict[str, Any] = {
        WORLD: _row(WORLD, world_types, definitions, {name: each.summary for name, each in worlds.items()}),
        POLICY: _nullable(_options(POLICY, PolicySection, definitions)),
        FLOOR: _options(FLOOR, FloorSection, definitions),
    }
    summaries = {name: each.summary for name, each in registry.plugins.items()}
    return {
        "$schema": DIALECT,
        "title": "execworld composition, one layer",
        "type": "object",
        "properties": properties,
        "additionalProperties": _nullable(_row("plugin", plugin_types, definitions, summaries)),
        "$defs": definitions,
    }


def _row(
    kind: str, types: Mapping[str, Any], definitions: dict[str, Any], summaries: Mapping[str, str]
) -> dict[str, Any]:
    uses = [{"const": name, "description": summaries[name]} for name in types]
    keys: dict[str, Any] = {
        "use": {"oneOf": uses} if uses else False,
        "config": {"type": ["object", "null"]},
        "disabled": {"type": ["boolean", "null"]},
    }
    assert tuple(keys) == ROW_KEYS
    return {
        "type": "object",
        "properties": keys,
        "additionalProperties": False,
        "allOf": [
            {
                "if": {"properties": {"use": {"const": name}}, "required": ["use"]},
                "then": {
                    "properties": {"config": _nullable(_options(f"{kind}.{name}", config_type, definitions))}
                },
            }
            for name, config_type in types.items()
        ],
    }


def _options(name: str, config_type: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """A reference to the schema of *config_type*, whose parts are put under names of their own."""
    schema = adapter_of(config_type).json_schema(ref_template=f"#/$defs/{name}.{{model}}")
    for inner, definition in schema.pop("$defs", {}).items():
        definitions[f"{name}.{inner}"] = definition
    schema.pop("required", None)
    helps = _helps(config_type)
    schema["properties"] = {
        key: _nullable(each) | ({"description": helps[key]} if key in helps else {})
        for key, each in schema.get("properties", {}).items()
    }
    schema["additionalProperties"] = False
    definitions[name] = schema
    return {"$ref": f"#/$defs/{name}"}


def _helps(config_type: Any) -> dict[str, str]:
    if not dataclasses.is_dataclass(config_type):
        return {}
    return {
        item.name: item.metadata["help"]
        for item in dataclasses.fields(config_type)
        if "help" in item.metadata
    }


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}
