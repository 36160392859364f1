"""How many batches are under way at a time, and which of them may have changed something."""

from __future__ import annotations

from typing import Any, Final

import anyio

from execworld.machine.operations import (
    AddWatch,
    Check,
    Close,
    FindExecutable,
    ListDirectory,
    Lock,
    Open,
    OpenWalk,
    OpenWatch,
    Operation,
    Read,
    ReadAt,
    ReadLink,
    ReadWalk,
    RealPath,
    RemoveWatch,
    Seek,
    Stat,
    StatFileSystem,
    StatHandle,
)
from execworld.machine.values import OpenFlag

# Less than what the warden lets wait (section 6): a batch that it refused would look like one that failed.
_MAX_BATCHES: Final = 4096
_MAX_BYTES: Final = 48 * 1024 * 1024

# These leave nothing but handles, positions and locks, which end with the world.
_PURE: Final[frozenset[type[Operation[Any]]]] = frozenset(
    {
        AddWatch,
        Check,
        Close,
        FindExecutable,
        ListDirectory,
        Lock,
        OpenWalk,
        OpenWatch,
        Read,
        ReadAt,
        ReadLink,
        ReadWalk,
        RealPath,
        RemoveWatch,
        Seek,
        Stat,
        StatFileSystem,
        StatHandle,
    }
)


def has_effects(operation: Operation[Any]) -> bool:
    """Whether *operation* may leave something that outlives the link."""
    if isinstance(operation, Open):
        return bool(operation.flags & (OpenFlag.CREATE | OpenFlag.TRUNCATE))
    return type(operation) not in _PURE


class BatchGate:
    """Lets in what the warden has room for; the others wait here."""

    def __init__(self) -> None:
        self._batches = 0
        self._bytes = 0
        self._left: anyio.Event | None = None

    async def enter(self, size: int) -> None:
        while self._batches >= _MAX_BATCHES or (self._batches and self._bytes + size > _MAX_BYTES):
            if self._left is None:
                self._left = anyio.Event()
            await self._left.wait()
        self._batches += 1
        self._bytes += size

    def leave(self, size: int) -> None:
        self._batches -= 1
        self._bytes -= size
        if self._left is not None:
            self._left.set()
            self._left = None
