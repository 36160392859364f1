"""Our own standard streams, read and written without ever blocking the event loop or changing them for others."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import sys
from collections.abc import AsyncIterator
from typing import Final

import anyio
from anyio.lowlevel import checkpoint

from execworld.cli.messages import OutputClosed

_CHUNK_BYTES: Final = 65536


class Sink:
    """A descriptor that bytes go to.

    The flag O_NONBLOCK belongs to the open file, which we share with whoever started us: setting it would break
    their writes. So a pipe or terminal is opened once more for ourselves; a socket is told so at each call; and where
    neither can be done, no more is written at once than what is certain not to block (PIPE_BUF, write(2)).
    """

    def __init__(self, descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        self._descriptor = descriptor
        self._owned: int | None = None
        self._socket: socket.socket | None = None
        self._closed = False
        self._piece_bytes = _CHUNK_BYTES * 16
        self._waits_first = False
        if stat.S_ISSOCK(mode):
            self._socket = socket.socket(fileno=os.dup(descriptor))
        elif stat.S_ISFIFO(mode) or os.isatty(descriptor):
            self._open_for_ourselves(descriptor)

    def _open_for_ourselves(self, descriptor: int) -> None:
        if sys.platform == "linux":
            try:
                flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
                self._owned = os.open(f"/proc/self/fd/{descriptor}", flags)
                return
            except OSError as error:
                self._closed = error.errno == errno.ENXIO  # a pipe without a reader
        self._piece_bytes = select.PIPE_BUF
        self._waits_first = True

    async def write(self, data: bytes) -> None:
        """Write all of *data*, as slowly as the reader takes it.

        Raises:
            OutputClosed: there is no reader any more.
        """
        if self._closed:
            raise OutputClosed
        target = self._descriptor if self._owned is None else self._owned
        view = memoryview(data)
        while view:
            if self._waits_first:
                await anyio.wait_writable(target)
            try:
                view = view[self._write_some(target, view[: self._piece_bytes]) :]
            except BlockingIOError:
                await anyio.wait_writable(target)
            except (BrokenPipeError, ConnectionResetError):
                self._closed = True
                raise OutputClosed from None
        await checkpoint()

    def _write_some(self, target: int, view: memoryview) -> int:
        if self._socket is not None:
            return self._socket.send(view, socket.MSG_DONTWAIT)
        return os.write(target, view)

    def close(self) -> None:
        """Free what was opened; the descriptor itself stays open."""
        if self._owned is not None:
            os.close(self._owned)
            self._owned = None
        if self._socket is not None:
            self._socket.close()


def carries_input(descriptor: int) -> bool:
    """Whether there is input that somebody meant to be read: a pipe, a socket or a file; no terminal, no device."""
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)


async def read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    """The bytes of *descriptor* to its end."""
    mode = os.fstat(descriptor).st_mode
    waits = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(descriptor)
    while True:
        if waits:
            await anyio.wait_readable(descriptor)
        else:
            await checkpoint()  # a file is always readable, and no event loop will watch it
        try:
            chunk = os.read(descriptor, _CHUNK_BYTES)
        except BlockingIOError:
            continue  # somebody else was faster
        except OSError as error:
            if error.errno == errno.EIO:
                return  # the terminal is gone
            raise
        if not chunk:
            return
        yield chunk
