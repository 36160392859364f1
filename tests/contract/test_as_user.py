"""The contract once more as an ordinary user: root may do things for which others need a kernel that helps them.

All of the test process is that user's, so that nothing of what root may do can make a clause pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]

USER: Final = 1000
REPOSITORY: Final = Path(__file__).resolve().parents[2]
SUITES: Final = (
    *(f"test_landlock.py::Test{name}" for name in ("World", "FileSystem", "Subprocess", "Terminal", "Shell")),
    *(f"test_landlock.py::Test{name}" for name in ("Sandbox", "RootWorld", "RootSandbox")),
    *(f"test_landlock.py::TestLossOfThe{name}" for name in ("Warden", "Cell")),
    *(f"test_warden.py::Test{name}" for name in ("World", "FileSystem", "Subprocess", "Terminal", "Shell")),
    "test_warden.py::TestLoss",
)


def run_as_user(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run this interpreter as the user, who can write below *home* alone."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env=environment | {"HOME": str(home), "TMPDIR": str(home), "USER": "user", "LOGNAME": "user"},
        user=USER,
        group=USER,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A directory of the user's; that of pytest is closed to others."""
    if os.getuid() != 0:
        pytest.skip(
            "only root can take another user's id; as an ordinary user the suites themselves are this test"
        )
    path = Path(tempfile.mkdtemp(prefix="execworld-user-", dir="/tmp"))
    os.chown(path, USER, USER)
    try:
        probe = run_as_user("-c", "import pytest, execworld.machine.warden", home=path)
        if probe.returncode:
            message = f"user {USER} cannot run {sys.executable}: {probe.stdout.strip()[-300:]}"
            if os.environ.get("CI") == "true":
                pytest.fail(message)
            pytest.skip(message)
        yield path
    finally:
        shutil.rmtree(path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("suite", SUITES)
def test_the_contract_is_kept_for_an_ordinary_user(suite: str, home: Path) -> None:
    done = run_as_user(
        *("-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-k", "not trio"),
        f"tests/contract/{suite}",
        home=home,
    )
    assert done.returncode == 0, done.stdout[-8000:]
