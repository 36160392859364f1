"""What was measured, for people and for programs."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict
from typing import Final

from execworld.testing.bench.measuring import Measured

CAVEATS: Final = """\
Read this first:
* Only the ratios mean something, and only those of one run: all sides of a row were measured in turn, round by round,
  in one process. Absolute values change with the machine, its load and its file system.
* The plain ways promise less: they end no tree, bound no output, guard no version, keep no mode, and stop at nothing
  half-done. A ratio above 1 is the price of that.
* Medians hide the rare slow call. On a busy machine repeat the run before believing a difference below a fifth.
"""


def host_facts() -> dict[str, object]:
    return {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def as_document(world: str, measured: Measured) -> dict[str, object]:
    found = [{**asdict(row), "ratios": row.ratios} for row in measured.rows]
    return {
        "world": world,
        "caveats": CAVEATS,
        "host": host_facts(),
        "rows": found,
        "left_out": dict(measured.left_out),
    }


def as_table(world: str, measured: Measured) -> str:
    lines = [f"{'operation':46}{'ours':>15}{'plain':>11}{'ratio':>8}  plain way"]
    for row in measured.rows:
        head = f"{row.title:46}{row.ours:>10.3f} {row.unit:4}"
        for name, value in row.peers.items():
            ratio = f"{row.ratios[name]:>8.2f}" if name in row.ratios else f"{'-':>8}"
            lines.append(f"{head}{value:>11.3f}{ratio}  {name}")
            head = " " * len(head)
    lines += [f"{name} is left out: {reason}" for name, reason in measured.left_out.items()]
    facts = ", ".join(f"{name} {value}" for name, value in {"world": world, **host_facts()}.items())
    return "\n".join(lines) + f"\n\n{facts}\n"
