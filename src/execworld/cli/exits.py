"""Exit codes. A command's own code passes through; these are for everything else (as env(1), timeout(1), sh(1) do)."""

from __future__ import annotations

from typing import Final

from execworld.seams import (
    CommandNotExecutable,
    CommandNotFound,
    CommandResult,
    ExecworldError,
    FileError,
)

FAILURE: Final = 1
"""A file operation failed, a transfer is incomplete, a check did not pass."""
USAGE: Final = 2
TIME_LIMIT: Final = 124
WORLD_FAILURE: Final = 125
"""The world or its configuration; the command did not run, or what became of it is not known."""
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127
SIGNAL_BASE: Final = 128
OUTPUT_CLOSED: Final = SIGNAL_BASE + 13  # SIGPIPE, what any other program would have died of


def code_of_result(result: CommandResult) -> int:
    if result.timed_out:
        return TIME_LIMIT
    if result.signal is not None:
        return SIGNAL_BASE + result.signal
    return WORLD_FAILURE if result.exit_code is None else result.exit_code


def code_of_error(error: ExecworldError) -> int:
    if isinstance(error, CommandNotFound):
        return NOT_FOUND
    if isinstance(error, CommandNotExecutable):
        return NOT_EXECUTABLE
    return FAILURE if isinstance(error, FileError) else WORLD_FAILURE
