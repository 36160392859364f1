"""What the program itself says, on standard error, apart from what commands print."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

from execworld.cli import exits
from execworld.cli.hints import hint_of
from execworld.seams import ExecworldError, SandboxUnavailable
from execworld.world import environment_variable, leaf_errors

STDERR: Final = 2


class OutputClosed(Exception):
    """Nobody reads our output any more (``| head``)."""


class Interrupted(Exception):
    """A signal asked this program to end, and everything that it had begun was undone.

    Attributes:
        number: The first signal that arrived.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


def say(text: str) -> None:
    """Write one message. Control characters are escaped: a name in it may hold what moves the reader's cursor."""
    line = "".join(_printable(character) for character in text) + "\n"
    data = line.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(STDERR, data) :]
    except OSError:
        pass  # nobody listens, and there is nobody else to tell


def note(text: str) -> None:
    say(f"note: {text}")


def report(error: BaseException) -> int:
    """Say what went wrong and return the exit code that stands for it."""
    if environment_variable("EXECWORLD_DEBUG") is not None:
        say("".join(traceback.format_exception(error)).rstrip("\n"))
    leaves = leaf_errors(error)
    for leaf in leaves:
        if isinstance(leaf, Interrupted):
            if leaf.__cause__ is not None:
                report(leaf.__cause__)
            return exits.SIGNAL_BASE + leaf.number
    if any(isinstance(leaf, OutputClosed) for leaf in leaves):
        return exits.OUTPUT_CLOSED
    codes = [_report_leaf(leaf) for leaf in leaves]
    return codes[0]


def _report_leaf(error: BaseException) -> int:
    if isinstance(error, ExecworldError):
        say(f"execworld: error [{error.code}]: {error.message}")
        if isinstance(error, SandboxUnavailable):
            missing = f"; missing: {', '.join(error.missing)}" if error.missing else ""
            say(f"reason: {error.reason}{missing}")
        if hint := hint_of(error):
            say(f"hint: {hint}")
        return exits.code_of_error(error)
    say(f"execworld: error [INTERNAL]: {type(error).__name__}: {error}")
    say("hint: this is a fault in execworld or in a provider; EXECWORLD_DEBUG=1 shows where")
    return exits.WORLD_FAILURE


def is_terminal(descriptor: int) -> bool:
    try:
        return os.isatty(descriptor)
    except OSError:
        return False


def keep_standard_descriptors() -> None:
    """Open /dev/null where a standard descriptor is closed.

    Otherwise the next file that is opened gets its number, and what is meant for the terminal goes into that file.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # Takes the lowest free number, which is the one that is closed.
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - lives as long as the process


def _printable(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if character.isprintable() or character == "\n":
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")
