"""What commands inherit: no secret, no pointer to one, no hook, no noise, and odd values exactly."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import anyio
import pytest

from execworld.seams import CommandInvalid, CommandNotFound, World
from execworld.seams.testing.probes import receive_to_end
from execworld.world import open_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.anyio

OpenWorld = Callable[[], AbstractAsyncContextManager[World]]

SECRETS = {
    "FAKE_API_KEY": "zz-secret-1",
    "AWS_SECRET_ACCESS_KEY": "zz-secret-2",
    "GITHUB_TOKEN": "zz-secret-3",
    "DATABASE_URL": "postgres://u:zz-secret-4@db.example.test/x",
}
POINTERS = {
    "SSH_AUTH_SOCK": "/nowhere/zz-secret-agent",
    "GIT_ASKPASS": "/nowhere/zz-secret-askpass",
    "KUBECONFIG": "/nowhere/zz-secret-kube",
    "DOCKER_HOST": "unix:///nowhere/zz-secret-docker",
}


async def everywhere(world: World) -> bytes:
    """The environment as a shell command, a plain process and a terminal see it."""
    found = (await world.shell.run("env -0; cat /proc/self/environ")).stdout.data
    found += (await world.subprocess.run(["env", "-0"])).stdout.data
    async with world.subprocess.open_terminal(["env", "-0"]) as terminal:
        with anyio.fail_after(10):
            found += await receive_to_end(terminal)
    assert found.count(b"PATH=") >= 3
    return found


@pytest.mark.parametrize("variables", [SECRETS, POINTERS], ids=["c085", "c087"])
async def test_c085_c087_neither_secrets_nor_pointers_to_them_are_inherited(
    case_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    async with case_world() as world:
        found = await everywhere(world)
    assert b"zz-secret" not in found
    for name in variables:
        assert name.encode() + b"=" not in found


async def test_c085_what_is_named_passes_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    async with open_world("local", environment=["FAKE_API_KEY"]) as world:
        found = await everywhere(world)
    assert found.count(b"zz-secret-1") >= 3
    assert b"zz-secret-2" not in found


def test_c085_the_command_line_keeps_them_too(command_line: CommandLine) -> None:
    result = command_line.run("run", "-w", "local", "-q", "--", "env", "-0", env={**SECRETS, **POINTERS})
    assert b"zz-secret" not in result.stdout
    passed = command_line.run("run", "-w", "local", "-q", "-e", "GITHUB_TOKEN", "--", "env", env=SECRETS)
    assert b"GITHUB_TOKEN=zz-secret-3\n" in passed.stdout
    assert passed.stdout.count(b"zz-secret") == 1


async def test_c089_no_hook_of_a_loader_or_an_interpreter_passes(
    case_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with case_world() as world:
        await world.fs.write_text("hook.sh", "echo HOOKED; touch hooked\n")
        hook = f"{world.facts.cwd}/hook.sh"
    hooks = {
        "LD_PRELOAD": "/nowhere/libnothing.so",
        "LD_LIBRARY_PATH": "/nowhere",
        "NODE_OPTIONS": "--require /nowhere/x.js",
        "PYTHONSTARTUP": hook,
        "PYTHONPATH": "/nowhere",
        "BASH_ENV": hook,
        "ENV": hook,
    }
    for name, value in hooks.items():
        monkeypatch.setenv(name, value)
    async with case_world() as world:
        control = await world.subprocess.run(["bash", "-c", "true"], env={"BASH_ENV": hook})
        assert control.stdout.data == b"HOOKED\n", (
            "the hook of this test does not work, so its absence proves nothing"
        )
        await world.fs.remove("hooked")
        found = await everywhere(world)
        for name in hooks:
            assert name.encode() + b"=" not in found
        assert b"HOOKED" not in found
        assert await world.fs.stat("hooked") is None
        assert (await world.shell.run("true", env={"BASH_ENV": None})).stderr.data == b""


async def test_c091_start_up_files_print_into_nothing(world: World) -> None:
    """Whatever rc and profile of the user print, output and file operations are exact."""
    noise = "echo WELCOME; echo WELCOME >&2\n"
    for name in (".bashrc", ".profile", ".bash_profile", ".bash_login", ".zshrc", ".zshenv", ".kshrc"):
        await world.fs.write_text(name, noise)
    env = {"HOME": world.facts.cwd}
    control = await world.subprocess.run(["bash", "-ic", "true"], env=env)
    assert b"WELCOME" in control.stdout.data, (
        "the start-up file of this test is not read even by an interactive shell"
    )
    result = await world.shell.run("echo hi", env=env)
    assert (result.stdout.data, result.stderr.data) == (b"hi\n", b"")
    assert await world.fs.read_text(".profile") == noise


async def test_c093_a_path_set_in_a_start_up_file_is_not_known(world: World) -> None:
    """A tool that only an interactive shell would find is not found, and the error says where was looked."""
    await world.fs.write_text("home/.local/bin/mytool", "#!/bin/sh\necho mine\n", mode=0o755)
    await world.fs.write_text("home/.bashrc", 'PATH="$HOME/.local/bin:$PATH"\n')
    env = {"HOME": f"{world.facts.cwd}/home"}
    assert (await world.shell.run("command -v mytool", env=env)).exit_code != 0
    with pytest.raises(CommandNotFound) as caught:
        await world.subprocess.run(["mytool"], env=env)
    assert "PATH is " in caught.value.hint
    search = f"{env['HOME']}/.local/bin:{world.facts.search_path}"
    found = await world.subprocess.run(["mytool"], env={**env, "PATH": search})
    assert found.stdout.data == b"mine\n"


async def test_c095_odd_values_arrive_exactly(world: World) -> None:
    env = {"A": "x\ny", "B": "é", "C": "", "Q": "'\"$(false)`"}
    result = await world.subprocess.run(["env", "-0"], env=env)
    given = dict(item.split(b"=", 1) for item in result.stdout.data.split(b"\0") if item)
    assert {name: given[name.encode()] for name in env} == {
        name: value.encode() for name, value in env.items()
    }
    assert (
        await world.shell.run('printf "%s|" "$A" "$B" "${C-unset}"', env=env)
    ).stdout.data == "x\ny|é||".encode()
    for run in (
        world.subprocess.run(["true"], env={"D": "a\0b"}),
        world.shell.run("true", env={"D": "a\0b"}),
    ):
        with pytest.raises(CommandInvalid, match=r"\bD\b"):
            await run
