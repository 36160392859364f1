"""Programs cannot change what the host itself runs, although it lies in the workspace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]

ROOT = Path(__file__).resolve().parents[2]
HOST = """
import errno, json, sys
from dataclasses import replace

import anyio

from tests.escape.hardship import answer
from execworld.seams import Dimension, SandboxPolicy, SandboxUnavailable
from execworld.world import open_world

order = json.load(sys.stdin)
if not order["namespaces"]:
    answer({"unshare": errno.EPERM})

async def main():
    said = {}
    policy = replace(
        SandboxPolicy.workspace_write(order["workspace"]),
        require_dimensions={Dimension(name): value for name, value in order["require"].items()},
    )
    try:
        async with open_world(order["world"], policy=policy if order["world"] == "landlock" else None) as world:
            said["fs.write"] = world.enforcement.as_dict().get("fs.write")
            for name, command in order["commands"].items():
                result = await world.shell.run(command, cwd=order["directories"].get(name, order["workspace"]))
                said[name] = [result.exit_code, result.stdout.text + result.stderr.text]
            try:
                await world.fs.write_text(order["kept"] + "/new", "x")
            except OSError as error:
                said["fs"] = str(error)
    except SandboxUnavailable as error:
        said["refused"] = str(error)
    json.dump(said, sys.stdout)

anyio.run(main)
"""

ATTACKS = {
    "script": "echo x >.venv/bin/execworld",
    "settings": "echo x >>.venv/pyvenv.cfg",
    "start-up file": "cd .venv/lib/*/site-packages && echo 'import os' >evil.pth",
    "remove": "rm .venv/pyvenv.cfg",
    "rename": "mv .venv .gone",
    "exchange": "mkdir new && mv .venv .gone && mv -T new .venv",
    "mode": "chmod 0 .venv/bin",
    "link": "ln .venv/pyvenv.cfg linked && echo x >>linked",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A project with the environment in it from which execworld is called."""
    workspace = tmp_path / "project"
    make_environment(workspace / ".venv")
    return workspace


def make_environment(place: Path) -> None:
    """What `python -m venv` makes, as far as an interpreter looks at it."""
    python = Path(os.path.realpath(sys.executable))
    site = place / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    site.mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "bin" / "python").symlink_to(python)
    (place / "pyvenv.cfg").write_text(f"home = {python.parent}\n")
    (site / "installed.pth").write_text("\n".join((str(ROOT), *filter(os.path.isdir, sys.path))))


def host(
    workspace: Path,
    named: Path | None = None,
    *,
    world: str = "landlock",
    prefix: str = ".venv",
    **order: Any,
) -> dict[str, Any]:
    """What a host whose interpreter is that of the environment at *prefix* has to say.

    Args:
        named: The name that the policy has for the workspace.
    """
    place = named or workspace
    done = subprocess.run(
        [workspace / prefix / "bin" / "python", "-c", HOST],
        input=json.dumps(
            {
                "workspace": str(place),
                "world": world,
                "namespaces": True,
                "require": {},
                "directories": {},
                "kept": str(place / ".venv"),
                "commands": ATTACKS,
                **order,
            }
        ),
        capture_output=True,
        text=True,
        cwd="/",
        env=environment(workspace.parent),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def snapshot(place: Path) -> dict[str, object]:
    return {
        str(path): (path.lstat().st_mode, path.lstat().st_mtime_ns)
        for path in (sorted((place, *place.rglob("*"))) if place.exists() else ())
        if "__pycache__" not in path.parts
    }


def test_the_environment_that_runs_the_host_stays_as_it_is(workspace: Path) -> None:
    before = snapshot(workspace / ".venv")
    said = host(workspace)
    assert said["fs.write"]["state"] == "enforced", said
    assert {name for name in ATTACKS if said[name][0] == 0} == set(), said
    assert "belongs to the installation of execworld" in said["fs"]
    assert snapshot(workspace / ".venv") == before


def test_without_confinement_it_can_be_changed(workspace: Path, tmp_path: Path) -> None:
    """Else the attacks would prove nothing."""
    directories = {name: tmp_path / "targets" / name for name in ATTACKS}
    for directory in directories.values():
        make_environment(directory / ".venv")
    before = {name: snapshot(directory / ".venv") for name, directory in directories.items()}
    said = host(workspace, world="local", directories={name: str(path) for name, path in directories.items()})
    assert {name for name in ATTACKS if said[name][0] != 0} == set(), said
    assert {name for name, path in directories.items() if snapshot(path / ".venv") == before[name]} == set()


def test_everything_else_in_the_workspace_can_be_written(workspace: Path) -> None:
    make_environment(workspace / "other")
    commands = {
        "file": "echo x >file && mv file moved && rm moved",
        "directory": "mkdir -p a/b && mv a/b c && rm -r a c",
        "other environment": "cd other/lib/*/site-packages && echo x >x.pth && mv x.pth ../../../bin",
        "end of it": "rm -r other",
    }
    said = host(workspace, commands=commands)
    assert {name: said[name] for name in commands} == {name: [0, ""] for name in commands}


def test_directories_on_the_way_to_it_keep_their_names(tmp_path: Path) -> None:
    workspace = tmp_path / "project"
    make_environment(workspace / "tools" / "own" / ".venv")
    commands = {
        "rename the first": "mv tools .gone",
        "rename the second": "mv tools/own tools/gone",
        "write beside it": "echo x >tools/x && echo x >tools/own/x && mv tools/x tools/own/y",
    }
    said = host(
        workspace,
        prefix="tools/own/.venv",
        kept=str(workspace / "tools/own/.venv"),
        commands=commands,
    )
    assert [said[name][0] == 0 for name in commands] == [False, False, True], said


def test_of_an_environment_that_is_the_workspace_what_is_run_is_kept(tmp_path: Path) -> None:
    workspace = tmp_path / "project"
    make_environment(workspace)
    commands = {
        "settings": "echo x >>pyvenv.cfg",
        "other settings": "mv pyvenv.cfg gone",
        "programs": "echo x >bin/x",
        "modules": "echo x >lib/x && echo x >$(echo lib/*/site-packages)/x",
        "rename": "mv lib gone",
        "rest": "mkdir src && echo x >src/x && echo x >lib/y",
    }
    said = host(workspace, prefix=".", kept=str(workspace / "bin"), commands=commands)
    assert [said[name][0] == 0 for name in commands] == [False] * 5 + [True], said


def test_a_link_to_it_cannot_be_kept_and_is_refused(workspace: Path, tmp_path: Path) -> None:
    (workspace / ".venv").rename(tmp_path / "elsewhere")
    (workspace / ".venv").symlink_to(tmp_path / "elsewhere")
    said = host(workspace)
    assert f"can be rewritten: {workspace / '.venv'}" in said["refused"]


@pytest.mark.parametrize("namespaces", [True, False])
def test_another_mount_of_it_is_no_way_in(workspace: Path, tmp_path: Path, *, namespaces: bool) -> None:
    """The policy names a place at which the same directory is mounted once more."""
    if os.getuid() != 0:
        pytest.skip("mounting takes root")
    there = tmp_path / "there"
    there.mkdir()
    subprocess.run(["mount", "--bind", workspace, there], check=True)
    try:
        said = host(workspace, there, namespaces=namespaces)
    finally:
        subprocess.run(["umount", "--lazy", there], check=True)
    if namespaces:
        assert {name for name in ATTACKS if said[name][0] == 0} == set(), said
    else:
        assert f"can be rewritten: {there / '.venv'}" in said["refused"]


def test_where_mounts_cannot_be_had_the_view_is_refused_and_may_be_accepted_by_name(workspace: Path) -> None:
    said = host(workspace, namespaces=False)
    assert f"can be rewritten: {workspace / '.venv'}" in said["refused"]
    said = host(
        workspace,
        namespaces=False,
        require={"fs.write": False},
        commands={"script": ATTACKS["script"], "outside": "echo x >../outside"},
    )
    assert (said["fs.write"]["state"], said["script"][0]) == ("partial", 0)
    assert said["outside"][0] != 0
