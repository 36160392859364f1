"""`execworld doctor` says whether worlds in containers can be opened here, and why not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from .engines import Engine

DOCTOR = [sys.executable, "-m", "execworld.cli", "doctor"]


def section(output: str) -> list[str]:
    """What is said of docker."""
    lines = output.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith("docker:"))
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith(" ")), len(lines))
    return lines[start:end]


@pytest.mark.docker
@pytest.mark.slow
def test_an_engine_is_found(engine: Engine) -> None:
    found = subprocess.run(DOCTOR, capture_output=True, text=True, check=True, timeout=60)
    assert section(found.stdout)[0].startswith("docker: available")


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="hiding /run needs root and unshare"
)
def test_what_is_lacking_has_a_reason_and_a_hint() -> None:
    """Where no engine runs; with a mount that covers its socket this is such a place."""
    script = 'mount -t tmpfs none /run && exec "$@"'
    hidden = ["unshare", "--mount", "sh", "-c", script, "sh", *DOCTOR]
    found = subprocess.run(hidden, capture_output=True, text=True, timeout=60)
    first, *rest = section(found.stdout)
    assert first.startswith("docker: not available")
    assert [line for line in rest if "reason:" in line and "there is no such socket" in line]
    assert [line for line in rest if "hint:" in line]
