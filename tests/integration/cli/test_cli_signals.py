"""A signal at any moment of a run: no traceback, nothing left."""

from __future__ import annotations

import signal
import subprocess
import sys

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
