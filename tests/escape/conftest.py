"""Sessions of the escape suite: each runs once, whoever asks for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest

from .plans import Outcome, Plan

ROOT: Final = Path(__file__).resolve().parents[2]
SESSION_TIMEOUT_S: Final = 110
Session = Callable[[Plan], Outcome]
Note = Callable[[str], None]


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A directory outside of every temporary directory: a view has its own of those, and would hide the targets."""
    parent = Path("/var/lib") if os.getuid() == 0 else Path.home() / ".cache"
    parent.mkdir(exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="execworld-escape-", dir=parent))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(scope="session")
def session(place: Path) -> Session:
    outcomes: dict[Plan, Outcome] = {}

    def run(plan: Plan) -> Outcome:
        if plan.uid != os.getuid() and os.getuid() != 0:
            pytest.skip("takes another user id, which needs root")
        if plan not in outcomes:
            outcomes[plan] = _run(plan, place)
        return outcomes[plan]

    return run


_NOTES: list[str] = []


@pytest.fixture(scope="session")
def note() -> Note:
    """Say something in the summary of the run."""
    return _NOTES.append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _NOTES:
        terminalreporter.section("escape suite")
        for text in _NOTES:
            terminalreporter.line(text)


def _run(plan: Plan, place: Path) -> Outcome:
    base = Path(tempfile.mkdtemp(dir=place))
    base.chmod(0o755)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.escape.session", str(base)],
            input=json.dumps(asdict(plan)),
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=SESSION_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        return Outcome.decoded(done.stdout)
    finally:
        shutil.rmtree(base)
