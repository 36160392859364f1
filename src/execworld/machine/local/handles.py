"""Open files, walks and watches, by number, safe against a close while another thread uses them."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from typing import Protocol

from execworld.machine.local.stats import file_stat, target_kind
from execworld.machine.values import (
    MAX_LIST_ENTRIES,
    DirectoryPage,
    KindMask,
    ListedEntry,
)


class EntryStream(Protocol):
    """What os.scandir returns."""

    def __iter__(self) -> Iterator[os.DirEntry[str]]: ...
    def __next__(self) -> os.DirEntry[str]: ...
    def close(self) -> None: ...


class Handle:
    """Something open. It is freed by the last of its users after it was released, never below one that still
    runs.
    """

    __slots__ = ("released", "users")

    def __init__(self) -> None:
        self.users = 0
        self.released = False

    def free(self) -> None:
        raise NotImplementedError

    def wake(self) -> None:
        """Let whoever waits on the handle notice that it was released."""


class FileHandle(Handle):
    __slots__ = ("_entries", "_listing", "descriptor", "path_only")

    def __init__(self, descriptor: int, path_only: bool = False) -> None:
        super().__init__()
        self.descriptor = descriptor
        self.path_only = path_only
        self._entries: EntryStream | None = None
        self._listing = threading.Lock()  # one stream of entries, and it is not safe in itself

    def list(self, limit: int) -> DirectoryPage:
        """The next entries. One that vanished since its name was read is left out."""
        limit = min(limit, MAX_LIST_ENTRIES)
        if limit <= 0:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        found: list[ListedEntry] = []
        with self._listing:
            if self._entries is None:
                self._entries = os.scandir(self.descriptor)
            for entry in listed_entries(self._entries, self.descriptor):
                found.append(entry)
                if len(found) == limit:
                    return DirectoryPage(tuple(found), end=False)
        return DirectoryPage(tuple(found), end=True)

    def free(self) -> None:
        if self._entries is not None:
            self._entries.close()
        os.close(self.descriptor)


def listed_entries(entries: EntryStream, descriptor: int) -> Iterator[ListedEntry]:
    for entry in entries:
        try:
            stat = file_stat(entry.stat(follow_symlinks=False))
        except FileNotFoundError:
            continue
        kind = stat.kind
        if kind is KindMask.SYMLINK:
            kind = target_kind(descriptor, entry.name)
        yield ListedEntry(os.fsencode(entry.name), stat, kind)


class HandleTable:
    """Handles by number. Every method may be called from any thread."""

    __slots__ = ("_closed", "_handles", "_lock")

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __len__(self) -> int:
        return len(self._handles)

    def insert(self, handles: dict[int, Handle]) -> bool:
        """Add handles; False, with nothing added, when the table was closed meanwhile."""
        with self._lock:
            if self._closed:
                return False
            self._handles.update(handles)
            return True

    def borrow(self, number: int) -> Handle | None:
        """The handle, kept usable until it is given back."""
        with self._lock:
            handle = self._handles.get(number)
            if handle is not None:
                handle.users += 1
            return handle

    def give_back(self, handle: Handle) -> None:
        with self._lock:
            handle.users -= 1
            last = handle.released and handle.users == 0
        if last:
            handle.free()

    def release(self, number: int) -> bool:
        """Forget a handle; False when there is none of that number. Errors of close(2) are raised."""
        with self._lock:
            handle = self._handles.pop(number, None)
            if handle is None:
                return False
            handle.released = True
            unused = handle.users == 0
        if unused:
            handle.free()
        else:
            handle.wake()
        return True

    def close(self) -> None:
        """Forget all handles, and take no further ones."""
        with self._lock:
            self._closed = True
            numbers = list(self._handles)
        for number in numbers:
            try:
                self.release(number)
            except OSError:
                continue  # nobody is left who could act on what close(2) says
