"""Waiting for the terminal is claimed on proof only: for each way to wait for input, and for nothing else."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest

from execworld.machine.local.inspection import group_waits_for_input

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

# The program under test comes after this: it has a terminal as 0, 1, 2 and as its controlling one, and the pipe 3.
PRELUDE = """
import fcntl, os, select, termios, threading, time
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
pipe_read, pipe_write = os.pipe()
def ready():
    os.write(READY, b"+")
"""

WAITS = {
    "read": "ready(); os.read(0, 1)",
    "readv": "ready(); os.readv(0, [bytearray(1)])",
    "poll": "p = select.poll(); p.register(0, select.POLLIN); ready(); p.poll()",
    "poll-with-others": (
        "p = select.poll(); p.register(pipe_read, select.POLLIN); p.register(0, select.POLLIN); ready(); p.poll()"
    ),
    "poll-with-limit": "p = select.poll(); p.register(0, select.POLLIN); ready(); p.poll(100_000)",
    "select": "ready(); select.select([0], [], [])",
    "select-with-others": "ready(); select.select([pipe_read, 0], [], [], 100)",
    "epoll": "e = select.epoll(); e.register(0, select.EPOLLIN); ready(); e.poll()",
    "epoll-with-others": (
        "e = select.epoll(); e.register(pipe_read, select.EPOLLIN); e.register(0, select.EPOLLIN); ready(); e.poll()"
    ),
    "second-thread": "threading.Thread(target=os.read, args=(0, 1)).start(); ready(); time.sleep(100)",
    "another-descriptor-of-the-terminal": "d = os.dup(0); ready(); os.read(d, 1)",
    "controlling-terminal": "d = os.open('/dev/tty', os.O_RDWR); ready(); os.read(d, 1)",
    "child": "os.fork() or (ready(), os.read(0, 1)); time.sleep(100)",
}

DOES_NOT_WAIT = {
    "sleep": "ready(); time.sleep(100)",
    "busy": "ready()\nwhile True: pass",
    "read-of-a-pipe": "ready(); os.read(pipe_read, 1)",
    "standard-input-is-a-pipe": "os.dup2(pipe_read, 0); ready(); os.read(0, 1)",
    "poll-of-a-pipe": "p = select.poll(); p.register(pipe_read, select.POLLIN); ready(); p.poll()",
    "poll-for-errors-only": "p = select.poll(); p.register(0, 0); ready(); p.poll()",
    "poll-standard-input-is-a-pipe": (
        "os.dup2(pipe_read, 0); p = select.poll(); p.register(0, select.POLLIN); ready(); p.poll()"
    ),
    "select-of-a-pipe": "ready(); select.select([pipe_read], [], [])",
    "select-for-exceptions": "ready(); select.select([], [], [0])",
    "epoll-of-a-pipe": "e = select.epoll(); e.register(pipe_read, select.EPOLLIN); ready(); e.poll()",
    "epoll-for-errors-only": "e = select.epoll(); e.register(0, 0); ready(); e.poll()",
    "wait-for-a-child": "import signal\nif os.fork(): ready(); os.wait()\nelse: os.setpgid(0, 0); time.sleep(100)",
    "child-in-another-group": (
        "import signal; signal.signal(signal.SIGTTIN, signal.SIG_IGN)\n"
        "if os.fork(): time.sleep(100)\nelse: os.setpgid(0, 0); os.dup2(pipe_read, 0); ready(); os.read(0, 1)"
    ),
}


@dataclass
class Bench:
    """Runs a program in a session with a terminal."""

    controller: int
    terminal: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def device(self) -> int:
        return os.fstat(self.terminal).st_rdev

    def start(self, program: str) -> int:
        """Returns the process group once the program said that it is about to wait."""
        ready_read, ready_write = os.pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", f"READY = {ready_write}\n{PRELUDE}\n{program}"],
            stdin=self.terminal,
            stdout=self.terminal,
            stderr=self.terminal,
            start_new_session=True,
            pass_fds=(ready_write,),
        )
        os.close(ready_write)
        try:
            assert os.read(ready_read, 1) == b"+", "the program failed before it waited"
        finally:
            os.close(ready_read)
        return self.process.pid

    def close(self) -> None:
        if self.process is not None:
            for pid in members_of_session(self.process.pid):
                os.kill(pid, 9)
            self.process.wait(timeout=10)
        os.close(self.controller)
        os.close(self.terminal)


def members_of_session(session: int) -> list[int]:
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            text = Path(f"/proc/{name}/stat").read_bytes()
        except OSError:
            continue
        if int(text[text.rfind(b")") + 2 :].split()[3]) == session:
            found.append(int(name))
    return found


@pytest.fixture
def bench() -> Generator[Bench]:
    controller, terminal = pty.openpty()
    bench = Bench(controller, terminal)
    try:
        yield bench
    finally:
        bench.close()


@pytest.mark.parametrize("way", WAITS)
def test_each_way_to_wait_is_proven(bench: Bench, way: str) -> None:
    group = bench.start(WAITS[way])
    deadline = time.monotonic() + 10
    while not group_waits_for_input(group, bench.device):
        assert time.monotonic() < deadline, "the program waits for the terminal, and that was not seen"
        time.sleep(0.005)


@pytest.mark.parametrize("way", DOES_NOT_WAIT)
def test_nothing_else_counts(bench: Bench, way: str) -> None:
    """The answer stays False over many looks, whatever descriptor 0 is and whatever else is waited for."""
    group = bench.start(DOES_NOT_WAIT[way])
    give_up = time.monotonic() + 0.3
    while time.monotonic() < give_up:
        assert not group_waits_for_input(group, bench.device)


def test_another_terminal_is_not_this_one(bench: Bench) -> None:
    """A process that reads a terminal of its own says nothing about ours."""
    group = bench.start("c, t = os.openpty(); ready(); os.read(t, 1)")
    give_up = time.monotonic() + 0.3
    while time.monotonic() < give_up:
        assert not group_waits_for_input(group, bench.device)


def test_the_answer_changes_back(bench: Bench) -> None:
    """Once the input came, the process does not wait any more."""
    attributes = termios.tcgetattr(bench.terminal)
    attributes[3] = attributes[3] & ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(bench.terminal, termios.TCSANOW, attributes)
    group = bench.start("ready(); os.read(0, 1); time.sleep(100)")
    deadline = time.monotonic() + 10
    while not group_waits_for_input(group, bench.device):
        assert time.monotonic() < deadline, "the wait was not seen"
    os.write(bench.controller, b"x")
    while group_waits_for_input(group, bench.device):
        assert time.monotonic() < deadline, "the end of the wait was not seen"


def test_a_group_that_does_not_exist_does_not_wait(bench: Bench) -> None:
    assert not group_waits_for_input(2**22 + 1, bench.device)
