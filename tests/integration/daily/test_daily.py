"""Ordinary work under workspace-write, with nothing special configured, as root and as an ordinary user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from .recipes import RECIPES

ROOT: Final = Path(__file__).resolve().parents[3]
ORDINARY: Final = 1000
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
IN_CI: Final = os.environ.get("CI") == "true"
SESSION_TIMEOUT_S: Final = 400
Answers = dict[str, dict[str, Any]]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.timeout(SESSION_TIMEOUT_S + 20),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]


@pytest.fixture(scope="module")
def answers(request: pytest.FixtureRequest) -> Iterator[Callable[[int], Answers]]:
    """What the selected recipes gave, run one after the other in one world for each user."""
    selected = [name for name in RECIPES if any(f"{name}-" in item.nodeid for item in request.session.items)]
    parent = Path("/var/lib") if os.getuid() == 0 else Path.home() / ".cache"
    place = Path(tempfile.mkdtemp(prefix="execworld-daily-", dir=parent))
    place.chmod(0o755)
    known: dict[int, Answers] = {}

    def run(uid: int) -> Answers:
        if uid not in known:
            base = place / str(uid)
            base.mkdir()
            order = {
                "uid": uid,
                "world": "landlock",
                "recipes": [name for name in selected if not missing(name, uid)],
            }
            done = subprocess.run(
                [sys.executable, "-m", "tests.integration.daily.session", str(base)],
                input=json.dumps(order),
                capture_output=True,
                text=True,
                cwd=ROOT,
                env={
                    **os.environ,
                    "PYTHONPYCACHEPREFIX": str(place / "compiled"),
                    "PYTHONDONTWRITEBYTECODE": "",
                },
                timeout=SESSION_TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-6000:]
            known[uid] = json.loads(done.stdout)
        return known[uid]

    yield run
    shutil.rmtree(place)


def missing(name: str, uid: int) -> list[str]:
    path = os.environ["PATH"] if uid == os.getuid() else SYSTEM_PATH
    return [tool for tool in RECIPES[name].tools if shutil.which(tool, path=path) is None]


@pytest.mark.parametrize("uid", [0, ORDINARY], ids=["root", "user"])
@pytest.mark.parametrize("name", RECIPES)
def test_work_is_done(answers: Callable[[int], Answers], name: str, uid: int) -> None:
    if uid != os.getuid() and os.getuid() != 0:
        pytest.skip("takes another user id, which needs root")
    lacking = missing(name, uid)
    if lacking and not IN_CI:
        pytest.skip(f"not installed: {', '.join(lacking)} (scripts/ci-tools installs them)")
    assert lacking == []
    answer = answers(uid)[name]
    said = f"{answer['stdout'][-3000:]}\n--- stderr:\n{answer['stderr'][-3000:]}"
    assert answer["exit"] == 0, said
    assert answer["stdout"].endswith("done\n"), said
    assert [text for text in RECIPES[name].expected if text not in answer["stdout"]] == [], said
