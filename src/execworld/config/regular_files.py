"""Reading files that somebody else named: never for ever, never a device, never more than was asked for."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
"""Without the last one, opening a pipe that nobody writes to would never end."""

_PIECE_BYTES: Final = 1 << 16


def read_regular_file(path: str, limit_bytes: int) -> bytes:
    """Up to *limit_bytes* and one byte of the file *path*, so that the caller sees whether there is more.

    Raises:
        OSError: it cannot be read, or is no regular file; ValueError: *path* holds a NUL.
    """
    descriptor = os.open(path, FLAGS)
    try:
        return read_regular(descriptor, limit_bytes)
    finally:
        os.close(descriptor)


def read_regular(descriptor: int, limit_bytes: int) -> bytes:
    """As `read_regular_file`, of what is open already."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is no regular file")
    pieces: list[bytes] = []
    left = limit_bytes + 1
    while left and (piece := os.read(descriptor, min(left, _PIECE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
