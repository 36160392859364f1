"""Compositions: which world, which plugins, which policy, from layers of documents. Nothing here starts anything.

    composition = load(Wanted(patches=("docker.patch.yml",)), registry)

Importing this package imports pydantic and a reader of YAML, so whoever starts fast imports it when it is needed.
"""

from execworld.config.comparing import losses
from execworld.config.composition import (
    Composition,
    Row,
    compose,
    hold_floor,
    load,
    load_unheld,
    shortfalls,
)
from execworld.config.layers import Layer, Wanted, read_layer, read_layers, read_setting
from execworld.config.nodes import Origin
from execworld.config.plugins import NoOptions, plugin_type
from execworld.config.references import Lookup
from execworld.config.registry import PluginType, Registry, installed_registry
from execworld.config.schema import json_schema
from execworld.config.showing import show_document, show_places
from execworld.config.system_floor import SystemFloor
from execworld.world.locations import Locations, user_locations

__all__ = [
    "Composition",
    "Layer",
    "Locations",
    "Lookup",
    "NoOptions",
    "Origin",
    "PluginType",
    "Registry",
    "Row",
    "SystemFloor",
    "Wanted",
    "compose",
    "hold_floor",
    "installed_registry",
    "json_schema",
    "load",
    "load_unheld",
    "losses",
    "plugin_type",
    "read_layer",
    "read_layers",
    "read_setting",
    "shortfalls",
    "show_document",
    "show_places",
    "user_locations",
]
