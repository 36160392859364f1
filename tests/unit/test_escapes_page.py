"""The page of escapes is what the suite tries."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "escapes-page"


def test_the_page_is_fresh() -> None:
    """A changed row changes the page in the same commit."""
    finished = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert finished.returncode == 0, finished.stderr
