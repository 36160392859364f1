"""The contract once more as an ordinary user: root may do things for which others need a kernel that helps them.

All of the test process is that user's, so that nothing of what root may do can make a clause pass.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow]

USER: Final = 1000
PATH: Final = "/usr/local/bin:/usr/bin:/bin"  # that of root leads to places of its own
REPOSITORY: Final = Path(__file__).resolve().parents[2]
SUITES: Final = (
    *(f"test_landlock.py::Test{name}" for name in ("World", "FileSystem", "Subprocess", "Terminal", "Shell")),
    *(f"test_landlock.py::Test{name}" for name in ("RootWorld", "RootSandbox")),
    *(f"test_landlock.py::TestLossOfThe{name}" for name in ("Warden", "Cell")),
    *(f"test_warden.py::Test{name}" for name in ("World", "FileSystem", "Subprocess", "Terminal", "Shell")),
    "test_warden.py::TestLoss",
)
ON: Final = () if os.environ.get("EXECWORLD_FULL") == "1" else ("-k", "not trio")
"""On both event loops when everything runs: what a user may do does not depend on them."""

# Makes an interpreter find what the one that runs this has, editable installations too.
BOOTSTRAP: Final = f"import site, sys; site.addsitedir({sysconfig.get_path('purelib')!r}); "
PROBE: Final = "import pytest, execworld.machine.warden"
RUN: Final = "import pytest; sys.exit(pytest.main(sys.argv[1:]))"


def interpreters() -> Iterator[str]:
    """The one that runs this, which may lie in a directory that is root's alone, and others of its version."""
    yield sys.executable
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for directory in ("/usr/local/bin", "/usr/bin"):
        if os.access(f"{directory}/{name}", os.X_OK):
            yield f"{directory}/{name}"


def run_as_user(*command: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run *command* as the user, who can write below *home* alone."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env=environment
        | {"PATH": PATH, "HOME": str(home), "TMPDIR": str(home), "USER": "user", "LOGNAME": "user"},
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
            "only root can take another user's id; run by a user, the suites themselves are this test"
        )
    path = Path(tempfile.mkdtemp(prefix="execworld-user-", dir="/tmp"))
    try:
        os.chown(path, USER, USER)
        yield path
    finally:
        shutil.rmtree(path)


@pytest.fixture(scope="module")
def interpreter(home: Path) -> str:
    """An interpreter that the user may run, and that finds what it needs."""
    tried: list[str] = []
    for candidate in interpreters():
        try:
            done = run_as_user(candidate, "-c", BOOTSTRAP + PROBE, home=home)
        except PermissionError as error:
            tried.append(str(error))
            continue
        if not done.returncode:
            return candidate
        tried.append(f"{candidate}: {done.stdout.strip()[-300:]}")
    message = f"user {USER} can run no interpreter: {'; '.join(tried)}"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("suite", SUITES)
def test_the_contract_is_kept_for_an_ordinary_user(suite: str, home: Path, interpreter: str) -> None:
    done = run_as_user(
        *(interpreter, "-c", BOOTSTRAP + RUN),
        *("-q", "--no-header", "-p", "no:cacheprovider", *ON),
        f"tests/contract/{suite}",
        home=home,
    )
    assert done.returncode == 0, done.stdout[-8000:]
