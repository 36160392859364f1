"""Open a directory somewhere below a pinned one without following a link on the way."""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterator
from typing import Final

from execworld.machine.batch import Batch
from execworld.machine.operations import Close, Open
from execworld.machine.values import Handle, OpenFlag

PINNED: Final = OpenFlag.DIRECTORY | OpenFlag.NO_FOLLOW | OpenFlag.PATH_ONLY

CANNOT_RESOLVE: Final = frozenset({errno.ENOSYS, errno.EPERM})
"""What a step says where the kernel has no openat2(2), or a filter forbids it."""

_RESOLVED: Final = OpenFlag.DIRECTORY | OpenFlag.PATH_ONLY | OpenFlag.BENEATH | OpenFlag.NO_SYMLINKS
_PIECE_BYTES: Final = 3000  # what the kernel resolves at once must stay below PATH_MAX


def add_open_beneath(
    batch: Batch, base: Handle, path: bytes, *, resolving: bool, tolerate: Collection[int] = ()
) -> Handle:
    """Add steps that open the directory *path*, relative to *base*, and leave only it open.

    The caller closes the result unless *path* is empty, when it is *base* itself.

    Args:
        batch: Where the steps go.
        base: Handle of the directory to start from.
        path: Relative, without ``..``.
        resolving: Let the kernel resolve many components at once; else one is opened relative to the one
            before.
        tolerate: Error numbers; what is built on the result then has to tolerate EBADF.
    """
    current, opened = base, False
    flags = _RESOLVED if resolving else PINNED
    for piece in _pieces(path, _PIECE_BYTES if resolving else 0):
        step = batch.add(Open(piece, flags, base=current), tolerate=tolerate)
        if opened:
            batch.add(Close(current), tolerate=tolerate)
        current, opened = step.handle, True
    return current


def _pieces(path: bytes, size: int) -> Iterator[bytes]:
    """*path* cut at slashes into pieces of about *size*, each of at least one component."""
    while path:
        cut = path.find(b"/", size) if len(path) > size else -1
        if cut < 0:
            yield path
            return
        yield path[:cut]
        path = path[cut + 1 :]
