"""The real program in a process of its own."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pytest

PROGRAM = [sys.executable, "-m", "execworld.cli"]
OURS = ("EXECWORLD_WORLD", "EXECWORLD_DEBUG", "NO_COLOR")


def clean_environment(extra: dict[str, str] | None = None) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in OURS} | (extra or {})


class Run(Protocol):
    def __call__(
        self,
        *arguments: str | bytes,
        stdin: bytes | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[bytes]: ...


class Start(Protocol):
    def __call__(
        self, *arguments: str | bytes, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]: ...


@pytest.fixture
def execworld() -> Run:
    """Run the program to its end. Whatever happens, it never prints a traceback."""

    def run(
        *arguments: str | bytes,
        stdin: bytes | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[bytes]:
        finished = subprocess.run(
            [*PROGRAM, *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env=clean_environment(env),
            cwd=cwd,
            timeout=timeout,
        )
        assert b"Traceback" not in finished.stderr, finished.stderr.decode(errors="replace")
        return finished

    return run


@pytest.fixture
def start() -> Iterator[Start]:
    """Start the program; what a test leaves running is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(*arguments: str | bytes, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(env),
        )
        started.append(program)
        return program

    yield begin
    for program in started:
        program.kill()
        program.communicate()


Eventually = Callable[[Callable[[], bool], str], None]


@pytest.fixture
def eventually() -> Eventually:
    """Poll until a condition holds, or fail with the message."""

    def wait(condition: Callable[[], bool], message: str) -> None:
        deadline = time.monotonic() + 15
        while not condition():
            assert time.monotonic() < deadline, message
            time.sleep(0.01)

    return wait


@dataclass(frozen=True)
class Sleeper:
    """A command that sleeps for an hour and can be told from every other process."""

    seconds: str = field(default_factory=lambda: f"{3600 + int(uuid.uuid4().hex[:8], 16)}")

    def alive(self) -> bool:
        wanted = [b"sleep", self.seconds.encode()]
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue  # it ended meanwhile
                if words[:2] == wanted:
                    return True
        return False


@pytest.fixture
def sleeper() -> Sleeper:
    return Sleeper()


def set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Session:
    """The program on a terminal of its own."""

    def __init__(self, *arguments: str, rows: int = 24, columns: int = 80) -> None:
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            set_size(0, rows, columns)
            os.execve(PROGRAM[0], [*PROGRAM, *arguments], clean_environment({"TERM": "xterm"}))
        self.output = b""
        self.code: int | None = None

    def resize(self, rows: int, columns: int) -> None:
        set_size(self.terminal, rows, columns)

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def expect(self, text: str) -> None:
        """Wait until *text* was printed; what came before it is forgotten."""
        wanted = text.encode()
        deadline = time.monotonic() + 20
        while wanted not in self.output:
            left = deadline - time.monotonic()
            assert left > 0, f"{text!r} did not come; there was {self.output!r}"
            if select.select([self.terminal], [], [], min(left, 0.1))[0]:
                self._read()
        self.output = self.output.partition(wanted)[2]

    def attributes(self) -> list[object]:
        return list(termios.tcgetattr(self.terminal))

    def wait(self) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + 20
        while self.code is None:
            assert time.monotonic() < deadline, f"it did not end; there was {self.output!r}"
            if select.select([self.terminal], [], [], 0.02)[0]:
                self._read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        while select.select([self.terminal], [], [], 0)[0] and self._read():
            pass
        return self.code

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.terminal)

    def _read(self) -> bool:
        try:
            chunk = os.read(self.terminal, 65536)
        except OSError:
            return False  # the last holder closed it
        self.output += chunk
        return bool(chunk)


class OpenSession(Protocol):
    def __call__(self, *arguments: str, rows: int = 24, columns: int = 80) -> Session: ...


@pytest.fixture
def session() -> Iterator[OpenSession]:
    opened: list[Session] = []

    def begin(*arguments: str, rows: int = 24, columns: int = 80) -> Session:
        opened.append(Session(*arguments, rows=rows, columns=columns))
        return opened[-1]

    yield begin
    for one in opened:
        one.close()
