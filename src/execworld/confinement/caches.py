"""Where programs are told to keep temporary files and caches, when their homes are read-only."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from execworld.confinement.place import CellDirectories
from execworld.seams.policy import SandboxMode, SandboxPolicy

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


def cache_environment(policy: SandboxPolicy, directories: CellDirectories) -> Mapping[str, str]:
    """Empty unless the policy lets programs write there."""
    if policy.mode is not SandboxMode.WORKSPACE_WRITE:
        return MappingProxyType({})
    cache = directories.cache.decode("utf-8", "surrogateescape")
    temp = directories.temp.decode("utf-8", "surrogateescape")
    variables = {name: cache + below for name, below in _BELOW_CACHE.items()}
    return MappingProxyType({"TMPDIR": temp, **variables})
