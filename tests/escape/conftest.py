"""Sessions of the escape suite: each runs once, whoever asks for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Final

import pytest

from .plans import Outcome, Plan, twins

ROOT: Final = Path(__file__).resolve().parents[2]
SESSION_TIMEOUT_S: Final = 110
_AT_A_TIME: Final = 2
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
def session(request: pytest.FixtureRequest, place: Path) -> Iterator[Session]:
    """What became of a plan. All plans of the selected tests are run ahead, two at a time."""
    pool = ThreadPoolExecutor(_AT_A_TIME)
    outcomes: dict[Plan, Future[Outcome]] = {}

    def submit(plan: Plan) -> Future[Outcome]:
        if plan not in outcomes:
            outcomes[plan] = pool.submit(_run, plan, place)
        return outcomes[plan]

    def run(plan: Plan) -> Outcome:
        if not possible(plan):
            pytest.skip("takes another user id, which needs root")
        return submit(plan).result()

    for plan in _selected(request.session.items):
        submit(plan)
    yield run
    pool.shutdown(cancel_futures=True)


def environment(place: Path) -> dict[str, str]:
    """Of host sides: what they import is compiled once a run, whatever the caller thinks of that."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(place / "compiled")}


def possible(plan: Plan) -> bool:
    return os.getuid() in (0, plan.uid)


def _selected(items: list[pytest.Item]) -> Iterator[Plan]:
    for item in items:
        skipped = any(mark.args[0] for mark in item.iter_markers("skipif"))
        plan = (
            item.callspec.params.get("plan")
            if isinstance(item, pytest.Function) and hasattr(item, "callspec")
            else None
        )
        if isinstance(plan, Plan) and possible(plan) and not skipped:
            yield from twins(plan.uid)
            yield plan


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
            env=environment(place),
            timeout=SESSION_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-6000:]
        return Outcome.decoded(done.stdout)
    finally:
        shutil.rmtree(base)
