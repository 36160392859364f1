"""A signal at any moment of a run: no traceback, nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from tests.integration.cli.conftest import clean_environment

INTERRUPTED_IMPORT = """
import posix, sys  # built in: importing them imports nothing else
before = {"execworld", "execworld.cli", "execworld.cli.main", *sys.builtin_module_names}
countdown, number = int(sys.argv[1]), int(sys.argv[2])
def interrupt(event, arguments):
    global countdown
    if event == "import" and arguments[0] not in before:
        countdown -= 1
        if countdown == 0:
            posix.kill(posix.getpid(), number)
sys.addaudithook(interrupt)
from execworld.cli.main import main
main(["run", "-q", "-w", "local", "--", "true"])
"""
EARLY_IMPORTS = [*range(1, 12), *range(12, 400, 24)]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_any_import_ends_it_quietly(number: signal.Signals) -> None:
    """The first Ctrl-C of a user comes while Python is still starting more often than later."""
    for position in EARLY_IMPORTS:
        command = [sys.executable, "-c", INTERRUPTED_IMPORT, str(position), str(int(number))]
        finished = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, env=clean_environment(), timeout=20
        )
        if finished.returncode == 0:
            return  # there are no more
        assert finished.returncode in (-number, 128 + number), position
        assert (finished.stdout, finished.stderr) == (b"", b""), position
    pytest.fail("the last import was not reached")


ANNOUNCED_START = """
import os, sys
def announce(event, arguments):
    if event == "exec" and arguments[0].co_filename.endswith("cli/main.py"):
        os.write(1, b".")
sys.addaudithook(announce)
from execworld.cli.main import main
main(["run", "-q", "-w", "local", "--", "true"])
"""
MOMENTS = 40


def start_announced() -> subprocess.Popen[bytes]:
    """The program, when the first statement of its entry module is about to run."""
    program = subprocess.Popen(
        [sys.executable, "-c", ANNOUNCED_START],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    assert program.stdout is not None
    assert os.read(program.stdout.fileno(), 1) == b"."
    return program


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_at_any_moment_ends_it_quietly(number: signal.Signals) -> None:
    """Spread over the time that a whole run takes; the delay is the input, nothing is waited for."""
    began = time.monotonic()
    with start_announced() as program:
        assert program.communicate(timeout=20) == (b"", b"")
    whole_s = time.monotonic() - began
    interrupted = 0
    for moment in range(1, MOMENTS + 1):
        with start_announced() as program:
            time.sleep(whole_s * moment / MOMENTS)
            program.send_signal(number)
            output = program.communicate(timeout=20)
        assert output == (b"", b""), moment
        assert program.returncode in (0, -number, 128 + number), moment
        interrupted += program.returncode != 0
    assert interrupted > MOMENTS // 4, "hardly any signal came in time, so that nothing was tried"


FIRST_STATEMENTS = """
import _signal, os, sys
def interrupt(event, arguments):
    if event == "import" and arguments[0] == "gc":  # the first that it imports after `_signal`
        os.kill(os.getpid(), _signal.SIGINT)
sys.addaudithook(interrupt)
sys.modules.pop("gc", None)
from execworld.cli.main import main
"""


def test_the_entry_module_is_quiet_before_it_has_imported_anything() -> None:
    finished = subprocess.run(
        [sys.executable, "-c", FIRST_STATEMENTS], capture_output=True, env=clean_environment(), timeout=20
    )
    assert (finished.returncode, finished.stdout, finished.stderr) == (-signal.SIGINT, b"", b"")
