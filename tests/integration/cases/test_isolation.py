"""Reported cases about isolation: it is had whole, or it is refused and said why.

What happens where the kernel is too old or a filter denies its calls (C003, C005, C007) is held by `tests/escape`, a
canary that proves nothing (C017) by `tests/unit/confinement/test_report.py`.
"""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from execworld.seams import (
    ConfigurationError,
    Dimension,
    EnforcementState,
    SandboxDenied,
    SandboxMode,
    SandboxPolicy,
    World,
)
from execworld.world import open_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = [pytest.mark.anyio, pytest.mark.landlock]


@pytest.fixture
async def view(tmp_path: Path) -> AsyncGenerator[World]:
    root = tmp_path / "root"
    root.mkdir()
    policy = SandboxPolicy.workspace_write(str(root))
    async with open_world("landlock", cwd=str(root), policy=policy) as world:
        yield world


def test_c001_a_missing_helper_is_a_refusal(command_line: CommandLine) -> None:
    """Without the program that confines nothing runs, and the command line says what is missing."""
    result = command_line.run("run", "--", "touch", "made", env={"EXECWORLD_WARDEN": "/nowhere/warden"})
    assert result.returncode == 125
    assert b"/nowhere/warden" in result.stderr
    assert not (command_line.cwd / "made").exists()


@pytest.mark.parametrize(
    "outside", ["{root}/outside.txt", "{root}/root/../outside.txt", "{temp}/outside-of-a-view.txt"]
)
async def test_c009_files_commands_shells_and_terminals_decide_alike(
    view: World, tmp_path: Path, outside: str
) -> None:
    path = outside.format(root=tmp_path, temp=tempfile.gettempdir())
    script = 'printf x >"$1"'
    assert not (await view.subprocess.run(["sh", "-c", script, "sh", path])).ok
    assert not (await view.shell.run(f"printf x >'{path}'")).ok
    async with view.subprocess.open_terminal(["sh", "-c", script, "sh", path]) as terminal:
        assert (await terminal.wait()).exit_code != 0
    with pytest.raises(SandboxDenied):
        await view.fs.write_text(path, "x")
    assert not await anyio.Path(path).exists()


@pytest.mark.parametrize("root", [None, "", "relative"])
def test_c015_a_root_is_required(root: str | None) -> None:
    """Confinement without a root falls back to no directory of ours."""
    with pytest.raises(ConfigurationError, match=r"workspace|absolute"):
        SandboxPolicy(SandboxMode.WORKSPACE_WRITE, root)


@pytest.mark.parametrize("option", ["--workspace", "--write", "--read", "--hide"])
def test_c015_an_empty_path_on_the_command_line_is_refused(command_line: CommandLine, option: str) -> None:
    """What a script left empty must not come to mean the current directory."""
    result = command_line.run("run", option, "", "--", "touch", "made")
    assert result.returncode == 125
    assert option.encode() in result.stderr
    assert not (command_line.cwd / "made").exists()


async def test_c019_a_commit_in_a_linked_worktree_needs_the_repository(tmp_path: Path) -> None:
    """The worktree alone cannot be committed in, because the repository lies outside; named as a write root it can."""
    main, linked = tmp_path / "main", tmp_path / "linked"
    setup = (
        "git init -q main && cd main && git -c user.name=n -c user.email=e commit -q --allow-empty -m first && "
        "git worktree add -q ../linked"
    )
    async with open_world("local", cwd=str(tmp_path)) as world:
        await world.subprocess.run(["sh", "-c", setup], check=True)
    commit = [
        "git",
        "-c",
        "user.name=n",
        "-c",
        "user.email=e",
        "commit",
        "-q",
        "--allow-empty",
        "-m",
        "second",
    ]
    async with open_world(
        "landlock", cwd=str(linked), policy=SandboxPolicy.workspace_write(str(linked))
    ) as world:
        assert not (await world.subprocess.run(commit)).ok
    policy = SandboxPolicy.workspace_write(str(linked), write_roots=[str(main)])
    async with open_world("landlock", cwd=str(linked), policy=policy) as world:
        await world.subprocess.run(commit, check=True)


async def test_c233_connecting_to_a_socket_is_denied_or_said_to_be_open(view: World, tmp_path: Path) -> None:
    """A server outside of the root is not reached, unless the report says that such sockets are not covered."""
    program = "import socket,sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "server"))
        server.listen()
        reached = (await view.subprocess.run([sys.executable, "-c", program, str(tmp_path / "server")])).ok
    assert reached is (view.enforcement.state(Dimension.IPC_UNIX) is not EnforcementState.ENFORCED)
    assert not reached
