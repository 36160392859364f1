"""The worlds in which every reported case runs, and the command line.

A case is written against the seams alone, so a further world is one more line in `WORLDS`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from execworld.seams import World
from execworld.world import open_world

OpenCase: TypeAlias = "Callable[[Path], AbstractAsyncContextManager[World]]"

WORLDS: Final[dict[str, OpenCase]] = {
    "local": lambda directory: open_world("local", cwd=str(directory)),
}


@pytest.fixture(params=WORLDS)
def case_world(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[World]]:
    """Opens a world whose working directory is empty and may be written to."""
    open_case = WORLDS[str(request.param)]
    directory = tmp_path / "world"
    directory.mkdir()
    return lambda: open_case(directory)


@pytest.fixture
async def world(case_world: Callable[[], AbstractAsyncContextManager[World]]) -> AsyncGenerator[World]:
    async with case_world() as world:
        yield world


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The program as a user starts it."""

    cwd: Path

    def start(
        self,
        *arguments: str | bytes,
        stdin: int = subprocess.DEVNULL,
        env: dict[str, str] | None = None,
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "execworld.cli", *arguments],
            cwd=self.cwd,
            env={**os.environ, **(env or {})},
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(
        self, *arguments: str | bytes, env: dict[str, str] | None = None, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[bytes]:
        process = self.start(*arguments, env=env)
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        assert b"Traceback" not in stderr, stderr.decode()
        return subprocess.CompletedProcess([], process.returncode, stdout, stderr)


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)
