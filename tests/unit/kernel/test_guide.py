"""The program in the guide runs, and prints what the guide says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "write-a-plugin.md"


@pytest.mark.slow
def test_the_program_prints_what_the_guide_says() -> None:
    program, output = re.findall(
        r"```(?:python|text)\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == (output, "")
