"""Which clauses run where. A clause that does not run is never collected, so nothing looks like a skip."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import pytest

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"

SMOKE: Final = frozenset(
    {
        *("F15", "F18", "F20", "F34", "F49", "F107"),
        *("P2", "P11", "P13", "P16", "P17", "P29", "P64", "P75", "P76", "P77"),
        *("T3", "T4", "T22", "T25", "T27", "T28"),
        *("S2", "S5"),
    }
)
"""What a split or slow link is most likely to break: order, completeness, character borders, end of streams. And each
kind of operation once, under the sanitizers."""

NO_PROGRAM: Final = frozenset(
    {
        *(
            "F1",
            "F2",
            "F3",
            "F10",
            "F15",
            "F18",
            "F20",
            "F23",
            "F33",
            "F35",
            "F40",
            "F49",
            "F60",
            "F71",
            "F80",
        ),
        *("F86", "F95", "F102", "F110", "F120", "F125"),
    }
)
"""Clauses that run no program of the world, for one that has none."""

_CLAUSE: Final = re.compile(r"::Test(Split|Sanitized|Shape|Empty)\w*::test_([A-Z]+\d+)_")


@pytest.fixture(scope="class")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the worlds of one suite."""
    return tmp_path_factory.mktemp("world")


def pytest_report_header() -> str:
    where = "contract over split links, over a warden with sanitizers, and in containers of further shapes"
    if FULL:
        return f"{where}: every clause"
    return f"{where}: a smoke of {len(SMOKE)} clauses; EXECWORLD_FULL=1 runs all"


def _runs(item: pytest.Item) -> bool:
    match = _CLAUSE.search(item.nodeid)
    if match is None:
        return True
    if match[1] == "Empty":
        return match[2] in NO_PROGRAM
    return FULL or match[2] in SMOKE


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run a smoke by default where whole suites would take half an hour more."""
    left_out = [item for item in items if not _runs(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
