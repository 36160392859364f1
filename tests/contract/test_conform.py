"""The engine behind `execworld conform`, run against a provider that is not part of this distribution."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from execworld.seams import ConfigurationError
from execworld.testing.conform import ClauseOutcome, run_conformance

SAMPLE = Path(__file__).with_name("sample_provider")
CLAUSES = "W-1,W-13,F-27,F-45,P-29,T-22,S-2,SB-2,W-8*"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample distribution with the metadata that an installer would write, on the path of child processes."""
    project = tomllib.loads((SAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    site = tmp_path / "site"
    metadata = site / "execworld_sample-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8"
    )
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (metadata / "entry_points.txt").write_text("\n".join(groups), encoding="utf-8")
    (site / "execworld_sample").symlink_to(SAMPLE / "src" / "execworld_sample")
    monkeypatch.setenv("PYTHONPATH", str(site))


@pytest.mark.usefixtures("installed")
def test_a_provider_of_a_third_party_conforms(tmp_path: Path) -> None:
    """Every selected clause passes on both event loops, lost worlds included, and the JUnit file holds the tests."""
    junit = tmp_path / "junit.xml"
    report = run_conformance("sample", {}, select=CLAUSES, junit=junit)
    assert report.conforms, report.output
    assert set(report.clauses.values()) == {ClauseOutcome.PASSED}
    assert {"W-1", "W-80", "W-84", "T-22", "SB-2"} <= set(report.clauses)
    names = [case.get("name", "") for case in ElementTree.parse(junit).iter("testcase")]
    assert any("W80" in name and "trio" in name for name in names)
    assert any("W80" in name and "asyncio" in name for name in names)


@pytest.mark.usefixtures("installed")
def test_a_flaw_is_found_unless_it_is_declared(tmp_path: Path) -> None:
    """A broken clause fails, with the name of the test; declared with a reason it is a deviation, and a clause that
    passes although it is declared fails."""
    report = run_conformance("sample", {"ignore_resize": "true"}, select="T-22", backend="asyncio")
    assert not report.conforms
    assert report.clauses == {"T-22": ClauseOutcome.FAILED}
    assert ["test_T22" in test for test in report.failed_tests] == [True]

    declared = tmp_path / "deviations.toml"
    declared.write_text(
        '[sample]\n"T-22" = "this world has no sizes"\n"T-20" = "not true"\n', encoding="utf-8"
    )
    report = run_conformance(
        "sample", {"ignore_resize": "true"}, select="T-20,T-22", backend="asyncio", deviations=declared
    )
    assert report.clauses == {"T-20": ClauseOutcome.FAILED, "T-22": ClauseOutcome.DEVIATION}
    assert "this world has no sizes" in report.output


def test_a_suite_that_cannot_run_says_so() -> None:
    """A world that nobody provides, or a selection of nothing, is no success."""
    with pytest.raises(ConfigurationError):
        run_conformance("local", {}, select="X-1")
    report = run_conformance("no-such-world", {}, select="W-13", backend="asyncio")
    assert not report.conforms
    assert "no-such-world" in report.output


EXCUSES = """
import pytest
from execworld.seams.testing import ShellContract
from execworld.world import open_world

class TestSkips(ShellContract):
    world_kind = "local"

    @pytest.fixture(scope="class")
    def world_maker(self):
        {body}
"""


@pytest.mark.parametrize("body", ["pytest.skip('no time')", "pytest.xfail('it may fail')"])
def test_nobody_excuses_himself(tmp_path: Path, body: str) -> None:
    """A provider that skips a clause, or expects it to fail, without a declared deviation fails it."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    (tmp_path / "test_excuses.py").write_text(EXCUSES.format(body=body), encoding="utf-8")
    plugins = ["-p", "no:cacheprovider", "-p", "anyio.pytest_plugin", "-p", "execworld.testing.pytest_plugin"]
    finished = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            *plugins,
            "-c",
            "pytest.ini",
            "--clauses",
            "S-2",
            "test_excuses.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert finished.returncode == 1, finished.stdout
    assert "S-2 was skipped, and no deviation" in finished.stdout
