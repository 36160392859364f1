"""Run the contract suites against any installed provider and tell the outcome clause by clause."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from execworld.seams import ConfigurationError
from execworld.testing.contract_items import world_kind

_SUITES: Final = Path(__file__).with_name("conformance.py")
_NOTHING_COLLECTED: Final = 5  # exit status of pytest


class ClauseOutcome(StrEnum):
    """What became of a clause over all its cases and both event loops; the worst one counts."""

    PASSED = "passed"
    DEVIATION = "deviation"
    FAILED = "failed"


_RANK: Final = (ClauseOutcome.PASSED, ClauseOutcome.DEVIATION, ClauseOutcome.FAILED)


@dataclass(frozen=True, slots=True)
class ConformReport:
    """Outcome of one run.

    Attributes:
        world: Name of the world as it was given.
        clauses: Outcome by clause id, ordered by id.
        failed_tests: Names of the tests that failed, for running them again.
        junit: Where the JUnit file is; None when none was asked for.
        output: What pytest printed.
    """

    world: str
    clauses: Mapping[str, ClauseOutcome]
    failed_tests: tuple[str, ...]
    junit: Path | None
    output: str

    @property
    def conforms(self) -> bool:
        """At least one clause ran, and each passed or deviates as declared."""
        return bool(self.clauses) and ClauseOutcome.FAILED not in self.clauses.values()

    def count(self, outcome: ClauseOutcome) -> int:
        return sum(1 for value in self.clauses.values() if value is outcome)


def run_conformance(
    world: str,
    config: Mapping[str, str],
    *,
    junit: Path | None = None,
    deviations: Path | None = None,
    select: str | None = None,
    cwd: str | None = None,
    mode: str = "full-access",
    backend: str | None = None,
) -> ConformReport:
    """Run the suites in a process of their own, with an empty temporary directory as root.

    Args:
        world: Name or URL of the world.
        config: Options of its provider, as text.
        junit: Where to write a JUnit file.
        deviations: Declared deviations beside those that execworld knows, in the same form.
        select: Clause ids or patterns, separated by commas, for example ``F-*,P-22``.
        cwd: Working directory in the world that may be written to; the provider's default otherwise.
        mode: ``full-access`` or ``workspace-write``.
        backend: ``asyncio`` or ``trio``; both otherwise.

    Raises:
        ConfigurationError: pytest is not installed, or could not run the suites at all.
    """
    with tempfile.TemporaryDirectory(prefix="execworld-conform-") as directory:
        root = Path(directory)
        (root / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        (root / "work").mkdir()
        report = root / "report.json"
        command = [sys.executable, "-m", "pytest", "-q", "--import-mode=importlib"]
        for plugin in ("no:cacheprovider", "anyio.pytest_plugin", "execworld.testing.pytest_plugin"):
            command += ["-p", plugin]
        command += ["-c", str(root / "pytest.ini"), f"--rootdir={root}"]
        command += ["--world", world, "--world-mode", mode, "--contract-report", str(report)]
        # Options may hold credentials, and everybody can read an argument list.
        options = root / "options.json"
        options.touch(mode=0o600)
        options.write_text(json.dumps(dict(config)), encoding="utf-8")
        command += ["--world-config-file", str(options)]
        if cwd is not None:
            command.append(f"--world-cwd={cwd}")
        if junit is not None:
            command.append(f"--junit-xml={junit.absolute()}")
        if deviations is not None:
            command.append(f"--deviations={deviations.absolute()}")
        if select is not None:
            command.append(f"--clauses={select}")
        if backend is not None:
            command += ["-k", backend]
        command.append(str(_SUITES))
        finished = subprocess.run(
            command,
            cwd=root / "work",
            # No other plugin of the environment may change what the suites do.
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        output = finished.stdout.decode("utf-8", "replace")
        if finished.returncode == _NOTHING_COLLECTED and select:
            raise ConfigurationError(
                f"no clause matches {select!r}", hint="clauses are named like F-31; `W-*` matches a family"
            )
        if not report.exists() or finished.returncode not in (0, 1):
            last = output.strip().splitlines()[-15:]
            raise ConfigurationError(
                "the contract suites could not be run:\n" + "\n".join(last),
                hint="install execworld[testing]",
            )
        rows = json.loads(report.read_text(encoding="utf-8"))
    return _summarise(world, rows, junit, output)


def _summarise(world: str, rows: list[dict[str, str]], junit: Path | None, output: str) -> ConformReport:
    outcomes: dict[str, ClauseOutcome] = {}
    failed: list[str] = []
    for row in rows:
        outcome = ClauseOutcome(row["outcome"])
        known = outcomes.get(row["clause"], ClauseOutcome.PASSED)
        outcomes[row["clause"]] = max(known, outcome, key=_RANK.index)
        if outcome is ClauseOutcome.FAILED:
            failed.append(row["test"].rpartition("::")[2])

    def order(clause: str) -> tuple[str, int]:
        letters, _, number = clause.partition("-")
        return letters, int(number)

    ordered = {clause: outcomes[clause] for clause in sorted(outcomes, key=order)}
    return ConformReport(world, ordered, tuple(failed), junit, output)


__all__ = ["ClauseOutcome", "ConformReport", "run_conformance", "world_kind"]
