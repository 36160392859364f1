"""The fuzz target: nothing is found in the warden, everything is reached, and a mistake put in on purpose is found."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from . import corpus
from .driver import BINARY, ROOT

FULL = "EXECWORLD_FULL" in os.environ
SECONDS = int(os.environ.get("EXECWORLD_FUZZ_S", 120 if FULL else 4))
SEEDED_SECONDS = 600  # ends when it is found; on a busy machine there are ten sessions a second
SEED = os.environ.get("EXECWORLD_FUZZ_SEED", "1")
SOURCES = ROOT / "src" / "warden"


def built(name: str) -> Path:
    if not shutil.which("make") or not shutil.which("gcc"):
        pytest.skip("make and gcc are needed for a build with sanitizers")
    # One worker at a time: none may run what another one is writing.
    subprocess.run(["flock", str(SOURCES), "make", "-s", "-C", str(SOURCES), f"build/{name}"], check=True)
    return SOURCES / "build" / name


def fuzz(binary: Path, folder: Path, seconds: int, seed: str) -> subprocess.CompletedProcess[str]:
    corpus.write(folder / "corpus")
    result = subprocess.run(
        [
            str(binary),
            str(folder / "corpus"),
            str(seconds),
            seed,
            str(BINARY),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds + 90,
        check=False,
    )
    if result.returncode == 2 and "no namespaces" in result.stderr:
        pytest.skip("user and pid namespaces are needed to run hostile sessions in safety")
    return result


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 200)
def test_hostile_sessions_find_nothing_and_reach_every_opcode(tmp_path: Path) -> None:
    result = fuzz(built("fuzz"), tmp_path, SECONDS, SEED)
    assert result.returncode == 0, result.stderr[-8000:]


@pytest.mark.slow
@pytest.mark.timeout(SEEDED_SECONDS + 200)
@pytest.mark.skipif(not FULL, reason="takes some thousand sessions, which is minutes: set EXECWORLD_FULL")
def test_a_seeded_mistake_is_found(tmp_path: Path) -> None:
    """A length that is three too long is taken for right: heap bytes behind a message are read."""
    result = fuzz(built("fuzz-seeded"), tmp_path, SEEDED_SECONDS, "1")
    assert result.returncode == 1, result.stderr[-8000:]
    assert (tmp_path / "find.bin").stat().st_size > 0
