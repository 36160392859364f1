"""What crosses is read from documents that a real engine gave, and whatever is odd in one is said to cross."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from execworld.providers.docker.boundary import ContainerBoundary, boundary_of
from execworld.providers.docker.credentials import credential_names
from execworld.providers.docker.host_paths import gives_host_away, holds_engine_socket
from execworld.seams.identity import Boundary

RECORDED = json.loads((Path(__file__).parent / "inspected" / "engine-20.10.json").read_text())
ENGINE = RECORDED["engine"]
ALWAYS = {
    "kernel: shared with this host",
    "users: their numbers mean those of this host",
    "control groups: their names are those of this host",
}
Document = dict[str, Any]
ODDITIES: tuple[object, ...] = (None, 17, "odd", True, [], {}, [None], [17], ["odd"], {"odd": 1})


def read(name: str, **options: Any) -> ContainerBoundary:
    return boundary_of(RECORDED["containers"][name], ENGINE, **options)


def beyond(found: ContainerBoundary) -> set[str]:
    """What crosses beside what crosses with every container of this engine."""
    assert set(found.crossings) >= ALWAYS
    assert len(set(found.crossings)) == len(found.crossings)
    return set(found.crossings) - ALWAYS


@pytest.fixture
def hardened() -> Document:
    return copy.deepcopy(RECORDED["containers"]["hardened"])


def test_a_plain_container_shares_kernel_and_network() -> None:
    found = read("plain")
    assert found.boundary is Boundary.CONTAINER
    assert beyond(found) == {"network: bridge"}
    assert not found.no_network
    assert found.own_processes
    assert not found.administrator
    assert (found.processes, found.memory_bytes, found.writable) == (None, None, ("/",))


def test_a_hardened_container_lets_nothing_more_cross() -> None:
    found = read("hardened")
    assert found.boundary is Boundary.CONTAINER
    assert beyond(found) == set()
    assert found.no_network
    assert found.read_only_root
    assert (found.processes, found.memory_bytes) == (50, 64 << 20)
    assert found.writable == ("/dev", "/scratch")


def test_with_the_engine_s_socket_there_is_no_boundary() -> None:
    found = read("socket")
    assert found.boundary is Boundary.NONE
    assert "engine: /var/run/docker.sock may be asked for anything" in found.crossings


def test_mounts_and_volumes_cross_one_by_one() -> None:
    found = read("mounts")
    assert found.boundary is Boundary.CONTAINER
    assert beyond(found) == {
        "files: /tmp at /work, for reading",
        "volume: boundary-test at /data, for writing",
        "network: bridge",
    }


def test_a_home_for_writing_is_no_boundary() -> None:
    found = read("home")
    assert found.boundary is Boundary.NONE
    assert "files: /root at /root, for writing" in found.crossings


def test_namespaces_of_the_host_are_no_boundary() -> None:
    found = read("host-namespaces")
    assert found.boundary is Boundary.NONE
    assert not found.own_processes
    assert beyond(found) == {
        "processes: those of this host",
        "shared memory: those of this host",
        "host name: those of this host",
        "network: that of this host",
    }


def test_a_privileged_container_has_all_of_the_host() -> None:
    found = read("privileged")
    assert found.boundary is Boundary.NONE
    assert found.administrator
    assert "privileges: all of the host" in found.crossings


def test_rights_beyond_the_default_are_named() -> None:
    found = read("rights")
    assert found.boundary is Boundary.NONE
    assert found.administrator
    assert beyond(found) >= {
        "capability: CAP_NET_ADMIN",
        "capability: CAP_SYS_ADMIN",
        "device: /dev/vda",
        "device: /dev/fuse",
        "group: 10",
        "system calls: all of them (seccomp is off)",
        "apparmor: off",
    }


def test_published_ports_cross() -> None:
    assert beyond(read("ports")) == {
        "network: bridge",
        "port: 80/tcp at 127.0.0.1 port 18080 of this host",
        "port: 81/udp at all addresses port 18081 of this host",
        "port: 81/udp at 0.0.0.0 port 18081 of this host",
        "port: 81/udp at :: port 18081 of this host",
    }


def test_names_of_credentials_cross_and_never_their_values() -> None:
    found = read("environment")
    named = {entry for entry in found.crossings if entry.startswith("environment")}
    assert {entry.split()[1] for entry in named} == {"API_TOKEN,", "DB_PASSWORD,"}
    assert "secret-value" not in str(found)


def test_what_belongs_to_another_container_is_said() -> None:
    found = read("joined")
    assert found.boundary is Boundary.CONTAINER
    kinds = {entry.split(":")[0] for entry in beyond(found)}
    assert kinds == {"network", "processes"}
    assert not found.own_processes
    assert not found.no_network


@pytest.mark.parametrize("name", ["socket", "privileged"])
def test_on_another_host_what_is_left_is_that_host(name: str) -> None:
    found = read(name, remote=True)
    assert found.boundary is Boundary.OTHER_HOST
    assert "kernel: shared with another host" in found.crossings


def test_a_container_on_another_host_is_a_container() -> None:
    assert read("hardened", remote=True).boundary is Boundary.CONTAINER


# ---- runtimes


@pytest.mark.parametrize(
    ("runtime", "path", "boundary"),
    [
        ("io.containerd.kata.v2", "", Boundary.VIRTUAL_MACHINE),
        ("vm", "/opt/kata/bin/containerd-shim-kata-v2", Boundary.VIRTUAL_MACHINE),
        ("vm", "/usr/bin/kata-runtime", Boundary.VIRTUAL_MACHINE),
        ("kata", "/usr/bin/runc", Boundary.CONTAINER),  # a name proves nothing
        ("kata-runtime", "", Boundary.CONTAINER),
        ("runsc", "/usr/bin/runsc", Boundary.CONTAINER),
        ("", "", Boundary.CONTAINER),
    ],
)
def test_a_virtual_machine_is_believed_by_what_is_started(
    hardened: Document, runtime: str, path: str, boundary: Boundary
) -> None:
    hardened["HostConfig"]["Runtime"] = runtime
    engine = {**ENGINE, "Runtimes": {runtime: {"path": path}} if path else {}}
    assert boundary_of(hardened, engine).boundary is boundary


def test_an_unknown_runtime_is_named(hardened: Document) -> None:
    hardened["HostConfig"]["Runtime"] = "own"
    assert "runtime: own, which is not known" in boundary_of(hardened, ENGINE).crossings


# ---- odd documents


def test_of_nothing_everything_crosses() -> None:
    found = boundary_of({}, None)
    assert found.boundary is Boundary.NONE
    assert found.administrator
    assert not found.no_network
    assert len(found.crossings) > 15


LIMITS = {"Memory", "MemorySwap", "NanoCpus", "PidsLimit"}
NOT_CROSSING = LIMITS | {"User", "Image", "ExposedPorts", "ReadonlyRootfs", "Tmpfs"}
SECTIONS = ("Config", "HostConfig", "NetworkSettings")
PARTS = [
    "Mounts",
    *SECTIONS,
    *(
        f"{section}.{name}"
        for section in SECTIONS
        for name in RECORDED["containers"]["hardened"][section]
        if name not in NOT_CROSSING
    ),
]


def _with(document: Document, part: str, change: Callable[[Document, str], None]) -> Document:
    holder = document
    *sections, name = part.split(".")
    for section in sections:
        holder = holder[section]
    change(holder, name)
    return document


@pytest.mark.parametrize("part", PARTS)
def test_what_is_missing_is_said_to_cross(hardened: Document, part: str) -> None:
    before = set(boundary_of(hardened, ENGINE).crossings)
    found = boundary_of(_with(hardened, part, lambda holder, name: holder.pop(name)), ENGINE)
    if part not in ("HostConfig.UsernsMode", "HostConfig.CgroupnsMode"):  # crosses anyway
        assert set(found.crossings) > before


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("odd", ODDITIES, ids=repr)
def test_nothing_odd_makes_a_container_look_tighter(hardened: Document, part: str, odd: object) -> None:
    before = boundary_of(hardened, ENGINE)
    found = boundary_of(_with(hardened, part, lambda holder, name: holder.update({name: odd})), ENGINE)
    assert set(found.crossings) >= set(before.crossings) - {
        "control groups: their names are those of this host"
    }
    assert found.no_network <= before.no_network
    assert found.own_processes <= before.own_processes
    assert found.boundary in (Boundary.CONTAINER, Boundary.NONE)


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        (name, mode)
        for name in ("PidMode", "IpcMode", "UTSMode")
        for mode in ("host", "whatever", "container:x", " ")
    ],
)
def test_a_mode_that_is_not_known_is_that_of_the_host(hardened: Document, name: str, mode: str) -> None:
    hardened["HostConfig"][name] = mode
    assert len(boundary_of(hardened, ENGINE).crossings) == len(ALWAYS) + 1


@pytest.mark.parametrize("mode", ["host", "", "whatever", "container:x", None, 5])
def test_only_none_is_no_network(hardened: Document, mode: object) -> None:
    hardened["HostConfig"]["NetworkMode"] = mode
    found = boundary_of(hardened, ENGINE)
    assert not found.no_network
    hardened["HostConfig"]["NetworkMode"] = "none"
    hardened["NetworkSettings"]["Networks"]["other"] = {}
    found = boundary_of(hardened, ENGINE)
    assert not found.no_network
    assert "network: other" in found.crossings


def test_an_engine_that_says_nothing_has_no_filter(hardened: Document) -> None:
    for engine in (None, {}, {"SecurityOptions": None}, {"SecurityOptions": "seccomp"}):
        assert any("seccomp" in entry for entry in boundary_of(hardened, engine).crossings)


def test_a_shared_mount_leads_back_to_the_host(hardened: Document) -> None:
    mount = {"Type": "bind", "Source": "/srv/x", "Destination": "/x", "RW": False, "Propagation": "rshared"}
    hardened["Mounts"] = [mount]
    assert boundary_of(hardened, ENGINE).boundary is Boundary.NONE
    mount["Propagation"] = "rprivate"
    assert boundary_of(hardened, ENGINE).boundary is Boundary.CONTAINER


# ---- paths and names


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/run",
        "/var/run",
        "/var/run/",
        "//var/run/docker.sock",
        "/var/run/docker.sock",
        "/run/user/1000/podman/podman.sock",
        "/run/user/1000",
        "/var",
        "/home/me/.docker/run/docker.sock",
        "/somewhere/docker.raw.sock",
        "/run/containerd",
        "/srv/../run/docker.sock",
    ],
)
def test_an_engine_is_found_in_what_holds_its_socket(path: str) -> None:
    assert holds_engine_socket(path)


@pytest.mark.parametrize("path", ["/srv/work", "/runner", "/tmp/sockets", "/run/systemd/notify", "/docker"])
def test_other_places_hold_no_engine(path: str) -> None:
    assert not holds_engine_socket(path)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/etc",
        "/etc/cron.d",
        "/root",
        "/home",
        "/home/me",
        "/Users/me",
        "/var/lib/docker/volumes",
        "/dev",
    ],
)
def test_who_may_write_there_has_the_host(path: str) -> None:
    assert gives_host_away(path)


@pytest.mark.parametrize("path", ["/srv/work", "/home/me/project", "/root/project", "/var/lib/app", "/opt/x"])
def test_a_workspace_is_not_the_host(path: str) -> None:
    assert not gives_host_away(path)


CREDENTIALS = (
    "API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "DB_PASS",
    "GITHUB_TOKEN",
    "PGPASSWORD",
    "SENTRY_DSN",
    "SSH_AUTH_SOCK",
    "npm_config__authtoken",
)
OTHERS = ("AUTHOR", "HOME", "KEYBOARD", "LANG", "MONKEY", "PATH", "PWD", "TOKENIZERS_PARALLELISM")


def test_names_of_credentials() -> None:
    assert credential_names((*OTHERS, *CREDENTIALS, *CREDENTIALS)) == CREDENTIALS
