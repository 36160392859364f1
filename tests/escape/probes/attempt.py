"""The program in the world: reads names and targets from its input, tries each in a child of its own, reports JSON.

Run by path, without site packages, from whatever directory: python -S -E -s attempt.py
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    importlib.import_module("probes.running").main()
