"""Puts the warden into wheels, and into the checkout of an editable install."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))

from warden_compiler import (
    IN_PLACE,
    binary_name,
    compile_warden,
    platform_tag,
    wanted_architecture,
)


class WardenHook(BuildHookInterface[Any]):
    """Without an architecture the wheel is pure and says at first use that it has no warden."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        architecture = wanted_architecture()
        if self.target_name != "wheel" or architecture is None:
            return
        name = binary_name(architecture)
        if version == "editable":
            compile_warden(architecture, IN_PLACE / name)
            return
        directory = tempfile.mkdtemp(prefix="execworld-warden-")
        self._made = Path(directory, name)
        compile_warden(architecture, self._made)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(architecture)}"
        build_data["force_include"][str(self._made)] = f"execworld/machine/warden/bin/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        made = getattr(self, "_made", None)
        if made is not None:
            made.unlink()
            made.parent.rmdir()
