"""How a command ended is a fact from the kernel: never guessed from text, never confused with our own limits."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from execworld.machine import shell as shell_module
from execworld.seams import CommandStatus, World
from execworld.testing.splitting import SplittingMachine
from execworld.testing.worlds import open_local

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.anyio


async def test_c066_a_pipeline_has_the_status_that_the_shell_gives_it(world: World) -> None:
    """The seam adds nothing to it, and what the failing stage said is not lost. bash exposes every stage."""
    result = await world.shell.run("sh -c 'echo 2 failed; echo broken >&2; exit 1' | tail -1")
    assert (result.exit_code, result.stdout.data, result.stderr.data) == (0, b"2 failed\n", b"broken\n")
    if (world.shell.path or "").endswith("bash"):
        stages = await world.shell.run("(exit 3) | true | (exit 5); echo ${PIPESTATUS[@]}")
        assert stages.stdout.data == b"3 0 5\n"
        assert (await world.shell.run("set -o pipefail; false | true")).exit_code == 1


async def test_c068_a_harmless_stage_raises_no_alarm(world: World) -> None:
    await world.fs.write_text("file", "abc\n")
    result = await world.shell.run("grep zzz file | wc -l")
    assert (result.exit_code, result.stdout.text.strip(), result.ok) == (0, "0", True)


@pytest.mark.parametrize("code", [124, 125, 126, 127, 130, 137, 143, 255])
async def test_c072_codes_that_others_use_for_limits_are_plain_codes(world: World, code: int) -> None:
    result = await world.shell.run(f"exit {code}", timeout_s=30)
    assert (result.exit_code, result.signal, result.status) == (code, None, CommandStatus.EXITED)
    assert not result.timed_out


def test_c072_the_command_line_tells_its_limit_apart_in_words(command_line: CommandLine) -> None:
    """Both end with 124, as with timeout(1); only the limit says so."""
    own = command_line.run("run", "-w", "local", "-q", "--timeout", "30", "--", "sh", "-c", "exit 124")
    assert (own.returncode, own.stderr) == (124, b"")
    limit = command_line.run("run", "-w", "local", "-q", "--timeout", "1", "--", "sleep", "30")
    assert limit.returncode == 124
    assert b"time limit" in limit.stderr


async def test_c074_no_text_that_a_program_prints_ends_it(world: World) -> None:
    """Our own source and our whole environment, printed back, are output like any other."""
    source = inspect.getsource(shell_module).encode()
    await world.fs.write_bytes("source", source)
    result = await world.shell.run("cat source; env; echo; cat source; exit 9")
    assert result.exit_code == 9
    assert result.stdout.data.startswith(source)
    assert result.stdout.data.endswith(source)
    again = await world.shell.run("cat; exit 8", stdin=result.stdout.data)
    assert (again.stdout.data, again.exit_code) == (result.stdout.data, 8)


async def test_c076_byte_by_byte_the_status_is_the_same(tmp_path: Path) -> None:
    """Output that arrives in single bytes cuts nothing that is needed to know the code."""
    async with open_local(str(tmp_path), wrap=lambda machine: SplittingMachine(machine, sizes=(1,))) as world:
        result = await world.shell.run("(exit 127); code=$?; echo out; echo err >&2; exit $code")
    assert (result.exit_code, result.stdout.data, result.stderr.data) == (127, b"out\n", b"err\n")


async def test_c078_exit_ends_the_command_and_nothing_else(world: World) -> None:
    assert (await world.shell.run("exit 3")).exit_code == 3
    assert (await world.shell.run("exec false")).exit_code == 1
    killed = await world.shell.run("kill -KILL $$")
    assert (killed.exit_code, killed.signal) == (None, 9)
    assert (await world.shell.run("echo back")).stdout.data == b"back\n"


async def test_c080_prompt_hooks_do_not_touch_the_status(world: World) -> None:
    """A hook that prints and changes `$?`, in the environment and in the start-up files of the home directory."""
    hook = "echo HOOKED; false"
    await world.fs.write_text(".bashrc", f"PROMPT_COMMAND='{hook}'\ntrap '{hook}' DEBUG EXIT\n")
    env = {"HOME": world.facts.cwd}
    assert (await world.shell.run("true", env=env)).exit_code == 0
    result = await world.shell.run("false", env=env)
    assert (result.exit_code, result.stdout.data, result.stderr.data) == (1, b"", b"")
    ok = await world.shell.run("true")
    assert (ok.exit_code, ok.stdout.data) == (0, b"")


async def test_c080_a_hook_of_the_host_is_not_inherited(
    case_world: Callable[[], AbstractAsyncContextManager[World]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROMPT_COMMAND", "echo HOOKED; false")
    async with case_world() as world:
        result = await world.shell.run("echo ${PROMPT_COMMAND-unset}; true")
    assert (result.exit_code, result.stdout.data) == (0, b"unset\n")
