"""What the guides show is what happens: their documents, their commands and their programs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.contract.docker_worlds import engine_of_this_host

from execworld.config import read_layer
from execworld.config.floors import FloorFold

GUIDES: Final = Path(__file__).resolve().parents[3] / "docs" / "guide"
_BLOCK: Final = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Guide:
    """The blocks of one guide, and a directory in which its documents are."""

    def __init__(self, name: str, directory: Path) -> None:
        self.blocks = _BLOCK.findall((GUIDES / name).read_text(encoding="utf-8"))
        self.directory = directory
        for document in self.of("yaml"):
            file = document.split("\n", 1)[0].removeprefix("# ")
            if not file.startswith("/"):
                (directory / file).write_text(document)

    def of(self, kind: str) -> list[str]:
        return [text for found, text in self.blocks if found == kind]

    def run(self, command: list[str]) -> str:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "XDG_CONFIG_HOME": "/nowhere", "LC_ALL": "C"}
        environment.pop("EXECWORLD_WORLD", None)
        return subprocess.run(
            command,
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=100,
        ).stdout

    def check_console(self) -> None:
        """Each line that is shown occurs in the output, in that order. A guide may leave lines out."""
        for block in self.of("console"):
            for part in block.split("$ ")[1:]:
                command, *shown = part.rstrip("\n").split("\n")
                output = self.run(["sh", "-c", command]).splitlines()
                lines = iter(output)
                for line in shown:
                    assert any(each == line for each in lines), f"{command}: no {line!r} in {output}"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    found.mkdir()
    return found


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.landlock
def test_swap_the_world(directory: Path) -> None:
    engine_of_this_host()
    guide = Guide("swap-the-world.md", directory)
    guide.check_console()
    (program,), (output,) = guide.of("python"), guide.of("text")
    assert guide.run([sys.executable, "-c", program]) == output


@pytest.mark.slow
@pytest.mark.landlock
def test_enforce_a_sandbox(directory: Path) -> None:
    guide = Guide("enforce-a-sandbox.md", directory)
    guide.check_console()
    (system,) = [each for each in guide.of("yaml") if each.startswith("# /etc/execworld/floor.yml")]
    path = directory / "floor.yml"
    path.write_text(system)
    FloorFold().lay(read_layer("system", str(path)).root.entries["floor"])


@pytest.mark.slow
@pytest.mark.landlock
def test_the_policy_of_the_guide_runs_what_it_allows(directory: Path) -> None:
    """The twin of the refusals; where a kernel holds less than `strict` asks for, it says so instead."""
    guide = Guide("enforce-a-sandbox.md", directory)
    said = guide.run(["execworld", "run", "--patch", "production.yml", "--", "echo", "ran"])
    assert said.splitlines()[-1:] == ["ran"] or "[SANDBOX_UNAVAILABLE]" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["write-a-tool.md", "write-a-guard.md"])
def test_the_programs_about_tools_print_what_the_guides_say(name: str, directory: Path) -> None:
    guide = Guide(name, directory)
    (program,), (output,) = guide.of("python"), guide.of("text")
    assert output in guide.run([sys.executable, "-c", program])
