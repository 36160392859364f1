"""The build backend: hatchling, and the package ``ziglang`` as a requirement where there is no C compiler (PEP 517)."""

from __future__ import annotations

from typing import Any

from hatchling.build import *  # noqa: F403 - a wrapper: every hook but two is hatchling's own
from hatchling.build import get_requires_for_build_editable as _editable
from hatchling.build import get_requires_for_build_wheel as _wheel
from warden_compiler import needs_zig

_ZIG = ["ziglang>=0.13"]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*_wheel(config_settings), *(_ZIG if needs_zig() else ())]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    return [*_editable(config_settings), *(_ZIG if needs_zig() else ())]
