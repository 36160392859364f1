"""``execworld clean`` removes the containers of worlds that are gone, and no other."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from execworld.providers.docker.labels import MADE_BY, PREFIX, Purpose, labels_for

if TYPE_CHECKING:
    from .engines import Engine, OwnEngine

pytestmark = [pytest.mark.docker, pytest.mark.root, pytest.mark.slow]

BASE = "busybox:stable"
NEVER_USED_PID = str(2**22 + 1)  # above the largest that Linux gives out

Make = Callable[..., str]


def clean(own: OwnEngine, *options: str) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DOCKER_")}
    return subprocess.run(
        [sys.executable, "-m", "execworld.cli", "clean", *options],
        capture_output=True,
        env=environment | {"DOCKER_HOST": own.url},
        timeout=60,
    )


def found_by(own: OwnEngine, *options: str) -> dict[str, tuple[str, str]]:
    """State and reason of each container that was found, by its name."""
    finished = clean(own, "--json", *options)
    document: list[dict[str, Any]] = json.loads(finished.stdout)
    (sweep,) = (sweep for sweep in document if sweep["world"] == "docker")
    assert sweep["not_searched"] == ""
    return {
        item["name"].partition(" ")[0]: (item["state"], item["reason"])
        for item in sweep["leftovers"]
        if item["kind"] == "container"
    }


def names_in(own: OwnEngine) -> set[str]:
    return set(own.docker("ps", "--all", "--format", "{{.Names}}").split())


@pytest.fixture
def make(engine: Engine, own_engine: OwnEngine) -> Make:
    """Make a container with labels as of a world, some of them changed (None: without it). Returns its name."""
    own_engine.load(engine, BASE)

    def make_one(changed: Mapping[str, str | None] | None = None, *, run: bool = False) -> str:
        name = f"execworld-{secrets.token_hex(8)}"
        labels: dict[str, str | None] = {**labels_for(Purpose.WORLD, name, lifetime_s=3600)}
        labels.update(changed or {})
        given = [f"--label={key}={value}" for key, value in labels.items() if value is not None]
        how = ["run", "--detach"] if run else ["create"]
        own_engine.docker(*how, "--network=none", f"--name={name}", *given, BASE, "sleep", "1000")
        return name

    return make_one


def test_what_goes_and_what_stays(own_engine: OwnEngine, make: Make) -> None:
    gone = {f"{PREFIX}owner.pid": NEVER_USED_PID}
    elsewhere = {f"{PREFIX}owner.host": "another/boot/1"}
    expired = {f"{PREFIX}expires": str(int(time.time()) - 10)}
    goes = {
        make(gone),
        make(gone, run=True),
        make({f"{PREFIX}owner.started": "1"}),  # the number was given to another process meanwhile
        make(elsewhere | expired, run=True),
        make(gone | expired | {f"{PREFIX}keep": "yes"}),
    }
    stays = {
        make(): "runs",
        make(run=True): "runs",
        make(expired): "runs",
        make(elsewhere): "elsewhere",
        make(gone | elsewhere, run=True): "elsewhere",
        make(gone | {f"{PREFIX}keep": "yes"}): "to be kept",
        make({f"{PREFIX}owner.pid": None}): "whose",
        make({f"{PREFIX}owner.pid": "-1", f"{PREFIX}expires": "1e9"}): "whose",
    }
    not_ours = {
        make(gone | {MADE_BY: None}),
        make(gone | {f"{PREFIX}name": "of-the-image-that-it-was-made-of"}),
        make(dict.fromkeys(labels_for(Purpose.WORLD, "", lifetime_s=1)) | {"org.example.owner": "1"}),
    }
    everything = names_in(own_engine)
    assert everything == goes | set(stays) | not_ours

    found = found_by(own_engine, "--dry-run")
    assert {name for name, (state, _) in found.items() if state == "removable"} == goes
    assert {name for name, (state, _) in found.items() if state == "kept"} == set(stays)
    assert names_in(own_engine) == everything

    found = found_by(own_engine)
    assert {name for name, (state, _) in found.items() if state == "removed"} == goes
    for name, reason in stays.items():
        assert found[name][0] == "kept"
        assert reason in found[name][1]
    assert names_in(own_engine) == everything - goes
    assert found_by(own_engine).keys() == stays.keys()


OWNER = """
import subprocess, sys
from execworld.providers.docker.labels import Purpose, labels_for

url, name, image = sys.argv[1:]
labels = [f"--label={key}={value}" for key, value in labels_for(Purpose.WORLD, name, lifetime_s=3600).items()]
docker = ["docker", "--host", url, "run", "--detach", "--network=none", f"--name={name}", *labels, image]
subprocess.run([*docker, "sleep", "1000"], check=True, stdout=subprocess.DEVNULL)
print("made", flush=True)
sys.stdin.read()
"""


def test_it_goes_when_its_owner_was_killed(engine: Engine, own_engine: OwnEngine) -> None:
    own_engine.load(engine, BASE)
    name = f"execworld-{secrets.token_hex(8)}"
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, own_engine.url, name, BASE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"made\n"
        assert found_by(own_engine)[name][0] == "kept"
        owner.send_signal(signal.SIGKILL)
        # Not reaped yet: a zombie owns nothing any more.
        os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
        assert found_by(own_engine)[name] == ("removed", f"the process that made it, {owner.pid}, is gone")
    assert names_in(own_engine) == set()


def test_an_engine_that_is_not_there_is_no_failure(own_engine: OwnEngine) -> None:
    """It is said, since its containers may still be there; the rest of the work is done."""
    own_engine.stop()
    finished = clean(own_engine)
    assert finished.returncode == 0
    assert b"note: docker: nothing was looked for: the engine at unix://" in finished.stderr
    assert b"Traceback" not in finished.stderr
