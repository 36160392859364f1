"""``execworld bench`` with tiny rounds: it measures everything and says so in both forms. Never what it measures."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Run

TINY = ("--scale", "0.005")


@pytest.mark.slow
def test_every_row_has_a_peer_of_the_same_run(execworld: Run) -> None:
    finished = execworld("bench", "-w", "warden", "--json", *TINY, timeout=100)
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    names = execworld("bench", "--list").stdout.decode().split()
    elsewhere = [name for name in names if name == "confined" or name.startswith("engine-")]
    assert [row["name"] for row in document["rows"]] == [name for name in names if name not in elsewhere]
    assert list(document["left_out"]) == elsewhere
    assert "bench: confined is left out: the world has no policy" in finished.stderr.decode()
    assert len(names) >= 13
    for row in document["rows"]:
        assert row["ours"] > 0 or row["name"].startswith("memory")
        assert row["peers"]
        assert set(row["ratios"]) <= set(row["peers"])
        assert f"bench: {row['title']}\n" in finished.stderr.decode()
    assert document["world"] == "warden"
    assert document["host"]["processors"] > 0
    assert "ratios" in document["caveats"]


def test_rows_are_chosen_and_shown_as_a_table(execworld: Run) -> None:
    finished = execworld("bench", "-w", "local", "-q", "--row", "stat,spawn", *TINY)
    assert finished.returncode == 0
    assert finished.stderr == b""
    lines = finished.stdout.decode().splitlines()
    table = lines[lines.index("") + 1 :]
    assert [line.split()[0] for line in table[1:3]] == ["stat", "spawn"]
    assert "ratio" in table[0]
    assert table[3].strip().endswith("anyio.run_process")


def test_an_unknown_row_is_an_error_before_anything_is_measured(execworld: Run) -> None:
    finished = execworld("bench", "-w", "local", "--row", "stat,no-such-row")
    assert finished.returncode == 2
    assert b"no-such-row" in finished.stderr
    assert finished.stdout == b""
