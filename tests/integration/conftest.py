"""The command line as a user starts it, for the integration tests that are about it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"
HERE: Final = Path(__file__).parent
_ON_BOTH_LOOPS: Final = "landlock"


def pytest_report_header() -> str:
    return "tools: every world on asyncio, landlock on trio too" + (
        "; and the others" if FULL else "; EXECWORLD_FULL=1 runs the others on it as well"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tools know seams alone, and what differs there between event loops the contract tries in every world."""
    left_out = [item for item in items if not FULL and _is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def _is_left_out(item: pytest.Item) -> bool:
    if item.path.parent not in (HERE / "tools", HERE / "terminals"):
        return False
    chosen: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    return chosen.get("anyio_backend") == "trio" and _ON_BOTH_LOOPS not in chosen.values()


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
