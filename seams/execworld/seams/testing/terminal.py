"""The suite of the terminal primitive."""

from __future__ import annotations

import signal

import anyio
import pytest

from execworld.seams import CommandInvalid, CommandNotFound, SignalRefused, WorkingDirectoryMissing, World
from execworld.seams.testing.probes import (
    assert_gone,
    eventually,
    is_alive,
    pid_from,
    read_when_there,
    receive_to_end,
    receive_until,
)
from execworld.seams.testing.suite import ContractSuite, WorldMaker

# A shell without prompt and line editing; what is typed to it is echoed by the terminal.
PLAIN_SHELL = ["sh", "-c", "PS1='$ '; export PS1; exec sh -i"]


class TerminalContract(ContractSuite):
    """A command on a pseudo-terminal."""

    async def test_T1_malformed_calls_open_nothing(self, world: World, scratch: str) -> None:
        """A size outside 1 to 65535, an empty argument list and a malformed name are COMMAND_INVALID; a missing
        program and a missing directory are told as for any command."""
        make = ["touch", f"{scratch}/made"]
        for rows, columns in ((0, 80), (24, 0), (-1, 80), (24, 65536), (65536, 80)):
            with pytest.raises(CommandInvalid):
                async with world.subprocess.open_terminal(make, rows=rows, columns=columns):
                    pass
        with pytest.raises(CommandInvalid):
            async with world.subprocess.open_terminal([]):
                pass
        with pytest.raises(CommandInvalid):
            async with world.subprocess.open_terminal(make, env={"A=B": ""}):
                pass
        with pytest.raises(CommandNotFound):
            async with world.subprocess.open_terminal(["no-such-program-anywhere"]):
                pass
        with pytest.raises(WorkingDirectoryMissing):
            async with world.subprocess.open_terminal(make, cwd=f"{scratch}/absent"):
                pass
        assert await world.fs.list_directory(scratch) == []

    async def test_T3_output_comes_in_order_and_whole(self, world: World) -> None:
        """Bytes arrive in order, nothing of any helper is among them, and the end comes after the last byte,
        however early the reader is or late."""
        script = "seq 1 5000; echo LAST"
        expected = b"".join(b"%d\r\n" % number for number in range(1, 5001)) + b"LAST\r\n"
        for number in range(6):
            async with world.subprocess.open_terminal(["sh", "-c", script]) as terminal:
                if number % 2:
                    await anyio.sleep(0.05)
                with anyio.fail_after(10):
                    assert await receive_to_end(terminal) == expected
                assert (await terminal.wait()).exit_code == 0

    async def test_T20_line_ends_are_those_of_the_terminal(self, world: World) -> None:
        """Output is exactly what the terminal gives: line feeds come as CR LF, other bytes unchanged."""
        async with world.subprocess.open_terminal(["printf", "a\\nb\\n\\033[31mred\\377"]) as terminal:
            assert await receive_to_end(terminal) == b"a\r\nb\r\n\x1b[31mred\xff"

    async def test_T4_typing_is_not_converted(self, world: World) -> None:
        """What is sent arrives byte for byte, text as UTF-8; after the end of the command it fails."""
        script = "stty raw -echo; echo ready; head -c 9 | od -An -tx1; exit 3"
        async with world.subprocess.open_terminal(["sh", "-c", script]) as terminal:
            await receive_until(terminal, b"ready")
            await terminal.send("é\r\n")
            await terminal.send(b"\x00\x03\x04\xff\x1a")
            received = await receive_to_end(terminal)
            assert received.split() == [b"c3", b"a9", b"0d", b"0a", b"00", b"03", b"04", b"ff", b"1a"]
            assert (await terminal.wait()).exit_code == 3
            with pytest.raises((anyio.BrokenResourceError, anyio.ClosedResourceError)):
                await terminal.send("late")

    async def test_T21_the_size_is_set_before_the_program_runs(self, world: World) -> None:
        """The first thing that a program sees is the size asked for, 24 by 80 unless told otherwise."""
        # BusyBox's stty takes a smaller size for none.
        for rows, columns in ((24, 80), (40, 132), (2, 2)):
            async with world.subprocess.open_terminal(
                ["stty", "size"], rows=rows, columns=columns
            ) as terminal:
                assert (await receive_to_end(terminal)).split() == [b"%d" % rows, b"%d" % columns]
                assert terminal.size == (rows, columns)
        async with world.subprocess.open_terminal(["stty", "size"]) as terminal:
            assert (await receive_to_end(terminal)).split() == [b"24", b"80"]

    async def test_T22_a_resize_reaches_the_program(self, world: World) -> None:
        """A resize changes the size and is signalled to the foreground group; one right after opening is not lost,
        and one after the end harms nothing."""
        script = "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.02; done"
        async with world.subprocess.open_terminal(["sh", "-c", script]) as terminal:
            await receive_until(terminal, b"ready\r\n")
            await terminal.resize(50, 100)
            assert terminal.size == (50, 100)
            await receive_until(terminal, b"50 100\r\n")
        for number in range(1, 8):
            async with world.subprocess.open_terminal(["sh", "-c", "read x; stty size"]) as terminal:
                await terminal.resize(30 + number, 90)
                await terminal.send("\r")
                await receive_until(terminal, b"%d 90\r\n" % (30 + number))
        with pytest.raises(CommandInvalid):
            async with world.subprocess.open_terminal(["cat"]) as terminal:
                await terminal.resize(0, 80)

    async def test_T23_the_program_is_on_a_terminal(self, world: World, scratch: str) -> None:
        """All three streams are the terminal, it is the controlling one, and TERM is ``xterm-256color`` unless the
        caller sets it; directory and environment are those of any command."""
        script = '[ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo tty >/dev/tty; echo "$TERM $X"; pwd -P'
        argv = ["sh", "-c", script]
        async with world.subprocess.open_terminal(argv, cwd=scratch, env={"X": "x"}) as terminal:
            lines = (await receive_to_end(terminal)).decode().split("\r\n")
        assert lines == ["tty", "xterm-256color x", scratch, ""]
        async with world.subprocess.open_terminal(argv, env={"TERM": "vt100"}) as terminal:
            assert b"vt100 " in await receive_to_end(terminal)

    async def test_T5_waiting_for_input_is_told_when_proven(self, world: World) -> None:
        """The foreground group is told, and that it waits for input only while it does: never for a program that is
        busy or asleep."""
        async with world.subprocess.open_terminal(["sh", "-c", "echo ready; exec cat"]) as terminal:
            await receive_until(terminal, b"ready")
            foreground = await terminal.foreground()
            assert foreground is not None
            assert foreground.group_id == terminal.pid
            if world.facts.os == "linux":

                async def proven() -> bool:
                    state = await terminal.foreground()
                    return state is not None and state.waits_for_input

                await eventually(proven, "a program that reads the terminal is not told")
        async with world.subprocess.open_terminal(["sh", "-c", "echo ready; exec sleep 5"]) as terminal:
            await receive_until(terminal, b"ready")
            for _ in range(5):
                state = await terminal.foreground()
                assert state is not None
                assert not state.waits_for_input
                await anyio.sleep(0.01)
        assert await terminal.foreground() is None

    async def test_T6_a_signal_reaches_the_foreground(self, world: World) -> None:
        """A signal goes to the foreground group, whose id is returned; KILL is refused when it would hit the
        command that the terminal was opened with, and any signal once that ended."""
        async with world.subprocess.open_terminal(PLAIN_SHELL, grace_s=0.2) as terminal:
            await receive_until(terminal, b"$ ")
            shell = await terminal.foreground()
            assert shell is not None
            with pytest.raises(SignalRefused):
                await terminal.signal_foreground(signal.SIGKILL)
            await terminal.send("sleep 30; echo in''terrupted\r")

            async def job_runs() -> bool:
                state = await terminal.foreground()
                return state is not None and state.group_id != shell.group_id

            await eventually(job_runs, "a foreground job is not told")
            job = await terminal.foreground()
            assert job is not None
            assert await terminal.signal_foreground(signal.SIGTERM) == job.group_id
            await receive_until(terminal, b"interrupted")
            await terminal.send("exit 5\r")
            assert (await terminal.wait()).exit_code == 5
            with pytest.raises(SignalRefused):
                await terminal.signal_foreground(signal.SIGTERM)

    async def test_T24_the_interrupt_key_works(self, world: World) -> None:
        """Typing the interrupt character ends the foreground command and leaves the shell."""
        async with world.subprocess.open_terminal(PLAIN_SHELL, grace_s=0.2) as terminal:
            await receive_until(terminal, b"$ ")
            # The job itself says that it runs: an earlier interrupt may hit the shell while it prepares the job.
            await terminal.send("sh -c 'echo st\"\"arted; exec sleep 30'\r")
            await receive_until(terminal, b"started")
            await terminal.send("\x03")
            await receive_until(terminal, b"$ ")
            await terminal.send("echo o''k\r")
            await receive_until(terminal, b"ok")

    async def test_T7_closing_ends_the_session(self, world: World, scratch: str) -> None:
        """Leaving a terminal, or terminating it, ends everything in its session: jobs in the background, in groups
        of their own, and those that ignore HUP and TERM. Doing it again does nothing."""
        job = 'trap "" HUP TERM; echo $$ >"$1"; sleep 30; sleep 30'
        for how in ("leave", "terminate"):
            path = f"{scratch}/{how}"
            script = f"set -m; sh -c '{job}' sh \"$1\" & sleep 30; true"
            async with world.subprocess.open_terminal(
                ["sh", "-c", script, "sh", path], grace_s=0.3
            ) as terminal:
                pid = await pid_from(world, path)
                if how == "terminate":
                    report = await terminal.terminate(grace_s=0.3)
                    assert report.gone
                    assert not await is_alive(world, pid)
                    await terminal.terminate()
                    assert not terminal.running
            await assert_gone(world, pid, "a background job of a terminal", within_s=0.3)
            await terminal.aclose()

    async def test_T10_the_result_has_the_facts(self, world: World) -> None:
        """Exit code and signal are told apart; the output is not collected."""
        async with world.subprocess.open_terminal(["sh", "-c", "echo x; exit 7"]) as terminal:
            result = await terminal.wait()
            assert (result.exit_code, result.signal) == (7, None)
            assert (result.stdout.data, result.stderr.data) == (b"", b"")
            assert not terminal.running
        async with world.subprocess.open_terminal(["sh", "-c", "kill -KILL $$"]) as terminal:
            result = await terminal.wait()
            assert (result.exit_code, result.signal) == (None, int(signal.SIGKILL))

    async def test_T25_a_background_job_does_not_hold_the_end(self, world: World, scratch: str) -> None:
        """When the command ends, its result and the end of output come although a job still holds the terminal."""
        script = '(trap "" HUP; echo $$ >"$1"; sleep 20) & while [ ! -s "$1" ]; do sleep 0.02; done; echo out; exit 1'
        with anyio.fail_after(5):
            async with world.subprocess.open_terminal(
                ["sh", "-c", script, "sh", f"{scratch}/pid"], grace_s=0.3
            ) as terminal:
                assert await receive_to_end(terminal) == b"out\r\n"
                assert (await terminal.wait()).exit_code == 1
        assert await read_when_there(world, f"{scratch}/pid")

    async def test_T29_a_job_that_outlives_its_shell_ends_with_the_terminal(
        self, world: World, scratch: str
    ) -> None:
        """One that ignores every signal but KILL, in a group of its own, as shells at a terminal start their jobs."""
        job = """sh -c 'trap "" HUP TERM; echo $$ >"$1"; sleep 60; sleep 60' sh "$1" </dev/null >/dev/null 2>&1 &"""
        script = f'set -m; {job} while [ ! -s "$1" ]; do sleep 0.02; done; exit 0'
        with anyio.fail_after(10):
            async with world.subprocess.open_terminal(
                ["sh", "-c", script, "sh", f"{scratch}/pid"], grace_s=0.3
            ) as terminal:
                assert (await terminal.wait()).exit_code == 0
                pid = await pid_from(world, f"{scratch}/pid")
            await assert_gone(world, pid, "a job of a terminal")

    async def test_T30_a_terminal_of_a_closed_world_is_over(self, world_maker: WorldMaker) -> None:
        """Nothing is in the foreground, a signal is SIGNAL_REFUSED, a resize does nothing, and both streams have
        ended. No other error comes out of a handle whose world went first."""
        async with world_maker() as world:
            async with world.subprocess.open_terminal(["sleep", "60"], grace_s=0.3) as terminal:
                await world.aclose()
                assert await terminal.foreground() is None
                with pytest.raises(SignalRefused):
                    await terminal.signal_foreground(signal.SIGINT)
                await terminal.resize(30, 100)
                with pytest.raises((anyio.BrokenResourceError, anyio.ClosedResourceError)):
                    await terminal.send("x")
                with pytest.raises((anyio.EndOfStream, anyio.ClosedResourceError)):
                    await terminal.receive()

    async def test_T26_many_terminals_leave_nothing(self, world: World) -> None:
        """Terminals can be opened and closed more often than a process may have open files."""
        for _ in range(4):
            async with anyio.create_task_group() as tasks:
                for _ in range(20):
                    tasks.start_soon(self._one_terminal, world)

    async def _one_terminal(self, world: World) -> None:
        async with world.subprocess.open_terminal(["echo", "x"]) as terminal:
            assert await receive_to_end(terminal) == b"x\r\n"

    async def test_T27_large_input_is_typed_whole(self, world: World) -> None:
        """More input than the terminal takes at once arrives whole while the output is being read, and a reader
        that pauses loses nothing."""
        script = "stty raw -echo; echo ready; head -c 100000 | wc -c"
        data = b"0123456789abcdef" * 6250
        async with world.subprocess.open_terminal(
            ["sh", "-c", f"{script}; printf '%0100000d' 0"]
        ) as terminal:
            await receive_until(terminal, b"ready")
            with anyio.fail_after(10):
                await terminal.send(data)
                await anyio.sleep(0.05)
                received = await receive_to_end(terminal)
        assert received.split()[0] == b"100000"
        assert received.endswith(b"0" * 99_990)

    async def test_T28_a_cancelled_read_loses_nothing(self, world: World) -> None:
        """Cancelling a read, again and again, leaves the bytes for the next one."""
        script = "i=0; while [ $i -lt 40 ]; do echo $i; sleep 0.005; i=$((i+1)); done"
        received = b""
        async with world.subprocess.open_terminal(["sh", "-c", script]) as terminal:
            with anyio.fail_after(10):
                while True:
                    try:
                        with anyio.move_on_after(0.003):
                            received += await terminal.receive()
                    except anyio.EndOfStream:
                        break
        assert received == b"".join(b"%d\r\n" % number for number in range(40))
