"""``execworld clean``: what a killed program left behind, and nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Eventually, Run, Sleeper, Start

HIERARCHIES = [path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if path.is_dir()]

BROKEN = """
from dataclasses import dataclass
from execworld.seams import Leftover, LeftoverState, Provider

@dataclass(frozen=True)
class Config: pass

async def clean(*, dry_run):
    if dry_run:
        raise RuntimeError("its disk is on fire")
    return [Leftover("thing", "bad\\nname", LeftoverState.FAILED, "it would not go")]

provider = Provider("broken", "for a test", Config, None, None, clean=clean)
"""


def leftovers(output: bytes, directory: Path) -> dict[str, str]:
    """Names and states of what was found in *directory*."""
    document: list[dict[str, Any]] = json.loads(output)
    return {
        item["name"]: item["state"]
        for sweep in document
        for item in sweep["leftovers"]
        if Path(item["name"]).parent == directory
    }


def install_broken(directory: Path) -> dict[str, str]:
    information = directory / "broken_world-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-world\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(
        "[execworld.providers]\nbroken = provider_broken:provider\n"
    )
    (directory / "provider_broken.py").write_text(BROKEN)
    return {"PYTHONPATH": str(directory)}


@pytest.mark.landlock
@pytest.mark.skipif(sys.platform != "linux", reason="needs a Linux kernel")
def test_what_a_killed_program_left(
    execworld: Run, start: Start, sleeper: Sleeper, eventually: Eventually, tmp_path: Path
) -> None:
    """It is kept while the program lives, and goes once that was killed; a second time there is nothing to do."""
    environment = {"TMPDIR": str(tmp_path)}
    program = start("run", "--workspace", str(tmp_path), "--", "sleep", sleeper.seconds, env=environment)
    eventually(sleeper.alive, "the command does not run")
    made = [str(path) for path in tmp_path.glob("execworld-world-*")]
    assert made

    finished = execworld("clean", "--json", env=environment)
    assert finished.returncode == 0
    assert leftovers(finished.stdout, tmp_path) == dict.fromkeys(made, "kept")

    program.send_signal(signal.SIGKILL)
    program.wait()
    eventually(lambda: not sleeper.alive(), "the command outlived its program")

    def said() -> dict[str, str]:
        return leftovers(execworld("clean", "--dry-run", "--json", env=environment).stdout, tmp_path)

    eventually(lambda: said() == dict.fromkeys(made, "removable"), "it is not seen that the program is gone")
    assert all(Path(path).is_dir() for path in made)
    finished = execworld("clean", env=environment)
    assert finished.returncode == 0
    for path in made:
        assert f"local: removed directory {path}: its world is gone\n".encode() in finished.stdout
    assert list(tmp_path.glob("execworld-*")) == []
    assert leftovers(execworld("clean", "--json", env=environment).stdout, tmp_path) == {}


def test_what_spilled_of_a_killed_local_program(
    execworld: Run, start: Start, eventually: Eventually, tmp_path: Path
) -> None:
    script = (
        "import anyio\n"
        "from execworld.seams import OutputLimits\n"
        "from execworld.world import open_world\n"
        "async def main():\n"
        "    async with open_world('local') as world:\n"
        "        await world.shell.run('seq 1000', limits=OutputLimits(8, 8, spill_bytes=100000))\n"
        "        print('there', flush=True)\n"
        "        await anyio.sleep_forever()\n"
        "anyio.run(main)\n"
    )
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"there\n"
        (made,) = tmp_path.glob("execworld-spill-*")
        found = leftovers(execworld("clean", "--json", env={"TMPDIR": str(tmp_path)}).stdout, tmp_path)
        assert found == {str(made): "kept"}
        program.kill()
    found = leftovers(execworld("clean", "--json", env={"TMPDIR": str(tmp_path)}).stdout, tmp_path)
    assert found == {str(made): "removed"}
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def group() -> Generator[Path]:
    """A control group with one in it as a warden would have made it. Wardens of other tests do not come by here."""
    for hierarchy in HIERARCHIES:
        outer = hierarchy / f"execworld-test-{secrets.token_hex(8)}"
        inner = outer / f"execworld-{os.getpid()}-1-4026531836"
        try:
            (inner / "c0").mkdir(parents=True)
        except OSError:
            continue
        yield inner
        for directory in (inner / "c0", inner, outer):
            if directory.is_dir():
                directory.rmdir()
        return
    (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("no control group can be made here")


def clean_within(group: Path, *options: str, found_in: Path | None = None) -> dict[str, str]:
    """What a program in the control group *group* finds there, or in another."""
    program = [sys.executable, "-m", "execworld.cli", "clean", "--json", *options]
    enter = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(group / "cgroup.procs"), *program]
    done = subprocess.run(enter, check=True, capture_output=True, timeout=60)
    return leftovers(done.stdout, found_in or group)


def test_a_control_group_goes_when_nobody_holds_it(group: Path) -> None:
    descriptor = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    assert clean_within(group.parent) == {str(group): "kept"}
    assert group.is_dir()
    os.close(descriptor)
    assert clean_within(group.parent, "--dry-run") == {str(group): "removable"}
    assert group.is_dir()
    assert clean_within(group.parent) == {str(group): "removed"}
    assert not group.exists()


def test_a_control_group_beside_the_own_one_goes(group: Path) -> None:
    """There is where the limits of a view are held in version 2."""
    own = group.parent / "own"
    own.mkdir()
    try:
        assert clean_within(own, found_in=group.parent) == {str(group): "removed"}
    finally:
        own.rmdir()
    assert not group.exists()


def test_a_control_group_in_which_something_runs_is_kept(group: Path) -> None:
    enter = ["sh", "-c", 'echo $$ >"$0" && echo in && exec cat', str(group / "c0" / "cgroup.procs")]
    with subprocess.Popen(enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"in\n"
        assert clean_within(group.parent) == {str(group): "kept"}
        program.kill()
    assert clean_within(group.parent) == {str(group): "removed"}


def test_what_fails_is_told_by_the_exit_code_and_does_not_hide_the_rest(
    execworld: Run, tmp_path: Path
) -> None:
    environment = install_broken(tmp_path)
    temporary = tmp_path / "temporary"
    left = temporary / "execworld-spill-0123456789abcdef"
    left.mkdir(parents=True)
    environment["TMPDIR"] = str(temporary)
    dry = execworld("clean", "--dry-run", env=environment)
    assert dry.returncode == 1
    assert b"its disk is on fire" in dry.stderr
    assert f"local: would remove directory {left}".encode() in dry.stdout
    finished = execworld("clean", env=environment)
    assert finished.returncode == 1
    assert b"broken: cannot remove thing bad\\nname: it would not go\n" in finished.stdout
    assert f"local: removed directory {left}".encode() in finished.stdout
