"""Watches on directories (inotify(7))."""

from __future__ import annotations

import errno
import os
import select
import struct
import sys
from typing import Final

import anyio

from execworld.machine.base import NoSuchHandle, WatchRecord
from execworld.machine.local.calls import inotify_add, inotify_open, inotify_remove
from execworld.machine.local.handles import Handle

MODIFY: Final = 0x2
ATTRIB: Final = 0x4
CLOSE_WRITE: Final = 0x8
MOVED_FROM: Final = 0x40
MOVED_TO: Final = 0x80
CREATE: Final = 0x100
DELETE: Final = 0x200
DELETE_SELF: Final = 0x400
MOVE_SELF: Final = 0x800
ONLY_DIRECTORY: Final = 0x01000000

_MASK: Final = (
    MODIFY
    | ATTRIB
    | CLOSE_WRITE
    | MOVED_FROM
    | MOVED_TO
    | CREATE
    | DELETE
    | DELETE_SELF
    | MOVE_SELF
    | ONLY_DIRECTORY
)
_HEADER: Final = struct.Struct("iIII")
_READ_BYTES: Final = 65536

if sys.platform == "linux":

    class WatchHandle(Handle):
        """An inotify instance, and an event counter that wakes its reader when the handle is released."""

        __slots__ = ("_ready", "_wake", "descriptor")

        def __init__(self) -> None:
            super().__init__()
            self.descriptor = inotify_open()
            self._wake = -1
            self._ready: select.epoll | None = None
            try:
                self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                self._ready = ready = select.epoll()
                ready.register(self.descriptor, select.EPOLLIN)
                ready.register(self._wake, select.EPOLLIN)
            except BaseException:
                self._close_descriptors()
                raise

        def add(self, path: bytes, base: int | None) -> int:
            # By descriptor: a link as last component is not followed, and the path may be longer than
            # PATH_MAX.
            flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            directory = os.open(path, flags, dir_fd=base)
            try:
                return inotify_add(self.descriptor, b"/proc/self/fd/%d" % directory, _MASK)
            finally:
                os.close(directory)

        def remove(self, watch: int) -> None:
            inotify_remove(self.descriptor, watch)

        async def read(self) -> tuple[WatchRecord, ...]:
            assert self._ready is not None
            while not self.released:
                try:
                    data = os.read(self.descriptor, _READ_BYTES)
                except BlockingIOError:
                    await anyio.wait_readable(self._ready)
                    continue
                return _records(data)
            message = "the watch was released"
            raise NoSuchHandle(message)

        def wake(self) -> None:
            os.eventfd_write(self._wake, 1)

        def free(self) -> None:
            self._close_descriptors()

        def _close_descriptors(self) -> None:
            if self._ready is not None:
                self._ready.close()
            if self._wake >= 0:
                os.close(self._wake)
            os.close(self.descriptor)

else:

    class WatchHandle(Handle):
        """Only Linux has inotify."""

        __slots__ = ()

        def __init__(self) -> None:
            super().__init__()
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

        def add(self, path: bytes, base: int | None) -> int:
            raise NotImplementedError

        def remove(self, watch: int) -> None:
            raise NotImplementedError

        async def read(self) -> tuple[WatchRecord, ...]:
            raise NotImplementedError


def _records(data: bytes) -> tuple[WatchRecord, ...]:
    records: list[WatchRecord] = []
    position = 0
    while position < len(data):
        watch, mask, _, length = _HEADER.unpack_from(data, position)
        position += _HEADER.size
        name = data[position : position + length].rstrip(b"\0")
        position += length
        records.append(WatchRecord(watch, mask, name))
    return tuple(records)
