"""Which world is measured, said so that a program of its own can open it as well."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final

from execworld.seams import SandboxPolicy, World
from execworld.world import resolve_world

WARDEN: Final = "warden"


@dataclass(frozen=True, slots=True)
class WorldSource:
    """A function that opens a world, as ``module:function``, and what it is called with. The latter may be secret."""

    function: str
    arguments: Mapping[str, Any]

    def open(self) -> AbstractAsyncContextManager[World]:
        module, _, function = self.function.partition(":")
        opened: AbstractAsyncContextManager[World] = getattr(importlib.import_module(module), function)(
            **self.arguments
        )
        return opened


def named_world(name: str, config: Mapping[str, str], workspace: str | None = None) -> WorldSource:
    """The world *name*; ``warden`` is one over a child of this program, without a policy.

    Args:
        workspace: A policy of workspace-write on this directory; None for full access.
    """
    if name == WARDEN:
        function = "execworld.testing.warden_worlds:open_warden_world"
        return WorldSource(function, {"cwd": tempfile.gettempdir()})
    arguments = {"name": name, "config": dict(config), "workspace": workspace}
    return WorldSource(f"{__name__}:open_named", arguments)


def open_named(
    name: str, config: Mapping[str, str], workspace: str | None
) -> AbstractAsyncContextManager[World]:
    policy = None if workspace is None else SandboxPolicy.workspace_write(workspace)
    return resolve_world(name, config, text=True).open(policy=policy)
