"""Compositions on the command line, and the floor of the machine: the real program in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import pytest

from execworld.config.system_floor import PATH
from execworld.world.machine_floor import DIRECTORY

from .conftest import PROGRAM, Run, clean_environment

LOCAL: Final = "world:\n  use: local\npolicy: {mode: full-access}\n"


@pytest.fixture
def patch(tmp_path: Path) -> str:
    path = tmp_path / "local.patch.yml"
    path.write_text(LOCAL)
    return str(path)


def test_run_shell_and_fs_take_a_patch(execworld: Run, patch: str, tmp_path: Path) -> None:
    ran = execworld("run", "--patch", patch, "--", "echo", "hi")
    assert (ran.returncode, ran.stdout) == (0, b"hi\n")
    assert b"world local: unconfined" in ran.stderr
    assert execworld("shell", "--patch", patch, stdin=b"exit 7\n").returncode == 7
    listed = execworld("fs", "ls", "--patch", patch, str(tmp_path))
    assert listed.stdout == b"local.patch.yml\n"


def test_exit_codes_are_those_of_a_world_by_its_name(execworld: Run, patch: str) -> None:
    assert execworld("run", "--patch", patch, "--", "sh", "-c", "exit 3").returncode == 3
    assert execworld("run", "--patch", patch, "--", "sh", "-c", "kill -9 $$").returncode == 137
    assert execworld("run", "--patch", patch, "--timeout", "0.2", "--", "sleep", "60").returncode == 124
    assert execworld("run", "--patch", patch, "--", "no-such-program").returncode == 127
    told = json.loads(execworld("run", "--patch", patch, "--json", "--", "true").stdout)
    assert told["exit_code"] == 0


def test_a_setting_is_laid_over_a_patch(execworld: Run, patch: str) -> None:
    ran = execworld(
        "run", "--patch", patch, "--set", "world.use=landlock", "--set", "policy.mode=read-only", "--", "true"
    )
    assert ran.returncode == 0, ran.stderr
    assert b"unconfined" not in ran.stderr


def test_a_profile_is_found(execworld: Run, tmp_path: Path) -> None:
    profiles = tmp_path / "execworld" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "bare.yml").write_text(LOCAL)
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    assert execworld("run", "--profile", "bare", "--", "true", env=env).returncode == 0
    missing = execworld("run", "--profile", "bear", "--", "true", env=env)
    assert missing.returncode == 125
    assert b"did you mean `bare`?" in missing.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-w", "local"], b"leave out -w"),
        (["--config", "image=x"], b"--set world.config.NAME=VALUE"),
        (["--mode", "read-only"], b"instead of --mode"),
    ],
)
def test_what_a_composition_would_ignore_is_refused(
    execworld: Run, patch: str, options: list[str], said: bytes
) -> None:
    ran = execworld("run", *options, "--patch", patch, "--", "true")
    assert ran.returncode == 125
    assert said in ran.stderr


@pytest.mark.parametrize("world", ["warden", "local"])
def test_what_takes_no_composition_says_so(execworld: Run, patch: str, world: str) -> None:
    measured = execworld("bench", "-w", world, "--patch", patch, "--row", "spawn")
    assert measured.returncode == 2
    assert b"no composition: use -w" in measured.stderr


def test_a_refused_composition_runs_nothing(execworld: Run, patch: str, tmp_path: Path) -> None:
    target = tmp_path / "ran"
    ran = execworld("run", "--patch", patch, "--set", "policy.mode=read-only", "--", "touch", str(target))
    assert ran.returncode == 125
    assert b"[SANDBOX_UNAVAILABLE]" in ran.stderr
    assert not target.exists()


def test_doctor_looks_at_the_world_of_a_composition(execworld: Run, patch: str) -> None:
    found = json.loads(execworld("doctor", "--patch", patch, "--json").stdout)
    assert [each["world"] for each in found] == ["local"]


def test_graph_tells_states_and_what_provides_what(execworld: Run, patch: str) -> None:
    shown = execworld("graph", "--patch", patch)
    assert shown.returncode == 0
    assert b"world: ACTIVE\n  provides world, fs, subprocess, shell, sandbox, wider_views\n" in shown.stdout
    refused = execworld("graph", "--patch", patch, "--set", "policy.mode=read-only")
    assert refused.returncode == 125
    assert b"[SANDBOX_UNAVAILABLE]" in refused.stderr
    assert b"world: FAILED" in refused.stdout


def test_graph_tells_why_a_row_waits(execworld: Run, patch: str, tmp_path: Path) -> None:
    """A plugin that a distribution registers is a row by its name."""
    site = tmp_path / "site"
    info = site / "needy-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: needy\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[execworld.plugins]\nneedy = needy_plugin:needy\n")
    (site / "needy_plugin.py").write_text(
        "from execworld.kernel import Context, Key, plugin\n"
        '@plugin(inject=(Key[str]("search"),))\n'
        "def needy(ctx: Context) -> None: ...\n"
    )
    env = {"PYTHONPATH": str(site)}
    shown = execworld("graph", "--patch", patch, "--set", "finder={use: needy}", env=env)
    assert shown.returncode == 1, shown.stderr
    assert b"finder: PENDING\n  waits for search: no plugin provides it\n" in shown.stdout
    ran = execworld("run", "--patch", patch, "--set", "finder={use: needy}", "--", "true", env=env)
    assert ran.returncode == 0
    assert b"row `finder` is PENDING: `search`: no plugin provides it" in ran.stderr


def test_both_sides_mean_the_same_file() -> None:
    assert os.path.dirname(PATH) == DIRECTORY


class Machine:
    """This machine with a floor: the program sees another /etc, in a mount namespace of its own."""

    def __init__(self, etc: Path) -> None:
        self.floor = etc / "execworld" / "floor.yml"
        self._etc = etc

    def __call__(
        self, *arguments: str, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        return self.run(*PROGRAM, *arguments, env=env)

    def run(self, *command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        script = 'mount --make-rprivate / && mount --bind "$0" /etc && exec "$@"'
        unshared = ["unshare", "--mount", "sh", "-c", script, str(self._etc), *command]
        return subprocess.run(
            unshared, env=clean_environment(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        pytest.skip("a floor of the machine belongs to root, and is put there in a mount namespace")
    etc = tmp_path / "etc"
    shutil.copytree("/etc", etc, symlinks=True, ignore_dangling_symlinks=True)
    etc.chmod(0o755)
    made = Machine(etc)
    made.floor.parent.mkdir(mode=0o755, exist_ok=True)
    return made


@pytest.mark.root
@pytest.mark.slow
def test_the_floor_of_the_machine_binds_a_world_that_is_opened_by_its_name(
    machine: Machine, tmp_path: Path, patch: str
) -> None:
    target = tmp_path / "ran"
    assert machine("run", "-w", "local", "--", "true").returncode == 0
    machine.floor.write_text("floor: {boundary: kernel-policy, mode: workspace-write}\n")
    for options in (["-w", "local"], ["--mode", "full-access"], ["--patch", patch]):
        refused = machine("run", *options, "--", "touch", str(target))
        assert refused.returncode == 125
        assert b"[FLOOR_VIOLATED]" in refused.stderr, refused.stderr
    listed = machine("fs", "ls", "-w", "local", "/")
    assert (listed.returncode, listed.stdout) == (125, b"")
    assert not target.exists()
    ran = machine("run", "-w", "landlock", "--", "true")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.root
@pytest.mark.slow
def test_the_floor_of_the_machine_is_not_about_our_own_side_of_a_copy(
    machine: Machine, tmp_path: Path
) -> None:
    machine.floor.write_text("floor: {boundary: kernel-policy}\n")
    here, there, back = (tmp_path / name for name in ("here", "there", "back"))
    here.write_text("x")
    options = ("--workspace", str(tmp_path))
    put = machine("fs", "put", *options, str(here), str(there))
    assert put.returncode == 0, put.stderr
    got = machine("fs", "get", *options, str(there), str(back))
    assert (got.returncode, back.read_text()) == (0, "x"), got.stderr


LIBRARY = """
import anyio, sys
from execworld.world import open_world
async def main():
    async with open_world(sys.argv[1]) as world:
        print((await world.shell.run("echo ran")).stdout.text, end="")
anyio.run(main)
"""
SCRIPT = """
import sys
from execworld.sync import open_world
with open_world(sys.argv[1]) as world:
    print(world.shell.run("echo ran").stdout.text, end="")
"""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("program", [LIBRARY, SCRIPT], ids=["async", "sync"])
def test_the_floor_of_the_machine_binds_programs(machine: Machine, program: str) -> None:
    """Also those that use the library, as `conform` and `bench` do."""
    allowed = machine.run(sys.executable, "-c", program, "local")
    assert allowed.stdout == b"ran\n", allowed.stderr
    machine.floor.write_text("floor: {boundary: kernel-policy}\n")
    refused = machine.run(sys.executable, "-c", program, "local")
    assert (refused.returncode, refused.stdout) == (1, b"")
    assert b"FloorViolated" in refused.stderr
    ran = machine.run(sys.executable, "-c", program, "landlock")
    assert ran.stdout == b"ran\n", ran.stderr


@pytest.mark.root
@pytest.mark.slow
def test_the_floor_of_the_machine_binds_measuring_and_conforming(machine: Machine) -> None:
    machine.floor.write_text("floor: {boundary: kernel-policy}\n")
    for command in (["bench", "-w", "local", "--row", "stat", "--scale", "0.01"], ["conform", "local"]):
        refused = machine(*command)
        assert refused.returncode != 0
        assert b"FLOOR_VIOLATED" in refused.stderr + refused.stdout, (command, refused)


BOASTER = """
from contextlib import asynccontextmanager
from dataclasses import dataclass
from execworld.machine.local.machine import LocalMachine
from execworld.machine.world import WorldSettings, open_machine_world
from execworld.seams import *

@dataclass(frozen=True, slots=True)
class Config:
    pass

@asynccontextmanager
async def open_boaster(request):
    settings = WorldSettings(WorldIdentity("boaster", "1"), request.policy, Enforcement(), Boundary.NONE)
    async with open_machine_world(LocalMachine(), settings) as world:
        yield world

async def probe():
    return Probe(True)

def claims(config, policy):
    return WorldClaims(Boundary.CONTAINER, images=(), hosts=())

provider = Provider("boaster", "claims a lot", Config, open_boaster, probe, claims=claims)
"""


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("named", [True, False], ids=["by its name", "by a composition"])
def test_what_a_provider_claims_is_not_believed(machine: Machine, tmp_path: Path, named: bool) -> None:
    info = tmp_path / "site" / "boaster-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: boaster\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[execworld.providers]\nboaster = boaster:provider\n")
    (info.parent / "boaster.py").write_text(BOASTER)
    options = ["-w", "boaster"] if named else ["--no-home", "--set", "world.use=boaster"]
    env = {"PYTHONPATH": str(info.parent)}
    allowed = machine("run", *options, "--", "echo", "ran", env=env)
    assert allowed.stdout == b"ran\n", allowed.stderr
    machine.floor.write_text("floor: {boundary: container}\n")
    refused = machine("run", *options, "--", "echo", "ran", env=env)
    assert (refused.returncode, refused.stdout) == (125, b"")
    assert b"world.boundary: container at least is wanted, and there is none" in refused.stderr


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("problem", ["typo", "writable", "misnamed", "link"])
def test_a_floor_that_cannot_be_read_or_trusted_lets_nothing_start(machine: Machine, problem: str) -> None:
    floor = machine.floor
    if problem == "typo":
        floor.write_text("floor: {walls: {}}\n")
    elif problem == "writable":
        floor.write_text("floor: {}\n")
        floor.chmod(0o666)
    elif problem == "misnamed":
        floor.with_suffix(".yaml").write_text("floor: {}\n")
    else:
        floor.symlink_to("/nowhere")
    refused = machine("run", "-w", "local", "--", "echo", "ran")
    assert (refused.returncode, refused.stdout) == (125, b"")
    assert b"[CONFIGURATION_INVALID]" in refused.stderr


@pytest.mark.root
@pytest.mark.slow
def test_a_guard_that_the_machine_demands_needs_a_composition(machine: Machine) -> None:
    machine.floor.write_text("floor: {guards: [hold_floor, audit]}\n")
    refused = machine("run", "-w", "local", "--", "true")
    assert refused.returncode == 125
    assert b"`audit` is wanted" in refused.stderr


def test_without_a_floor_and_a_composition_nothing_is_imported_for_them() -> None:
    program = (
        "import sys\nfrom execworld.cli.main import main\n"
        "try: main(['run', '-q', '-w', 'local', '--', 'true'])\n"
        "finally: print(*sorted(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    imported = set(done.stdout.decode().split())
    unwanted = {"execworld.kernel", "execworld.assembly", "execworld.policies", "execworld.config", "yaml"}
    if not os.path.lexists(DIRECTORY):
        assert imported.isdisjoint(unwanted)


# The user's own document, where nothing else is said


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """Where the user's own document goes."""
    document = tmp_path / "config" / "execworld" / "config.yml"
    document.parent.mkdir(parents=True)
    return document


def own_environment(own: Path, **further: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(own.parents[1])} | further


@pytest.mark.landlock
@pytest.mark.slow
def test_what_the_user_wrote_down_holds_for_a_plain_run(execworld: Run, own: Path, tmp_path: Path) -> None:
    """Nobody has to say again what is in config.yml."""
    own.write_text("policy: {mode: read-only}\n")
    target = tmp_path / "written"
    denied = execworld("run", "--", "touch", str(target), env=own_environment(own), cwd=tmp_path)
    assert denied.returncode == 1
    assert not target.exists()
    allowed = execworld(
        "run", "--no-home", "--", "touch", str(target), env=own_environment(own), cwd=tmp_path
    )
    assert (allowed.returncode, target.exists()) == (0, True), allowed.stderr


DOCUMENTS_ARE_KEPT = """
for each in my.patch.yml config/execworld/config.yml config/execworld/profiles/p.yml; do
    echo 'policy: {mode: full-access}' >$each && echo changed $each
done
mv config/execworld config/away && echo renamed
mv my.patch.yml away.yml && echo moved
echo free >config/other && cat config/other
"""


@pytest.mark.landlock
@pytest.mark.slow
def test_programs_cannot_write_down_what_holds_next_time(execworld: Run, own: Path, tmp_path: Path) -> None:
    """C231. Neither the user's documents nor a patch that was named, although all lie in the workspace."""
    own.write_text("policy: {mode: workspace-write}\n")
    (own.parent / "profiles").mkdir()
    (own.parent / "profiles" / "p.yml").write_text("")
    (tmp_path / "my.patch.yml").write_text("policy: {network: none}\n")
    for options in (
        ["--patch", "my.patch.yml"],
        ["--profile", "p", "--patch", str(tmp_path / "my.patch.yml")],
    ):
        ran = execworld(
            "run", *options, "--", "sh", "-c", DOCUMENTS_ARE_KEPT, env=own_environment(own), cwd=tmp_path
        )
        assert ran.stdout == b"free\n", ran.stderr
    assert own.read_text() == "policy: {mode: workspace-write}\n"


@pytest.mark.slow
def test_what_is_said_on_the_command_line_wins_and_is_told(execworld: Run, own: Path) -> None:
    own.write_text("world: {use: nowhere}\n")
    for options, variable, said in (
        (["-w", "local"], {}, b"-w"),
        ([], {"EXECWORLD_WORLD": "local"}, b"EXECWORLD_WORLD"),
    ):
        ran = execworld("run", *options, "--", "echo", "hi", env=own_environment(own, **variable))
        assert ran.stdout == b"hi\n", ran.stderr
        assert b"config.yml is not read, because " + said in ran.stderr
    quiet = execworld("run", "-q", "-w", "local", "--", "echo", "hi", env=own_environment(own))
    assert (quiet.stdout, quiet.stderr) == (b"hi\n", b"")


@pytest.mark.slow
def test_an_own_document_that_nobody_would_read_is_an_error(execworld: Run, own: Path) -> None:
    own.with_suffix(".yaml").write_text("policy: {mode: read-only}\n")
    refused = execworld("run", "--", "echo", "ran", env=own_environment(own))
    assert (refused.returncode, refused.stdout) == (125, b"")
    assert b"config.yaml" in refused.stderr


@pytest.mark.slow
def test_edits_are_followed_and_wrong_ones_told(own: Path) -> None:
    own.write_text("world: {use: local}\npolicy: {mode: full-access}\n")
    following = subprocess.Popen(
        [*PROGRAM, "graph", "--follow"],
        env=clean_environment(own_environment(own)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert following.stderr is not None
    try:
        while following.stdout.readline() != "world: ACTIVE\n":
            assert following.poll() is None
        own.write_text("world: {use: local}\npolicy: {mode: full-access}\nseen: {use: observe_files}\n")
        assert _line_with(following.stdout, "seen: ACTIVE")
        own.write_text("world: {use: local}\npolicyx: {}\n")
        assert _line_with(following.stderr, "policyx")
        assert following.poll() is None
        own.write_text("world: {use: local}\npolicy: {mode: full-access}\n")
        assert _line_with(following.stdout, "world: ACTIVE")
    finally:
        following.send_signal(signal.SIGINT)
        rest = following.communicate(timeout=20)
    assert following.returncode == 130, rest


def _line_with(stream: IO[str], text: str) -> str:
    for line in stream:
        if text in line:
            return line
    raise AssertionError(f"the stream ended without {text!r}")
