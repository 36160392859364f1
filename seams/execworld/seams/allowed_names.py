"""Names of images and hosts that a floor allows, and which patterns of them lie within which."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_DEFAULT_REGISTRY: Final = "docker.io"
_REGISTRY_ALIASES: Final = frozenset({"index.docker.io", "registry-1.docker.io"})


def is_image_allowed(image: str, patterns: Iterable[str]) -> bool:
    """Whether *image* is one of *patterns*: images by their names, or what names begin with, followed by ``*``.

    Names are compared whole, with the registry and tag that an engine would put in, so that ``debian*`` does not allow
    ``debian.example.com/debian``.
    """
    return "*" not in image and any(is_image_pattern_within(image, pattern) for pattern in patterns)


def is_image_pattern_within(pattern: str, wider: str) -> bool:
    """Whether everything that *pattern* allows is allowed by *wider*."""
    inner, outer = whole_image_name(pattern), whole_image_name(wider)
    if outer.endswith("*"):
        return inner.startswith(outer[:-1])
    return inner == outer


def whole_image_name(name: str) -> str:
    """*name* with its registry, repository, and tag or digest; of a pattern as much as it has."""
    if name == "*":
        return name
    first, separator, rest = name.partition("/")
    if separator and ("." in first or ":" in first or first == "localhost"):
        registry, repository = first.lower(), rest
    else:
        registry, repository = _DEFAULT_REGISTRY, name
    if registry in _REGISTRY_ALIASES:
        registry = _DEFAULT_REGISTRY
    if (
        repository != "*"
        and registry == _DEFAULT_REGISTRY
        and "/" not in repository.partition("@")[0].partition(":")[0]
    ):
        repository = f"library/{repository}"
    named = ":" in repository.rpartition("/")[2] or "@" in repository
    return f"{registry}/{repository}" + ("" if named or name.endswith("*") else ":latest")


def is_host_allowed(host: str, patterns: Iterable[str]) -> bool:
    """Whether *host* is one of *patterns*: names, ``*.`` and what names end with, or ``*`` for any."""
    return "*" not in host and any(is_host_pattern_within(host, pattern) for pattern in patterns)


def is_host_pattern_within(pattern: str, wider: str) -> bool:
    """Whether everything that *pattern* allows is allowed by *wider*."""
    inner, outer = _host(pattern), _host(wider)
    if outer == "*":
        return True
    if outer.startswith("*."):
        return inner.endswith(outer[1:]) and inner != outer[1:]
    return inner == outer


def _host(name: str) -> str:
    return name.lower().removesuffix(".")
