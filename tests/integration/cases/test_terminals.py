"""Terminals: the size is right from the start, the last words arrive, nothing leaks and nothing hangs."""

from __future__ import annotations

import os

import anyio
import pytest

from execworld.seams import World
from execworld.seams.testing.probes import assert_gone, is_alive, receive_to_end, receive_until

pytestmark = pytest.mark.anyio

FULL = os.environ.get("EXECWORLD_FULL") == "1"


async def test_c141_a_terminal_has_a_size(world: World) -> None:
    async with world.subprocess.open_terminal(["stty", "size"]) as terminal:
        assert await receive_to_end(terminal) == b"24 80\r\n"
    async with world.subprocess.open_terminal(["stty", "size"], rows=40, columns=132) as terminal:
        assert await receive_to_end(terminal) == b"40 132\r\n"


async def test_c143_the_size_is_right_before_the_program_looks(world: World) -> None:
    """Given at opening or set right after it, the first look shows it, every time."""
    for number in range(50):
        size = (20 + number, 100 + number)
        async with world.subprocess.open_terminal(
            ["stty", "size"], rows=size[0], columns=size[1]
        ) as terminal:
            assert await receive_to_end(terminal) == b"%d %d\r\n" % size
    for number in range(10):
        async with world.subprocess.open_terminal(["sh", "-c", "read x; stty size"]) as terminal:
            await terminal.resize(30 + number, 90)
            await terminal.send("\r")
            output = await receive_to_end(terminal)
            assert output.endswith(b"%d 90\r\n" % (30 + number))


async def test_c145_an_unanswered_question_to_the_terminal_ends_with_its_own_limit(world: World) -> None:
    """There is no emulation at this level, which is documented: the query arrives, nobody answers, nothing hangs."""
    script = "stty raw -echo min 0 time 10; printf '\\033[6n'; dd bs=32 count=1 2>/dev/null | wc -c"
    async with world.subprocess.open_terminal(["sh", "-c", script]) as terminal:
        with anyio.fail_after(10):
            output = await receive_to_end(terminal)
    assert output.startswith(b"\x1b[6n")
    assert output == b"\x1b[6n0\n"


async def test_c145_an_answer_of_the_caller_reaches_the_program(world: World) -> None:
    script = "stty raw -echo min 1 time 50; printf '\\033[6n'; dd bs=32 count=1 2>/dev/null | od -An -c"
    async with world.subprocess.open_terminal(["sh", "-c", script]) as terminal:
        await receive_until(terminal, b"\x1b[6n")
        await terminal.send("\x1b[5;7R")
        with anyio.fail_after(10):
            assert (await receive_to_end(terminal)).split() == [b"033", b"[", b"5", b";", b"7", b"R"]


async def test_c147_the_last_words_arrive_every_time(world: World) -> None:
    expected = b"".join(b"%d\r\n" % n for n in range(1, 20001)) + b"LAST\r\n"
    for _ in range(50 if FULL else 10):
        async with world.subprocess.open_terminal(["sh", "-c", "seq 1 20000; echo LAST"]) as terminal:
            with anyio.fail_after(10):
                assert await receive_to_end(terminal) == expected


@pytest.mark.parametrize("deaf", [False, True], ids=["plain", "ignores-hangup"])
async def test_c149_a_job_that_keeps_the_terminal_holds_nobody(world: World, deaf: bool) -> None:
    """The end is reported at once. The job died of the hang-up, or is reported, and ends with the terminal."""
    before = anyio.current_time()
    script = ("trap '' HUP; " if deaf else "") + "sleep 100 & echo $! > pid; exit 1"
    async with world.subprocess.open_terminal(["sh", "-c", script], grace_s=0.5) as terminal:
        await receive_to_end(terminal)
        result = await terminal.wait()
        assert anyio.current_time() - before < 2
        assert result.exit_code == 1
        pid = int(await world.fs.read_text("pid"))
        if deaf:
            assert result.background
            assert await is_alive(world, pid)
    await assert_gone(world, pid, "the job that kept the terminal")


async def test_c151_line_ends_are_those_of_the_terminal(world: World) -> None:
    async with world.subprocess.open_terminal(["printf", "a\\nb\\n"]) as terminal:
        assert await receive_to_end(terminal) == b"a\r\nb\r\n"


async def test_c155_the_interrupt_key_frees_a_stuck_program(world: World) -> None:
    """The program is interrupted once it provably runs in front; the shell goes on."""
    argv = ["sh", "-c", "PS1='$ ' exec sh -i"]
    async with world.subprocess.open_terminal(argv, grace_s=0.5) as terminal:
        await receive_until(terminal, b"$ ")
        await terminal.send("sh -c 'echo st\"\"uck; exec sleep 100'\r")
        await receive_until(terminal, b"stuck\r\n")
        await terminal.send("\x03")
        await receive_until(terminal, b"$ ")
        await terminal.send("echo o''k\r")
        await receive_until(terminal, b"ok\r\n")
