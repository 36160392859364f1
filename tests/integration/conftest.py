"""The command line as a user starts it, for the integration tests that are about it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest


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
        """The finished program. It never shows a traceback, whatever it was given."""
        process = self.start(*arguments, env=env)
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        assert b"Traceback" not in stderr, stderr.decode()
        assert b"[INTERNAL]" not in stderr, stderr.decode()
        return subprocess.CompletedProcess([], process.returncode, stdout, stderr)


@pytest.fixture
def command_line(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)
