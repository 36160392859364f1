"""Files inside the world that hold the whole of an output that did not fit into its window."""

from __future__ import annotations

import errno
import os
import secrets
from typing import Final

import anyio

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.operations import (
    Close,
    Open,
    RemoveDirectory,
    Unlink,
    Write,
)
from execworld.machine.owned import OwnedDirectory, Use, make_owned
from execworld.machine.values import MAX_TRANSFER_BYTES, OpenFlag
from execworld.seams.errors import ExecworldError
from execworld.seams.paths import decode_path

_ANY_ERROR: Final = range(1, 4096)


class SpillStore:
    """A private directory of one view, made on first use and removed with everything in it at close.

    Args:
        root: Where to make it; None for the preferred place of the machine.
    """

    def __init__(self, machine: Machine, root: bytes | None = None) -> None:
        self._machine = machine
        self._root = root
        self._directory: OwnedDirectory | None = None
        self._files: set[bytes] = set()
        self._making = anyio.Lock()

    def new_file(self, limit_bytes: int) -> SpillFile:
        return SpillFile(self, limit_bytes)

    async def create(self, first: bytes) -> tuple[bytes, int]:
        """Create a file of an unpredictable name, readable by its owner alone, and write *first* into it.

        Raises:
            BatchFailed: it cannot be made or written; nothing is left behind.
        """
        directory = await self._private_directory()
        path = directory + b"/" + secrets.token_hex(8).encode() + b".out"
        batch = Batch()
        flags = OpenFlag.WRITE | OpenFlag.CREATE | OpenFlag.EXCLUSIVE | OpenFlag.NO_FOLLOW
        opened = batch.add(Open(path, flags, 0o600), undo=Unlink(path))
        for start in range(0, len(first), MAX_TRANSFER_BYTES):
            batch.add(Write(opened.handle, first[start : start + MAX_TRANSFER_BYTES]))
        results = await self._machine.run(batch)
        self._files.add(path)
        return path, results[opened]

    async def write(self, handle: int, data: bytes) -> None:
        for start in range(0, len(data), MAX_TRANSFER_BYTES):
            batch = Batch()
            batch.add(Write(handle, data[start : start + MAX_TRANSFER_BYTES]))
            await self._machine.run(batch)

    async def finish(self, handle: int, path: bytes, *, remove: bool) -> None:
        batch = Batch()
        batch.add(Close(handle), tolerate=_ANY_ERROR)
        if remove:
            batch.add(Unlink(path), tolerate=_ANY_ERROR)
            self._files.discard(path)
        await self._machine.run(batch)

    async def aclose(self) -> list[str]:
        """Remove all files and the directory. Returns what could not be removed."""
        directory, self._directory = self._directory, None
        if directory is None:
            return []
        batch = Batch()
        for path in sorted(self._files):
            batch.add(Unlink(path), tolerate=_ANY_ERROR)
        batch.add(RemoveDirectory(directory.path), tolerate=[errno.ENOENT])
        batch.add(Close(directory.handle), tolerate=_ANY_ERROR)
        self._files.clear()
        try:
            await self._machine.run(batch)
        except BatchFailed:
            return [decode_path(directory.path)]
        return []

    async def _private_directory(self) -> bytes:
        async with self._making:
            if self._directory is None:
                root = self._machine.facts.temp_roots[0] if self._root is None else self._root
                self._directory = await make_owned(self._machine, root, Use.SPILL)
            return self._directory.path


class SpillFile:
    """The file of one stream. Nothing that goes wrong with it ever reaches the command or its caller."""

    def __init__(self, store: SpillStore, limit_bytes: int) -> None:
        self._store = store
        self._limit_bytes = limit_bytes
        self._path: bytes | None = None
        self._handle: int | None = None
        self.error = ""

    @property
    def path(self) -> str | None:
        """Path of the file when it holds every byte so far."""
        return decode_path(self._path) if self._path is not None and not self.error else None

    async def append(self, so_far: bytes, so_far_bytes: int, chunk: bytes) -> None:
        """Add *chunk*; on first use the file begins with *so_far*, all that the stream held until then."""
        if self.error:
            return
        if so_far_bytes + len(chunk) > self._limit_bytes:
            await self._give_up(f"output exceeds the spill limit of {self._limit_bytes} bytes")
            return
        try:
            if self._handle is None:
                self._path, self._handle = await self._store.create(so_far)
            await self._store.write(self._handle, chunk)
        except BatchFailed as failure:
            number = failure.error.status
            await self._give_up(f"{errno.errorcode.get(number, str(number))}: {os.strerror(number)}")
        except (ExecworldError, OSError) as error:
            await self._give_up(str(error))

    async def close(self) -> None:
        """Seal the file; it stays until the world closes."""
        if self._handle is not None and self._path is not None:
            await self._finish(remove=False)

    async def _give_up(self, reason: str) -> None:
        self.error = reason
        if self._handle is not None:
            await self._finish(remove=True)

    async def _finish(self, *, remove: bool) -> None:
        handle, path = self._handle, self._path
        self._handle = None
        if handle is None or path is None:
            return
        try:
            await self._store.finish(handle, path, remove=remove)
        except (BatchFailed, ExecworldError) as error:
            self.error = self.error or str(error)
