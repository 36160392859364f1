"""The daemon that fault tests kill: what it promises them, and that it leaves the engine of the host alone."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .engines import OwnEngine, has_process, why_silent

if TYPE_CHECKING:
    from .engines import Engine

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow]

BASE = "busybox:stable"
SLEEPING = ("run", "--detach", "--network=none", "--stop-timeout=1", BASE, "sleep")
BRIDGE = Path("/sys/class/net/docker0")


def bridge_of_host() -> tuple[str, str]:
    return (BRIDGE / "ifindex").read_text(), (BRIDGE / "address").read_text()


def traces_of(own: OwnEngine) -> dict[str, object]:
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    return {
        "processes": own.processes(),
        "mounts": [line for line in mounts if str(own.directory) in line],
        "control groups": own.control_groups(),
        "directory": [own.directory] if own.directory.exists() else [],
    }


def test_it_is_there_soon_and_leaves_the_engine_of_the_host_alone(
    engine: Engine, own_engine: OwnEngine
) -> None:
    own_engine.stop()
    before = bridge_of_host()
    began = time.monotonic()
    own_engine.start()
    assert time.monotonic() - began < 5
    assert bridge_of_host() == before
    assert own_engine.docker("info", "--format", "{{.DockerRootDir}}") == f"{own_engine.directory}/data"
    assert own_engine.docker("images", "--quiet") == ""
    own_engine.stop()
    assert why_silent(own_engine.path)
    assert bridge_of_host() == before
    assert engine.docker("network", "inspect", "bridge", "--format", "{{.Driver}}") == "bridge"


def test_containers_run_in_it(engine: Engine, own_engine: OwnEngine) -> None:
    own_engine.load(engine, BASE)
    assert own_engine.docker("run", "--rm", "--network", "none", BASE, "echo", "hello") == "hello"
    limited = ("run", "--rm", "--network", "none", "--memory", "64m", "--pids-limit", "16", BASE)
    assert own_engine.docker(*limited, "echo", "limited") == "limited"


def test_after_a_kill_the_containers_live_until_the_next_daemon(
    engine: Engine, own_engine: OwnEngine
) -> None:
    own_engine.load(engine, BASE)
    seconds = f"{10_000_000 + int.from_bytes(os.urandom(3))}"
    container = own_engine.docker(*SLEEPING, seconds)
    own_engine.kill()
    assert why_silent(own_engine.path)
    assert has_process(seconds)
    own_engine.start()
    assert own_engine.docker("inspect", "--format", "{{.State.Running}}", container) == "false"
    assert not has_process(seconds)


def test_with_live_restore_they_live_on(engine: Engine, own_engine: OwnEngine) -> None:
    own_engine.stop()
    own_engine.start("--live-restore")
    own_engine.load(engine, BASE)
    seconds = f"{10_000_000 + int.from_bytes(os.urandom(3))}"
    container = own_engine.docker(*SLEEPING, seconds)
    own_engine.kill()
    own_engine.start("--live-restore")
    assert own_engine.docker("inspect", "--format", "{{.State.Running}}", container) == "true"
    assert has_process(seconds)


@pytest.mark.parametrize("ended", ["all at once", "in order", "killed"])
def test_nothing_of_it_is_left(engine: Engine, own_engine: OwnEngine, ended: str) -> None:
    """That it is seen while it is there shows that the look itself works."""
    own = OwnEngine()
    try:
        own.start("--live-restore")
        own.load(engine, BASE)
        seconds = f"{10_000_000 + int.from_bytes(os.urandom(3))}"
        own.docker(*SLEEPING, seconds)
        there = traces_of(own)
        assert there["processes"]
        assert there["control groups"]
        assert there["directory"]
        assert has_process(seconds)
        if ended == "in order":
            own.stop()
        elif ended == "killed":
            own.kill()
    finally:
        own.close()
    assert not any(traces_of(own).values()), traces_of(own)
    assert not has_process(seconds)
    assert not why_silent(own_engine.path), "another engine of a test went too"
    assert engine.docker("version", "--format", "{{.Server.Version}}")
