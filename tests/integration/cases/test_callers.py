"""The caller goes away, interrupts, or calls from where nobody expects it."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from execworld import sync
from execworld.seams import OutputStream, World, WorldClosed
from execworld.world import open_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine


def wait_for(condition: Callable[[], bool], complaint: str, within_s: float = 20) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_s} s: {complaint}"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return text[text.rfind(b")") + 2 :].split()[0] not in (b"Z", b"X")


def started_command(command_line: CommandLine, script: str) -> tuple[subprocess.Popen[bytes], int]:
    """The program, running *script*, and the pid of a command in it that is proven to run."""
    process = command_line.start("run", "-w", "local", "-q", "--", "sh", "-c", f"echo $$ > pid; {script}")
    path = command_line.cwd / "pid"
    wait_for(lambda: path.exists() and path.read_text().endswith("\n"), "the command starts")
    pid = int(path.read_text())
    assert alive(pid)
    return process, pid


def test_c243_a_reader_that_goes_away_ends_the_command(command_line: CommandLine) -> None:
    """Nobody reads what the command says any more: it is ended, cleaned up, and the program leaves."""
    process, pid = started_command(command_line, "while :; do echo line; sleep 0.05; done")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait(timeout=20) == 128 + signal.SIGPIPE
    process.stderr.close()
    assert not alive(pid)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_c243_a_signal_to_the_program_ends_the_command(
    command_line: CommandLine, number: signal.Signals
) -> None:
    process, pid = started_command(command_line, "sleep 300")
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert b"Traceback" not in stderr
    assert not alive(pid)


@pytest.mark.parametrize("times", [2, 3])
def test_c251_impatience_does_not_cut_the_cleanup_short(command_line: CommandLine, times: int) -> None:
    """The command ignores TERM, so that cleaning up takes its time; further interrupts meanwhile change nothing."""
    process, pid = started_command(command_line, "trap '' TERM INT; while :; do sleep 0.1; done")
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)  # the pause is what is tested: a person who presses the key again
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in stderr
    assert not alive(pid)


@pytest.mark.anyio
async def test_c249_the_blocking_calls_work_inside_a_running_loop() -> None:
    """In a notebook a loop runs already. The call works, although it stops that loop meanwhile."""
    with sync.open_world("local") as world:
        assert world.shell.run("echo hi").stdout.data == b"hi\n"


def test_c249_an_error_of_the_callers_own_code_arrives_unchanged() -> None:
    """A RuntimeError of a callback is that very error, and neither wrapped nor taken for a missing loop."""
    mine = RuntimeError("no running event loop")

    def refuse(stream: OutputStream, data: bytes) -> None:
        raise mine

    with sync.open_world("local") as world:
        with pytest.raises(RuntimeError) as caught:
            world.shell.run("echo hi; sleep 30", on_output=refuse)
        assert caught.value is mine
        assert world.shell.run("echo still").stdout.data == b"still\n"


def test_c249_any_thread_may_call() -> None:
    outputs: list[bytes] = []
    with sync.open_world("local") as world:

        def call(number: int) -> None:
            outputs.append(world.shell.run(f"echo {number}").stdout.data)

        threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=30)
    assert sorted(outputs) == [b"%d\n" % number for number in range(8)]


def test_c249_a_world_of_another_loop_is_closed_and_says_so() -> None:
    """Kept beyond its loop, an async world refuses at once instead of hanging."""
    kept: list[World] = []

    async def open_and_keep() -> None:
        async with open_world("local") as world:
            kept.append(world)

    async def use() -> None:
        with anyio.fail_after(10), pytest.raises(WorldClosed):
            await kept[0].shell.run("echo hi")

    anyio.run(open_and_keep)
    anyio.run(use)


def test_c249_after_closing_the_blocking_world_says_so() -> None:
    with sync.open_world("local") as world:
        pass
    with pytest.raises(WorldClosed):
        world.shell.run("echo hi")
