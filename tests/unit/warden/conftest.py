"""Builds the warden once, and lets CI skip nothing that it should have what is needed for."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

import pytest

from .cells import Place
from .driver import BINARY, ROOT, Warden

CI: Final = os.environ.get("CI") == "true"
NOTHING_IS_MISSING: Final = (
    "root reads everything",
    "sanitizers keep what was freed",
    "set EXECWORLD_FULL",
    # What a kernel was booted with: scripts/lab-cgroup2 boots another.
    "version 2 of control groups hands down nothing here, not memory and pids",
)
"""Reasons that no machine could take away, or that were asked for."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What is missing for a test is a failure in CI: root, a compiler, namespaces, control groups."""
    report = yield
    if CI and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not reason.endswith(NOTHING_IS_MISSING):
            report.outcome = "failed"
            report.longrepr = f"CI must have what this needs: {reason}"
    return report


@pytest.fixture(scope="session", autouse=True)
def _build() -> None:
    if "EXECWORLD_WARDEN" in os.environ:
        return
    if not shutil.which("make") or not (shutil.which("musl-gcc") or shutil.which("gcc")):
        if not BINARY.exists():
            pytest.skip("there is neither a built warden nor a C compiler")
        return
    sources = str(ROOT / "src" / "warden")
    # One worker at a time: none may run what another one is writing.
    subprocess.run(["flock", sources, "make", "-s", "-C", sources, "all"], check=True)


@pytest.fixture(params=[0, 1], ids=["cgroup", "subreaper"])
def flags(request: pytest.FixtureRequest) -> int:
    """Both ways to end a tree. Where no cgroup can be made the first is the same as the second."""
    value: int = request.param
    return value


@pytest.fixture
def warden() -> Iterator[Warden]:
    with Warden() as warden:
        yield warden
        warden.close()


@pytest.fixture
def place() -> Iterator[Place]:
    """Outside of the directory of pytest, which other users cannot enter."""
    folder = Path(os.path.realpath(tempfile.mkdtemp(prefix="cells-")))
    try:
        yield Place(folder)
    finally:
        shutil.rmtree(folder)
