"""Time limits, background jobs and what they leave behind, looked for inside the world."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import anyio
import pytest

from execworld.seams import CommandResult, CommandStatus, World
from execworld.seams.testing.probes import assert_gone, eventually, output_of, pid_from, sh

pytestmark = pytest.mark.anyio

full_run = pytest.mark.skipif(
    os.environ.get("EXECWORLD_FULL") != "1", reason="takes more than a minute; set EXECWORLD_FULL=1 to run it"
)


async def test_c021_a_background_job_does_not_hold_the_call(world: World) -> None:
    """The shell ended, so the call ends, and the result says that something goes on."""
    before = anyio.current_time()
    result = await world.shell.run("sleep 60 & echo $! > pid; echo done", timeout_s=10)
    assert anyio.current_time() - before < 2
    assert (result.stdout.data, result.exit_code, result.timed_out) == (b"done\n", 0, False)
    assert result.background
    await pid_from(world, "pid")


@pytest.mark.parametrize(
    "redirect", ["</dev/null >/dev/null", "</dev/null 2>/dev/null", "</dev/null", ">/dev/null 2>&1"]
)
async def test_c023_one_held_descriptor_is_enough_to_hang_nobody(world: World, redirect: str) -> None:
    """A job that holds stdout alone, stderr alone, both or none of them: the call returns at once."""
    before = anyio.current_time()
    result = await world.shell.run(f"sleep 60 {redirect} & echo ok", timeout_s=20)
    assert anyio.current_time() - before < 2
    assert (result.stdout.data, result.exit_code) == (b"ok\n", 0)
    assert result.background


async def test_c025_a_time_limit_ends_what_the_shell_started(world: World) -> None:
    script = "sh -c 'echo $$ > pid; exec sleep 600'; echo not reached"
    before = anyio.current_time()
    result = await world.shell.run(script, timeout_s=1, grace_s=1)
    assert 1 <= anyio.current_time() - before < 5
    assert result.status is CommandStatus.TIMED_OUT
    assert result.tree is not None
    assert result.tree.gone
    await assert_gone(world, int(await world.fs.read_text("pid")), "the program of the shell")


ESCAPES = {
    "own-session": "setsid sh -c 'echo $$ > pid; exec sleep 300' & sleep 300",
    "double-fork": "( setsid sh -c '( sh -c \"echo \\$\\$ > pid; exec sleep 300\" ) & ' & ) ; sleep 300; true",
    "daemon": "( setsid sh -c 'echo $$ > pid; exec sleep 300' </dev/null >/dev/null 2>&1 & ); sleep 300; true",
    "ignores-term": "sh -c 'trap \"\" TERM HUP INT; echo $$ > pid; while :; do sleep 0.1; done' & sleep 300; true",
}


@pytest.mark.parametrize("escape", ESCAPES)
async def test_c027_who_left_the_group_ends_with_the_limit(world: World, escape: str) -> None:
    """The process is first proven to live, from inside, by a watcher that the limit does not touch."""
    alive: list[int] = []

    async def watch() -> None:
        alive.append(await pid_from(world, "pid"))

    result: CommandResult | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        result = await world.shell.run(ESCAPES[escape], timeout_s=1, grace_s=0.5)
    assert result is not None
    assert result.timed_out
    assert result.tree is not None
    assert result.tree.gone or alive[0] in result.tree.survivors
    if result.tree.gone:
        await assert_gone(world, alive[0], escape)


async def test_c031_a_limit_is_neither_ignored_nor_capped(world: World) -> None:
    """A command shorter than its limit is left alone; one that is longer is stopped at the limit, not at another."""
    before = anyio.current_time()
    assert (await world.shell.run("sleep 1.5; echo alive", timeout_s=120)).stdout.data == b"alive\n"
    assert 1.5 <= anyio.current_time() - before < 6
    before = anyio.current_time()
    result = await world.shell.run("sleep 20", timeout_s=2)
    assert 2 <= anyio.current_time() - before < 6
    assert result.timed_out
    assert result.timeout_s == 2


@full_run
@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the time is the same on the other one
@pytest.mark.parametrize(("seconds", "limit_s"), [(75, 120), (90, 180)], ids=["c031", "c082"])
async def test_c031_c082_more_than_a_minute_is_possible(world: World, seconds: int, limit_s: int) -> None:
    """No layer has a limit of 60 s of its own."""
    with anyio.fail_after(110):
        result = await world.shell.run(f"sleep {seconds}; echo done", timeout_s=limit_s)
    assert (result.stdout.data, result.exit_code) == (b"done\n", 0)
    assert result.duration_s >= seconds


async def test_c082_a_quiet_command_gives_its_own_exit_code(world: World) -> None:
    """A command that says nothing for a while is waited for; `still running` is no result."""
    result = await world.shell.run("sleep 2; echo done; exit 5", timeout_s=60)
    assert (result.stdout.data, result.exit_code, result.background) == (b"done\n", 5, False)


async def test_c035_start_up_files_cost_no_time(world: World, tmp_path: Path) -> None:
    """The limit of a command counts the command. A start-up file that takes 3 s is not part of it."""
    slow = "sleep 3\n"
    for name in (".bashrc", ".profile", ".bash_profile", ".env"):
        await world.fs.write_text(name, slow)
    home = world.facts.cwd
    env = {"HOME": home, "BASH_ENV": f"{home}/.env", "ENV": f"{home}/.env"}
    before = anyio.current_time()
    control = await sh(world, "sh -i -c : </dev/null", env=env)
    assert anyio.current_time() - before >= 3, f"the start-up file does not delay a shell: {control}"
    before = anyio.current_time()
    result = await world.shell.run("echo hi", timeout_s=2, env={"HOME": home})
    assert (result.stdout.data, result.exit_code) == (b"hi\n", 0)
    assert anyio.current_time() - before < 2


async def test_c239_cancelled_calls_leave_nothing(world: World) -> None:
    """A hundred cancelled calls, then a look at who is left in the world."""
    cancelled = 0

    async def run(number: int) -> None:
        nonlocal cancelled
        with anyio.move_on_after(0.2) as scope:
            await sh(world, 'echo $$ > "pid-$1"; exec sleep 300', str(number))
        cancelled += scope.cancelled_caught

    for start in range(0, 100, 20):
        async with anyio.create_task_group() as tasks:
            for number in range(start, start + 20):
                tasks.start_soon(run, number)
    assert cancelled == 100
    pids = (await output_of(world, "cat pid-*")).split()
    assert len(pids) > 50, "the commands were cancelled before they ran, so this proves little"
    alive = await output_of(world, 'for p; do kill -0 "$p" 2>/dev/null && echo "$p"; done; true', *pids)
    for pid in alive.split():  # a zombie still answers
        await assert_gone(world, int(pid), "a cancelled command")


async def test_c241_starting_and_ending_at_once_is_harmless(world: World) -> None:
    """Two hundred processes that are ended right after their start: no error, no zombie of ours."""
    pids: list[int] = []
    for _ in range(200):
        async with world.subprocess.start(["sleep", "10"], grace_s=1) as process:
            report = await process.terminate()
            assert report.gone
            pids.append(process.pid)
        result = await process.wait()
        assert result.signal is not None

    async def all_gone() -> bool:
        left = await output_of(world, 'for p; do [ -e "/proc/$p" ] && echo "$p"; done; true', *map(str, pids))
        return left == ""

    await eventually(all_gone, "no entry in the process table is left")


async def test_c247_a_command_that_kills_by_pattern_does_not_hit_us(world: World) -> None:
    """The text of the command is on no other argument list than that of its own shell."""
    token = f"zz_{secrets.token_hex(4)}"
    pattern = f"{token[:-1]}[{token[-1]}]"  # does not match itself
    looked = await world.shell.run(f"cat /proc/[0-9]*/cmdline | tr '\\0' '\\n' | grep -c {pattern}")
    assert looked.stdout.data == b"0\n", "the pattern of this test is somewhere already"
    # The members of the pipeline bear the text until they execute their programs: that session is the shell's.
    script = f"ps -eo sid=,args= | awk -v own=$$ '$1 != own' | grep -c {pattern}; : {token}"
    others = await world.shell.run(script)
    assert others.stdout.text.strip() == "0"
    result = await world.shell.run(f"pkill -f {token}; echo after")
    if result.signal is None:
        assert result.stdout.data == b"after\n"
    else:
        assert (
            result.status is CommandStatus.SIGNALLED
        )  # the shell's own text matched; that is told, not hidden
    assert (await world.shell.run("echo alive")).stdout.data == b"alive\n"
