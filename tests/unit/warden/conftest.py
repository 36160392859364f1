"""Builds the warden once, and looks for processes that outlived what they should not."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from .cells import Place
from .driver import BINARY, ROOT, Warden


@pytest.fixture(scope="session", autouse=True)
def _build() -> None:
    if "EXECWORLD_WARDEN" in os.environ:
        return
    if not shutil.which("make") or not (shutil.which("musl-gcc") or shutil.which("gcc")):
        if not BINARY.exists():
            pytest.skip("there is neither a built warden nor a C compiler")
        return
    subprocess.run(["make", "-s", "-C", str(ROOT / "src" / "warden"), "all"], check=True)


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
