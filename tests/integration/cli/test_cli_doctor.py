"""``execworld doctor`` and ``execworld conform``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.integration.cli.conftest import OpenSession, Run

BROKEN = """
from dataclasses import dataclass
from execworld.seams import Provider

@dataclass(frozen=True)
class Config: pass

async def probe():
    raise RuntimeError("the probe is broken")

def open_world(request):
    raise NotImplementedError

provider = Provider("broken", "for a test", Config, open_world, probe)
"""


def install(directory: Path, name: str, source: str) -> None:
    information = directory / f"{name}_world-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}-world\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        f"[execworld.providers]\n{name} = provider_{name}:provider\n"
    )
    (directory / f"provider_{name}.py").write_text(source)


def test_worlds_are_listed_with_what_they_enforce(execworld: Run) -> None:
    finished = execworld("doctor")
    assert finished.returncode == 0
    assert b"local: available" in finished.stdout
    assert b"kill.tree: partial" in finished.stdout


def test_a_broken_or_missing_provider_does_not_hide_the_others(execworld: Run, tmp_path: Path) -> None:
    install(tmp_path, "broken", BROKEN)
    install(tmp_path, "missing", "import absent_sdk")
    finished = execworld("doctor", "--json", env={"PYTHONPATH": str(tmp_path)})
    found = {finding["world"]: finding for finding in json.loads(finished.stdout)}
    assert found["local"]["available"]
    assert found["local"]["boundary"] == "none"
    assert found["local"]["enforceable"]["kill.tree"]["state"] == "partial"
    assert not found["broken"]["available"]
    assert "the probe is broken" in found["broken"]["reason"]
    assert "absent_sdk" in found["missing"]["reason"]
    assert finished.returncode == 0


def test_the_table_is_for_a_person(session: OpenSession, execworld: Run) -> None:
    terminal = session("doctor", columns=120)
    assert terminal.wait() == 0
    assert "│".encode() in terminal.output
    assert b"\x1b[" in terminal.output
    assert b"\x1b" not in execworld("doctor").stdout


def test_conformance_of_one_clause(execworld: Run, tmp_path: Path) -> None:
    finished = execworld(
        "conform", "local", "--json", "-k", "F-1", "--junit", str(tmp_path / "r.xml"), timeout=100
    )
    report = json.loads(finished.stdout)
    assert report["world"] == "local"
    assert set(report["clauses"]) == {"F-1"}
    assert finished.returncode == (0 if report["conforms"] else 1)
    assert (tmp_path / "r.xml").exists()


def test_an_unknown_clause_is_an_error(execworld: Run) -> None:
    assert execworld("conform", "local", "-k", "ZZ-1", timeout=100).returncode == 125
