"""The page of what enforces a policy is what the tables say."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "confinement-page"


@pytest.mark.slow
def test_the_page_is_fresh() -> None:
    """A changed table changes the page in the same commit."""
    finished = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
