"""What was asked for and cannot be had is refused, in words; what contradicts is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from execworld.seams import (
    CommandInvalid,
    ConfigurationError,
    FileError,
    InvalidPath,
    PolicyRefused,
    SandboxPolicy,
    SandboxUnavailable,
    World,
)
from execworld.world import open_world, resolve_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.anyio


def test_c011_an_empty_variable_is_no_choice(command_line: CommandLine) -> None:
    """Set to nothing it counts as unset, with and without an option beside it; it never means the weaker world."""
    unset = command_line.run("run", "--", "true", env={"EXECWORLD_WORLD": ""})
    assert b"unconfined" not in unset.stderr
    option = command_line.run("run", "-w", "local", "--", "true", env={"EXECWORLD_WORLD": ""})
    assert (option.returncode, b"is used, not" in option.stderr) == (0, False)


def test_c011_contradicting_choices_are_named(command_line: CommandLine) -> None:
    """The option wins over the variable, visibly, and the world that runs is the one that was named."""
    result = command_line.run("run", "-w", "local", "--", "true", env={"EXECWORLD_WORLD": "docker"})
    assert result.returncode == 0
    assert b"-w local is used, not EXECWORLD_WORLD=docker" in result.stderr
    other = command_line.run("run", "-w", "nowhere", "--", "true", env={"EXECWORLD_WORLD": "local"})
    assert other.returncode == 125
    assert b"PROVIDER_UNKNOWN" in other.stderr


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_c013_a_policy_is_kept_or_refused(mode: str, tmp_path: object) -> None:
    """A world that cannot enforce what is asked refuses to open, names what is missing, and runs nothing."""
    policy = (
        SandboxPolicy.read_only() if mode == "read-only" else SandboxPolicy.workspace_write(str(tmp_path))
    )
    with pytest.raises(SandboxUnavailable) as caught:
        async with open_world("local", policy=policy):
            pytest.fail("it opened")
    assert "fs.write" in caught.value.missing
    assert caught.value.hint


async def test_c013_a_view_of_an_open_world_is_refused_too() -> None:
    async with open_world("local") as world:
        with pytest.raises(SandboxUnavailable):
            await world.sandbox.confine(SandboxPolicy.read_only())


def test_c223_a_misspelt_option_starts_nothing() -> None:
    """An option that the world does not know is an error that names it."""
    for name in ("imgae", "Policy", "denyWrit", "CWD"):
        with pytest.raises(ConfigurationError, match=name):
            resolve_world("local", {name: "x"})


def test_c223_on_the_command_line_too(command_line: CommandLine) -> None:
    result = command_line.run("run", "-w", "local", "--config", "imgae=x", "--", "echo", "ran")
    assert result.returncode == 125
    assert b"imgae" in result.stderr
    assert result.stdout == b""
    world = command_line.run("run", "-w", "llocal", "--", "echo", "ran")
    assert world.returncode == 125
    assert b"local" in world.stderr, "the nearest name is told"
    assert world.stdout == b""


async def test_c235_a_nul_is_refused_everywhere_and_breaks_nothing(world: World) -> None:
    """In a command, an argument, a directory, a path: a coded error before anything runs, and the next call works."""
    await world.fs.write_text("a", "content\n")
    with pytest.raises(CommandInvalid, match="NUL"):
        await world.shell.run("cat 'a\0b'")
    with pytest.raises(CommandInvalid, match="NUL"):
        await world.subprocess.run(["cat", "a\0b"])
    with pytest.raises(CommandInvalid, match="NUL"):
        await world.subprocess.run(["cat", "a"], cwd="a\0b")
    with pytest.raises(CommandInvalid):
        await world.subprocess.run(["cat\0"])
    for call in (world.fs.read_text("a\0b"), world.fs.stat("a\0b"), world.fs.write_text("a\0b", "")):
        with pytest.raises(InvalidPath) as caught:
            await call
        assert isinstance(caught.value, FileError)
        assert not isinstance(caught.value, PolicyRefused)
    assert (await world.shell.run("cat a")).stdout.data == b"content\n"
    assert [entry.name for entry in await world.fs.list_directory(".")] == ["a"]
