"""What the reader of an error can do about it, in the words of the command line.

Errors come from contracts that know no options of a program, so their hints say what to do and not how it is spelt.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from execworld.seams import ErrorCode, ExecworldError

_HINTS: Final[Mapping[tuple[ErrorCode, str], str]] = {
    (ErrorCode.FS_NOT_EMPTY, "fs.remove"): "add -r to remove it with everything in it",
    (
        ErrorCode.FS_NOT_FOUND,
        "fs.write_stream",
    ): "make the directory first: execworld run -- mkdir -p DIRECTORY",
    (ErrorCode.WORKING_DIRECTORY_MISSING, "subprocess.start"): "make it, or choose another with --cwd",
    (
        ErrorCode.WORKING_DIRECTORY_MISSING,
        "subprocess.open_terminal",
    ): "make it, or choose another with --cwd",
}


def hint_of(error: ExecworldError) -> str:
    """The hint of *error* for somebody who typed a command; empty when there is none."""
    return _HINTS.get((error.code, error.op), error.hint)
