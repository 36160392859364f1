"""The contract, kept over a warden that is built with the sanitizers for addresses and undefined behaviour.

What they find ends the process that did it, so that its world is lost; and whatever they say, also in the supervisors
that nobody waits for, is in a file that is looked at in the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from execworld.seams import World
from execworld.seams.testing import (
    FileSystemContract,
    ShellContract,
    SubprocessContract,
    TerminalContract,
    WorldContract,
    WorldMaker,
)
from execworld.testing.warden_worlds import open_warden_world

SOURCES = Path(__file__).resolve().parents[2] / "src" / "warden"
FOUND = ("ERROR: AddressSanitizer", "runtime error")


def missing(reason: str) -> None:
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)


@pytest.fixture(scope="module")
def sanitized() -> Path:
    if not shutil.which("make") or not shutil.which("gcc"):
        missing("make and gcc are needed for a build with sanitizers")
    # One worker at a time: none may run what another one is writing.
    subprocess.run(
        ["flock", str(SOURCES), "make", "-s", "-C", str(SOURCES), "build/warden-sanitize"], check=True
    )
    return SOURCES / "build" / "warden-sanitize"


@pytest.fixture(scope="class")
def findings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails when a sanitizer found anything in any process."""
    logs = tmp_path_factory.mktemp("sanitizers")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("ASAN_OPTIONS", f"log_path={logs}/address")
        patched.setenv("UBSAN_OPTIONS", f"log_path={logs}/undefined:print_stacktrace=1")
        yield
    for log in logs.iterdir():
        text = log.read_text(errors="replace")
        assert not any(mark in text for mark in FOUND), text


class SanitizedWorld:
    """Maker for worlds over that warden."""

    world_kind = "warden"

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(
        cls, sanitized: Path, findings: None, tmp_path_factory: pytest.TempPathFactory
    ) -> WorldMaker:
        directory = tmp_path_factory.mktemp("world")

        def make() -> AbstractAsyncContextManager[World]:
            return open_warden_world(str(directory), binary=sanitized)

        return make


class TestSanitizedWorld(SanitizedWorld, WorldContract):
    pass


class TestSanitizedFileSystem(SanitizedWorld, FileSystemContract):
    pass


class TestSanitizedSubprocess(SanitizedWorld, SubprocessContract):
    pass


class TestSanitizedTerminal(SanitizedWorld, TerminalContract):
    pass


class TestSanitizedShell(SanitizedWorld, ShellContract):
    pass
