"""Policies on the command line, in the default world."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from execworld.cli.policies import PolicyChoice, parse_limits, parse_network, parse_requirement
from execworld.providers.landlock import provider
from execworld.seams import (
    ConfigurationError,
    Dimension,
    NetworkMode,
    NetworkPolicy,
    SandboxMode,
    SandboxPolicy,
)

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Run

pytestmark = [
    pytest.mark.landlock,
    pytest.mark.skipif(sys.platform != "linux", reason="the default world needs Linux"),
]


def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir(exist_ok=True)
    return path


def test_the_default_is_to_write_below_the_current_directory_alone(execworld: Run, tmp_path: Path) -> None:
    here, there = tmp_path / "here", outside(tmp_path)
    here.mkdir()
    script = f"touch inside; touch {there}/x; true"
    finished = execworld("run", "--", "sh", "-c", script, cwd=here)
    assert finished.returncode == 0
    assert b"unconfined" not in finished.stderr
    assert (here / "inside").exists()
    assert not (there / "x").exists()


def test_a_write_root_and_a_mode(execworld: Run, tmp_path: Path) -> None:
    here, there = tmp_path / "here", outside(tmp_path)
    here.mkdir()
    assert execworld("run", "--write", "../outside", "--", "touch", f"{there}/x", cwd=here).returncode == 0
    assert execworld("run", "--mode", "read-only", "--", "touch", "y", cwd=here).returncode == 1
    assert execworld("run", "--workspace", str(there), "--", "touch", "y", cwd=here).returncode == 1
    free = execworld("run", "--mode", "full-access", "--", "touch", f"{there}/z", cwd=here)
    assert free.returncode == 0
    assert free.stderr == b"execworld: world landlock: unconfined\n"


def test_a_hidden_path(execworld: Run, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("the secret")
    here = tmp_path / "here"
    here.mkdir()
    assert execworld("run", "--", "cat", str(secret), cwd=here).stdout == b"the secret"
    hidden = execworld("run", "--hide", str(secret), "--", "cat", str(secret), cwd=here)
    assert b"the secret" not in hidden.stdout


def test_limits(execworld: Run, tmp_path: Path) -> None:
    slow = execworld("run", "--limit", "wall=0.5", "--", "sleep", "1000", cwd=tmp_path)
    assert slow.returncode == 124
    large = execworld(
        "run", "--limit", "file=1K", "--", "sh", "-c", "head -c 5000 /dev/zero >f", cwd=tmp_path
    )
    assert large.returncode != 0
    assert (tmp_path / "f").stat().st_size <= 1024


def test_a_refusal_says_reason_and_what_to_do(execworld: Run, tmp_path: Path) -> None:
    finished = execworld("run", "--workspace", f"{tmp_path}/missing", "--", "true")
    assert finished.returncode == 125
    lines = finished.stderr.decode().splitlines()
    assert lines[0].startswith("execworld: error [SANDBOX_UNAVAILABLE]: ")
    assert f"{tmp_path}/missing" in lines[0]
    assert lines[1] == "reason: root-unusable"
    assert lines[2].startswith("hint: ")


def test_a_world_that_confines_nothing_names_what_is_missing(execworld: Run) -> None:
    finished = execworld("run", "-w", "local", "--mode", "read-only", "--", "true")
    assert finished.returncode == 125
    assert b"reason: world-cannot-confine; missing: fs.metadata, fs.write" in finished.stderr


def test_explain_says_all_of_it_and_runs_nothing(execworld: Run, tmp_path: Path) -> None:
    finished = execworld("run", "--net", "none", "--explain", "--", "touch", "x", cwd=tmp_path)
    assert finished.returncode == 0
    assert b"net.tcp" in finished.stdout
    assert b"steps:" in finished.stdout
    assert not (tmp_path / "x").exists()
    document = json.loads(execworld("run", "--explain", "--json", cwd=tmp_path).stdout)
    assert document["policy"]["workspace"] == str(tmp_path)
    assert document["enforcement"]["fs.write"]["state"] == "enforced"
    assert document["plan"]["steps"]
    assert execworld("fs", "ls", "--explain", cwd=tmp_path).stdout.startswith(b"world: landlock\n")


def test_files_obey_the_same_policy(execworld: Run, tmp_path: Path) -> None:
    here, there = tmp_path / "here", outside(tmp_path)
    here.mkdir()
    (here / "f").write_text("x")
    denied = execworld("fs", "put", "f", str(there), cwd=here)
    assert denied.returncode == 1
    assert b"FS_SANDBOX_DENIED" in denied.stderr
    assert b"hint: the policy lets write below" in denied.stderr
    assert list(there.iterdir()) == []
    assert execworld("fs", "put", "--write", str(there), "f", str(there), cwd=here).returncode == 0


@pytest.mark.parametrize(
    "options",
    [
        ("--net", "udp:1"),
        ("--net", "tcp:"),
        ("--net", "tcp:99999"),
        ("--limit", "colour=1"),
        ("--limit", "memory=-1"),
        ("--limit", "pids=1K"),
        ("--limit", "wall=soon"),
        ("--require", "everything"),
        ("--require", "fs.write=perhaps"),
        ("--mode", "write-only"),
    ],
)
def test_a_wrong_part_of_a_policy_is_refused(execworld: Run, options: tuple[str, str]) -> None:
    finished = execworld("run", *options, "--", "true")
    assert finished.returncode == 125
    assert f"Invalid value for '{options[0]}'".encode() in finished.stderr


def test_parts_that_are_read() -> None:
    assert parse_network("none") == NetworkPolicy(NetworkMode.NONE)
    assert parse_network("tcp:443,80") == NetworkPolicy(NetworkMode.PORTS, (80, 443))
    assert parse_limits("pids=5,memory=2g,cpu=1.5,file=10K,output=3") == {
        "processes": 5,
        "memory_bytes": 2 << 30,
        "cpu_s": 1.5,
        "file_size_bytes": 10 << 10,
        "output_bytes": 3,
    }
    assert parse_requirement("strict") is None
    assert parse_requirement("fs.metadata=yes") == (Dimension.FS_METADATA, True)


def test_nothing_asked_for_is_no_policy() -> None:
    assert PolicyChoice().policy(provider) is None
    assert PolicyChoice({"mode": "full-access"}).policy(provider) == SandboxPolicy.full_access()
    with pytest.raises(ConfigurationError):
        PolicyChoice({"mode": str(SandboxMode.READ_ONLY), "write": ("/x",)}).policy(provider)
