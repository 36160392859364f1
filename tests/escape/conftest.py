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
from tests.docker.conftest import lacking
from tests.docker.engines import SHARED_SOCKET, Engine, why_silent

from .containers import make_image
from .plans import Outcome, Plan, twins

ROOT: Final = Path(__file__).resolve().parents[2]
SESSION_TIMEOUT_S: Final = 110
Session = Callable[[Plan], Outcome]


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
def engine() -> Engine:
    """The engine of this host, with the image of the suite."""
    if reason := why_silent(SHARED_SOCKET):
        lacking(reason)
    engine = Engine(SHARED_SOCKET)
    make_image(engine)
    return engine


class Sessions:
    """What became of plans. Each runs once."""

    def __init__(self, place: Path) -> None:
        # Where pytest has workers, those are what runs side by side.
        self.pool = ThreadPoolExecutor(1 if "PYTEST_XDIST_WORKER" in os.environ else 2)
        self._place = place
        self._outcomes: dict[Plan, Future[Outcome]] = {}

    def submit(self, plan: Plan) -> Future[Outcome]:
        if plan not in self._outcomes:
            self._outcomes[plan] = self.pool.submit(_run, plan, self._place)
        return self._outcomes[plan]

    def __call__(self, plan: Plan) -> Outcome:
        if not possible(plan):
            pytest.skip("takes another user id, which needs root")
        return self.submit(plan).result()


@pytest.fixture(scope="session")
def sessions(place: Path) -> Iterator[Sessions]:
    sessions = Sessions(place)
    yield sessions
    sessions.pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def session(request: pytest.FixtureRequest, sessions: Sessions) -> Session:
    """What became of a plan. All plans of the selected tests of the module are run ahead."""
    for plan in filter(possible, plans_of(request)):
        for one in (*twins(plan.uid), plan):
            sessions.submit(one)
    return sessions


def environment(place: Path) -> dict[str, str]:
    """Of host sides: what they import is compiled once a run, whatever the caller thinks of that."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPYCACHEPREFIX": str(place / "compiled")}


def possible(plan: Plan) -> bool:
    return os.getuid() in (0, plan.uid)


def plans_of(request: pytest.FixtureRequest) -> Iterator[Plan]:
    """Those of the tests of this module that will run."""
    for item in request.session.items:
        if item.path != request.path or any(mark.args[0] for mark in item.iter_markers("skipif")):
            continue
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            plan = item.callspec.params.get("plan")
            if isinstance(plan, Plan):
                yield plan


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
