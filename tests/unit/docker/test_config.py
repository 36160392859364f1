"""Options and addresses: what contradicts itself is refused before anything is started."""

from __future__ import annotations

from typing import Any

import pytest

from execworld.providers.docker.config import DockerConfig, Mount, MountKind, Port, config_from_url
from execworld.seams import ConfigurationError
from execworld.world import resolve_world


@pytest.mark.parametrize(
    "image",
    [
        "debian:bookworm-slim",
        "ghcr.io/org/name:tag",
        "localhost:5000/a/b",
        "debian@sha256:" + "a" * 64,
        "0123456789ab",
    ],
)
def test_an_address_names_an_image(image: str) -> None:
    assert config_from_url(f"docker://{image}") == {"image": image}
    assert resolve_world(f"docker://{image}", {}).config == DockerConfig(image=image)


def test_an_address_names_a_container() -> None:
    assert resolve_world("docker+attach://web_1", {}).config == DockerConfig(container="web_1")


@pytest.mark.parametrize(
    "url",
    [
        "docker://",
        "docker+attach://",
        "docker+run://debian",
        "docker://-v",
        "docker://a b",
        "docker://debian?x=y",
        "docker+attach://a/b",
    ],
)
def test_an_address_that_names_nothing_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        resolve_world(url, {})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"image": "a", "container": "b"},
        {"image": "a", "build": {"context": "."}},
        {"image": "a", "imgae": "b"},
        {"image": "a", "workspace": "relative"},
        {"image": "a", "workspace": "/x", "workspace_volume": "y"},
        {"image": "a", "workspace_volume": "../y"},
        {"image": "a", "env": {"A=B": "c"}},
        {"image": "a", "env": {"A": "b\0"}},
        {"image": "a", "ports": ["0"]},
        {"image": "a", "ports": ["0.0.0.0:80:80"]},
        {"image": "a", "ports": ["80:70000"]},
        {"image": "a", "pids": 0},
        {"image": "a", "memory_bytes": -1},
        {"image": "a", "cpus": 0},
        {"image": "a", "lifetime_s": 0},
        {"image": "a", "engine_timeout_s": float("nan")},
        {"image": "a", "pull": "sometimes"},
        {"image": "a", "warden": "relative"},
        {"image": "a", "mounts": [{"target": "/"}]},
        {"image": "a", "mounts": [{"target": "/x"}]},
        {"image": "a", "mounts": [{"target": "x", "source": "/y"}]},
        {"image": "a", "mounts": [{"target": "/x", "source": "/y", "size_bytes": 1}]},
        {"image": "a", "mounts": [{"target": "/x", "kind": "tmpfs", "source": "/y"}]},
        {"image": "a", "mounts": [{"target": "/x", "source": "/y", "readonly": True}]},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        resolve_world("docker", options)


def test_options_are_read_from_text() -> None:
    config = resolve_world(
        "docker://debian",
        {
            "mounts": '[{"target": "/data", "source": "/srv/data", "read_only": true}]',
            "env": '{"A": "b"}',
            "cap_drop": '["ALL"]',
            "pids": "100",
            "read_only": "true",
        },
        text=True,
    ).config
    assert config == DockerConfig(
        image="debian",
        mounts=(Mount("/data", MountKind.BIND, "/srv/data", read_only=True),),
        env={"A": "b"},
        cap_drop=("ALL",),
        pids=100,
        read_only=True,
    )


def test_ports_are_those_of_the_loopback_interface() -> None:
    assert Port.parse("80") == Port(80)
    assert Port.parse("8080:80") == Port(80, 8080)
    assert Port.parse("5353:53/udp") == Port(53, 5353, "udp")


def test_a_read_only_root_has_a_place_for_temporary_files() -> None:
    assert [mount.target for mount in DockerConfig(image="a", read_only=True).all_mounts] == ["/tmp"]
    own = Mount("/tmp", MountKind.TMPFS, size_bytes=1024)
    assert DockerConfig(image="a", read_only=True, mounts=(own,)).all_mounts == (own,)
