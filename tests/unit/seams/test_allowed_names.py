"""Names that a floor allows. A name is compared whole, so that one which only begins alike is not let in."""

from __future__ import annotations

import pytest

from execworld.seams.allowed_names import (
    is_host_allowed,
    is_host_pattern_within,
    is_image_allowed,
    is_image_pattern_within,
    whole_image_name,
)


@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("debian", "docker.io/library/debian:latest"),
        ("debian:12", "docker.io/library/debian:12"),
        ("acme/tool", "docker.io/acme/tool:latest"),
        ("docker.io/debian", "docker.io/library/debian:latest"),
        ("index.docker.io/library/debian:12", "docker.io/library/debian:12"),
        ("GHCR.io/acme/tool:1", "ghcr.io/acme/tool:1"),
        ("localhost/x", "localhost/x:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("debian@sha256:0a", "docker.io/library/debian@sha256:0a"),
        ("debian:12@sha256:0a", "docker.io/library/debian:12@sha256:0a"),
        ("debian*", "docker.io/library/debian*"),
        ("ghcr.io/acme/*", "ghcr.io/acme/*"),
        ("docker.io/*", "docker.io/*"),
        ("*", "*"),
    ],
)
def test_a_name_is_made_whole_as_an_engine_does(name: str, whole: str) -> None:
    assert whole_image_name(name) == whole
    assert whole_image_name(whole) == whole


@pytest.mark.parametrize(
    ("image", "pattern", "allowed"),
    [
        ("debian", "debian:latest", True),
        ("docker.io/library/debian:12", "debian:*", True),
        ("debian:12", "*", True),
        ("debian:12", "docker.io/*", True),
        ("debian-evil:12", "debian:*", False),
        ("debian.example.com/debian", "debian*", False),
        ("evil/debian:12", "debian:*", False),
        ("ghcr.io/acme/tool", "ghcr.io/acme/*", True),
        ("ghcr.io/acme-evil/tool", "ghcr.io/acme/*", False),
        ("debian:12", "debian", False),
        ("debian:*", "debian:*", False),
    ],
)
def test_an_image_that_a_pattern_allows(image: str, pattern: str, allowed: bool) -> None:
    assert is_image_allowed(image, [pattern]) is allowed


@pytest.mark.parametrize(
    ("pattern", "wider", "within"),
    [
        ("debian:12", "debian:*", True),
        ("debian:1*", "debian:*", True),
        ("debian:*", "debian:*", True),
        ("debian*", "debian:*", False),
        ("debian:*", "debian:12", False),
        ("debian:*", "*", True),
        ("*", "debian:*", False),
    ],
)
def test_a_pattern_of_images_within_another(pattern: str, wider: str, within: bool) -> None:
    assert is_image_pattern_within(pattern, wider) is within


@pytest.mark.parametrize(
    ("host", "pattern", "allowed"),
    [
        ("a.example.com", "a.example.com", True),
        ("A.Example.COM.", "a.example.com", True),
        ("a.example.com", "*.example.com", True),
        ("a.b.example.com", "*.example.com", True),
        ("example.com", "*.example.com", False),
        ("evilexample.com", "*.example.com", False),
        ("a.example.com.evil.test", "*.example.com", False),
        (".example.com", "*.example.com", False),
        ("anything", "*", True),
        ("*", "*", False),
    ],
)
def test_a_host_that_a_pattern_allows(host: str, pattern: str, allowed: bool) -> None:
    assert is_host_allowed(host, [pattern]) is allowed


@pytest.mark.parametrize(
    ("pattern", "wider", "within"),
    [
        ("*.a.example.com", "*.example.com", True),
        ("*.example.com", "*.example.com", True),
        ("*.example.com", "*.a.example.com", False),
        ("*", "*.example.com", False),
        ("*.example.com", "*", True),
    ],
)
def test_a_pattern_of_hosts_within_another(pattern: str, wider: str, within: bool) -> None:
    assert is_host_pattern_within(pattern, wider) is within
