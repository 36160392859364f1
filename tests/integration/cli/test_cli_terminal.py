"""``execworld run -t`` and ``execworld shell`` on a real terminal, and a shell that gets a script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Eventually, OpenSession, Run, Sleeper

RUN = ("run", "-w", "local", "-q", "-t")


def test_the_command_has_a_terminal_of_our_size(session: OpenSession) -> None:
    terminal = session(
        *RUN, "--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && stty size", rows=33, columns=111
    )
    assert terminal.wait() == 0
    assert terminal.output == b"33 111\r\n"


def test_the_exit_code_passes_through_the_terminal(session: OpenSession) -> None:
    assert session(*RUN, "--", "sh", "-c", "exit 7").wait() == 7
    assert session(*RUN, "--", "sh", "-c", "kill -9 $$").wait() == 137


def test_the_last_words_arrive(session: OpenSession) -> None:
    terminal = session(*RUN, "--", "sh", "-c", "seq 1 20000; echo LAST")
    assert terminal.wait() == 0
    assert terminal.output.endswith(b"20000\r\nLAST\r\n")
    assert terminal.output.count(b"\n") == 20001


def test_a_change_of_size_is_passed_on(session: OpenSession) -> None:
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.05; done"
    terminal = session(*RUN, "--", "sh", "-c", script)
    terminal.expect("ready")
    terminal.resize(50, 150)
    terminal.expect("50 150")
    terminal.type("\x03")
    assert terminal.wait() == 130


def test_keys_go_to_the_command_ctrl_c_too(session: OpenSession) -> None:
    terminal = session(
        *RUN, "--", "sh", "-c", "trap 'echo caught' INT; echo ready; read line; read line; echo got $line"
    )
    terminal.expect("ready")
    terminal.type("\x03")
    terminal.expect("caught")
    terminal.type("word\r")
    terminal.expect("got word")
    assert terminal.wait() == 0


@pytest.mark.parametrize("script", ["exit 0", "kill -9 $$", "exit 3"])
def test_our_terminal_is_as_it_was_afterwards(session: OpenSession, script: str) -> None:
    terminal = session(*RUN, "--", "sh", "-c", f"echo ready; read x; {script}")
    before = terminal.attributes()
    terminal.expect("ready")
    assert terminal.attributes() != before, "it was not in raw mode"
    terminal.type("\r")
    terminal.wait()
    assert terminal.attributes() == before


def test_a_signal_restores_our_terminal_and_leaves_nothing(
    session: OpenSession, eventually: Eventually, sleeper: Sleeper
) -> None:
    terminal = session(*RUN, "--", "sh", "-c", f"echo ready; sleep {sleeper.seconds}")
    before = terminal.attributes()
    terminal.expect("ready")
    eventually(sleeper.alive, "the command did not start")
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 143
    assert terminal.attributes() == before
    assert not sleeper.alive()


def test_a_time_limit_on_a_terminal(session: OpenSession, sleeper: Sleeper) -> None:
    terminal = session(*RUN, "--timeout", "0.5", "--grace", "0.5", "--", "sleep", sleeper.seconds)
    assert terminal.wait() == 124
    assert not sleeper.alive()


def test_a_background_job_does_not_hold_the_terminal(session: OpenSession, sleeper: Sleeper) -> None:
    terminal = session(*RUN, "--", "sh", "-c", f"sleep {sleeper.seconds} & exit 1")
    assert terminal.wait() == 1
    assert not sleeper.alive()


def test_a_terminal_for_the_command_without_one_for_us(execworld: Run) -> None:
    finished = execworld(*RUN, "--", "sh", "-c", "stty size; read line; echo got:$line; cat", stdin=b"word\n")
    assert finished.returncode == 0
    assert b"24 80\r\n" in finished.stdout
    assert b"got:word\r\n" in finished.stdout


# Shell


def test_an_interactive_shell(session: OpenSession) -> None:
    terminal = session("shell", "-w", "local")
    terminal.expect("unconfined")
    terminal.type("echo $((6*7))th\r")
    terminal.expect("42th")
    terminal.type("exit 3\r")
    assert terminal.wait() == 3


def test_a_script_from_standard_input(execworld: Run) -> None:
    script = b"echo out; echo err >&2; x=$(printf '\\303\\244'); echo \"$x\"; exit 4\n"
    finished = execworld("shell", "-w", "local", "-q", stdin=script)
    assert (finished.returncode, finished.stdout, finished.stderr) == (4, b"out\n\xc3\xa4\n", b"err\n")


def test_commands_read_what_follows_them(execworld: Run) -> None:
    """As in ``sh -s``: one stream holds commands and their input; a loop over several lines is one loop."""
    script = b"for i in 1 2\ndo\n  echo $i\ndone\nread x\nword\necho got:[$x]\ncat\nall of it\n"
    finished = execworld("shell", "-w", "local", "-q", stdin=script)
    assert finished.stdout == b"1\n2\ngot:[word]\nall of it\n"


def test_a_command_runs_before_the_end_of_the_input() -> None:
    """A program can drive the shell line by line."""
    command = [sys.executable, "-m", "execworld.cli", "shell", "-w", "local", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        for word in (b"one", b"two"):
            program.stdin.write(b"echo " + word + b"\n")
            program.stdin.flush()
            assert program.stdout.readline() == word + b"\n"
        program.stdin.close()
        assert program.wait(20) == 0


def test_an_unfinished_script_is_the_complaint_of_the_shell(execworld: Run) -> None:
    finished = execworld("shell", "-w", "local", "-q", stdin=b'echo "abc', timeout=20)
    assert finished.returncode == 2
    assert finished.stderr


def test_an_empty_script_does_nothing(execworld: Run) -> None:
    assert execworld("shell", "-w", "local", "-q", stdin=b"").returncode == 0
    assert execworld("shell", "-w", "local", "-q", stdin=b" \n").returncode == 0


def test_a_script_may_be_longer_than_any_argument(execworld: Run) -> None:
    finished = execworld(
        "shell", "-w", "local", "-q", stdin=b": nothing to see\n" * 20_000 + b"echo end; exit 5"
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (5, b"end\n", b"")


def test_a_script_streams(sleeper: Sleeper) -> None:
    command = [sys.executable, "-m", "execworld.cli", "shell", "-w", "local", "-q"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(f"echo first; sleep {sleeper.seconds}".encode())
        program.stdin.close()
        assert program.stdout.readline() == b"first\n"
        program.send_signal(signal.SIGTERM)
        assert program.wait(20) == 143
    assert not sleeper.alive()
