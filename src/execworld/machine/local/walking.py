"""A walk that no link, no depth and no size of a directory can lead astray.

Each directory is opened relative to the descriptor of its parent, never following a link, and read to its end
before the walk goes deeper, so that only the names of subdirectories are kept. Only a window of descriptors
stays open; a parent whose descriptor was closed is reopened through ``..`` and must be the same inode, else
by name from the start.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from typing import Final

from execworld.machine.local.handles import EntryStream, Handle, listed_entries
from execworld.machine.values import (
    MAX_LIST_ENTRIES,
    KindMask,
    ListedEntry,
    WalkPage,
)

_WINDOW: Final = 32
_PAGE_PATH_BYTES: Final = 1024 * 1024
_OPEN_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

# The directory was removed, or replaced by something else, after its name was read.
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


class _Frame:
    __slots__ = ("descriptor", "identity", "name", "pending")

    def __init__(self, name: bytes, descriptor: int) -> None:
        self.name = name
        self.descriptor: int | None = descriptor
        status = os.fstat(descriptor)
        self.identity = (status.st_dev, status.st_ino)
        self.pending: list[bytes] = []


class WalkHandle(Handle):
    __slots__ = ("_entries", "_frames", "_lock", "_max_depth", "_prefix", "_prune", "_scan")

    def __init__(self, path: bytes, base: int | None, prune: tuple[bytes, ...], max_depth: int) -> None:
        super().__init__()
        self._prune = frozenset(prune)
        self._max_depth = max_depth
        self._lock = threading.Lock()
        self._prefix = b""
        self._frames: list[_Frame] = []
        self._scan: EntryStream | None = None
        self._entries: Iterator[ListedEntry] | None = None
        self._enter(b"", os.open(path, _OPEN_DIRECTORY, dir_fd=base))

    def read(self, limit: int) -> WalkPage:
        limit = min(limit, MAX_LIST_ENTRIES)
        if limit <= 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        found: list[ListedEntry] = []
        errors: list[tuple[bytes, int]] = []
        size = 0
        with self._lock:
            while self._frames and len(found) + len(errors) < limit and size < _PAGE_PATH_BYTES:
                if self._entries is None:
                    self._descend(errors)
                    continue
                frame = self._frames[-1]
                try:
                    entry = next(self._entries, None)
                except OSError as error:
                    errors.append((self._prefix, error.errno or errno.EIO))
                    entry = None
                if entry is None:
                    self._end_scan()
                    continue
                if entry.stat.kind is KindMask.DIRECTORY and self._may_enter(entry.path):
                    frame.pending.append(entry.path)
                if self._prefix:
                    entry = ListedEntry(self._prefix + b"/" + entry.path, entry.stat, entry.target_kind)
                size += len(entry.path)
                found.append(entry)
            return WalkPage(tuple(found), tuple(errors), end=not self._frames)

    def free(self) -> None:
        self._end_scan()
        for frame in self._frames:
            if frame.descriptor is not None:
                os.close(frame.descriptor)
        self._frames.clear()

    def _may_enter(self, name: bytes) -> bool:
        return name not in self._prune and (self._max_depth == 0 or len(self._frames) < self._max_depth)

    def _enter(self, name: bytes, descriptor: int) -> None:
        try:
            frame = _Frame(name, descriptor)
            self._scan = os.scandir(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._entries = listed_entries(self._scan, descriptor)
        self._frames.append(frame)
        if name:
            self._prefix = self._prefix + b"/" + name if self._prefix else name
        # The start stays open: it is where a parent is looked for that is not above its child any more.
        if len(self._frames) > _WINDOW + 1:
            oldest = self._frames[-_WINDOW - 1]
            if oldest.descriptor is not None:
                os.close(oldest.descriptor)
                oldest.descriptor = None

    def _end_scan(self) -> None:
        if self._scan is not None:
            self._scan.close()
        self._scan = self._entries = None

    def _descend(self, errors: list[tuple[bytes, int]]) -> None:
        """Enter the next subdirectory that was seen, or go back up."""
        frame = self._frames[-1]
        if not frame.pending:
            self._go_up(errors)
            return
        assert frame.descriptor is not None
        name = frame.pending.pop()
        try:
            self._enter(name, os.open(name, _OPEN_DIRECTORY, dir_fd=frame.descriptor))
        except OSError as error:
            if error.errno not in _GONE:
                path = self._prefix + b"/" + name if self._prefix else name
                errors.append((path, error.errno or errno.EIO))

    def _go_up(self, errors: list[tuple[bytes, int]]) -> None:
        child = self._leave()
        while self._frames and self._frames[-1].descriptor is None:
            try:
                self._reopen(self._frames[-1], child)
            except OSError as error:
                if self._frames[-1].pending:
                    errors.append((self._prefix, error.errno or errno.EIO))
                self._leave()
        if child is not None:
            os.close(child)

    def _leave(self) -> int | None:
        """Drop the deepest frame. Its descriptor is handed over when the frame above it needs it to be
        reopened.
        """
        frame = self._frames.pop()
        if frame.name:
            self._prefix = self._prefix[: max(len(self._prefix) - len(frame.name) - 1, 0)]
        if frame.descriptor is None:
            return None
        if self._frames and self._frames[-1].descriptor is None:
            return frame.descriptor
        os.close(frame.descriptor)
        return None

    def _reopen(self, frame: _Frame, child: int | None) -> None:
        if child is not None:
            try:
                descriptor = os.open(b"..", _OPEN_DIRECTORY, dir_fd=child)
            except OSError:
                pass
            else:
                if self._adopt(frame, descriptor):
                    return
        start = self._frames[0].descriptor
        assert start is not None
        descriptor = os.dup(start)
        for below in self._frames[1:]:
            above = descriptor
            try:
                descriptor = os.open(below.name, _OPEN_DIRECTORY, dir_fd=above)
            finally:
                os.close(above)
        if not self._adopt(frame, descriptor):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    @staticmethod
    def _adopt(frame: _Frame, descriptor: int) -> bool:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != frame.identity:
            os.close(descriptor)
            return False
        frame.descriptor = descriptor
        return True
