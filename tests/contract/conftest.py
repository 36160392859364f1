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

_CLAUSE: Final = re.compile(r"::Test(?:Split|Sanitized)\w+::test_([A-Z]+\d+)_")


@pytest.fixture(scope="class")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the worlds of one suite."""
    return tmp_path_factory.mktemp("world")


def pytest_report_header() -> str:
    if FULL:
        return "contract over split links, and over a warden with sanitizers: every clause"
    return (
        f"contract over split links, and over a warden with sanitizers: a smoke of {len(SMOKE)} clauses; "
        "EXECWORLD_FULL=1 runs all"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Over split links, and with sanitizers, run a smoke by default: the whole suites take twenty minutes more."""
    if FULL:
        return
    left_out = [
        item for item in items if (match := _CLAUSE.search(item.nodeid)) is not None and match[1] not in SMOKE
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]
