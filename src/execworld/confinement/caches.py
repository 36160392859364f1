"""Where programs are told to keep temporary files and caches, when their homes are read-only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from execworld.confinement.dimensions import Situation
from execworld.confinement.layers import Layer
from execworld.confinement.paths import contains
from execworld.confinement.place import CellDirectories
from execworld.seams.policy import SandboxMode

_BELOW_CACHE: Final = {
    "XDG_CACHE_HOME": "",
    "XDG_STATE_HOME": "/state",
    "BUN_INSTALL_CACHE_DIR": "/bun",
    "CARGO_HOME": "/cargo",
    "CCACHE_DIR": "/ccache",
    "COMPOSER_CACHE_DIR": "/composer",
    "DENO_DIR": "/deno",
    "GOCACHE": "/go-build",
    "GOMODCACHE": "/go-mod",
    "GRADLE_USER_HOME": "/gradle",
    "NUGET_PACKAGES": "/nuget",
    "PIP_CACHE_DIR": "/pip",
    "SCCACHE_DIR": "/sccache",
    "UV_CACHE_DIR": "/uv",
    "YARN_CACHE_FOLDER": "/yarn",
    "npm_config_cache": "/npm",
}


def cell_environment(situation: Situation, directories: CellDirectories) -> Mapping[str, str]:
    """What programs are to find set, over what they would inherit."""
    writable = situation.policy.mode is SandboxMode.WORKSPACE_WRITE
    variables: dict[str, str] = {}
    if writable or Layer.PRIVATE_TEMP in situation.layers:
        variables["TMPDIR"] = _text(directories.temp)
    if not _home_is_readable(situation):
        # Many programs give up on a file of settings that is there and cannot be read, git among them.
        variables["HOME"] = _text(directories.cache) if writable else "/"
    if writable:
        cache = _text(directories.cache)
        variables |= {name: cache + below for name, below in _BELOW_CACHE.items()}
    return MappingProxyType(variables)


def _home_is_readable(situation: Situation) -> bool:
    home, readable = situation.place.home, situation.paths.readable
    if not home or readable is None:
        return True
    return any(contains(root, home) for root in (*readable, *situation.paths.writable))


def _text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
