"""What the options of a docker world say of it: what may turn out to be a fiction is none to begin with."""

from __future__ import annotations

from typing import Any

import pytest

from execworld.providers.docker.claims import claims
from execworld.providers.docker.config import DockerConfig, Mount
from execworld.seams import Boundary, SandboxPolicy

POLICY = SandboxPolicy.full_access()


def claimed(**options: Any) -> Any:
    return claims(DockerConfig(**options), POLICY)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"workspace": "/srv/project"},
        {"mounts": (Mount("/etc/host", source="/etc", read_only=True),)},
        {"cap_add": ("NET_BIND_SERVICE",)},
    ],
)
def test_a_container_that_is_made_is_one(options: dict[str, Any]) -> None:
    assert claimed(image="debian", **options).boundary is Boundary.CONTAINER


@pytest.mark.parametrize(
    "options",
    [
        {"allow_engine_socket": True},
        {"cap_add": ("SYS_ADMIN",)},
        {"cap_add": ("cap_sys_ptrace",)},
        {"cap_add": ("ALL",)},
        {"workspace": "/"},
        {"workspace": "/etc"},
        {"mounts": (Mount("/host", source="/"),)},
        {"mounts": (Mount("/s", source="/var/run/docker.sock", read_only=True),)},
    ],
)
def test_what_hands_out_the_host_separates_nothing(options: dict[str, Any]) -> None:
    assert claimed(image="debian", **options).boundary is Boundary.NONE


def test_what_cannot_be_told_is_not_claimed() -> None:
    assert claimed(container="web").boundary is Boundary.NONE
    assert claimed(container="web").images is None
    assert claimed(build="/srv/project").images is None
    assert claimed(image="debian", context="elsewhere").hosts is None
    assert claimed(image="debian", from_environment=True).hosts is None


def test_an_image_and_the_host_of_an_engine_are_named() -> None:
    assert claimed(image="debian:12").images == ("debian:12",)
    assert claimed(image="debian").hosts == ()
    assert claimed(image="debian", host="unix:///run/docker.sock").hosts == ()
    assert claimed(image="debian", host="ssh://me@a.example.com:22").hosts == ("a.example.com",)
    assert claimed(image="debian", host="tcp://10.0.0.1:2376").hosts == ("10.0.0.1",)
