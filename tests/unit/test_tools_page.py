"""The page of tools is what the tools say."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "tools-page"


@pytest.mark.slow
def test_the_page_is_fresh() -> None:
    """A changed tool changes the page in the same commit."""
    finished = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
