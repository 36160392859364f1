"""Compositions that run: the rows of a document become plugins that share one world.

async with open_composition(load(Wanted(patches=("docker.patch.yml",)))) as running:
    await running.world.shell.run("make test")
"""

from execworld.assembly.following import RELOADED, DocumentFollower, Reloaded
from execworld.assembly.opening import open_composition
from execworld.assembly.running import RunningComposition
from execworld.assembly.world_row import world_plugin

__all__ = [
    "RELOADED",
    "DocumentFollower",
    "Reloaded",
    "RunningComposition",
    "open_composition",
    "world_plugin",
]
