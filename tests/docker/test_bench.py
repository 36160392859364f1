"""`execworld bench` beside the engine's own ways. Never what it measures."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from .engines import Engine

ROWS = ("engine-spawn", "engine-file", "engine-stream", "engine-open")


@pytest.mark.docker
@pytest.mark.slow
def test_the_ways_of_the_engine_are_measured_in_the_same_run(engine: Engine) -> None:
    command = [
        sys.executable,
        "-m",
        "execworld.cli",
        "bench",
        "-w",
        "docker://debian:bookworm-slim",
        "--json",
    ]
    done = subprocess.run(
        [*command, "--row", ",".join(ROWS), "--scale", "0.01"],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    document = json.loads(done.stdout)
    assert [row["name"] for row in document["rows"]] == list(ROWS)
    assert document["left_out"] == {}
    assert all(value > 0 for row in document["rows"] for value in (row["ours"], *row["peers"].values()))
