"""A transport over a socket of this host."""

from __future__ import annotations

import errno
import socket
from array import array
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import anyio

from execworld.machine.warden.transport import DirectTransport, LinkEnd, TransportBroken

_MOST_DESCRIPTORS: Final = 253
"""What the kernel passes with one message (SCM_MAX_FD)."""


class SocketTransport(DirectTransport):
    """A stream socket, which must not block."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = memoryview(b"")

    async def receive(self, max_bytes: int) -> bytes:
        while (data := self.receive_now(max_bytes)) is None:
            await self._wait(anyio.wait_readable)
        return data

    def receive_now(self, max_bytes: int) -> bytes | None:
        try:
            return self._read(max_bytes)
        except BlockingIOError:
            return None
        except ConnectionResetError:
            return b""
        except OSError as error:
            raise TransportBroken(error_text(error)) from error

    def call_when_readable(self, call: Callable[[], None]) -> Callable[[], None] | None:
        # anyio can only wait, which takes two turns of the loop and two system calls each time, a tenth of what a
        # command takes.
        import asyncio  # noqa: TID251 - see above; with trio, and wherever this is not asyncio's task, `receive` does

        try:
            if asyncio.current_task() is None:
                return None
            loop, descriptor = asyncio.get_running_loop(), self._socket.fileno()
            loop.add_reader(descriptor, call)
        except (RuntimeError, NotImplementedError):
            return None  # no loop of asyncio runs here, or one that cannot watch a descriptor

        def stop() -> None:
            loop.remove_reader(descriptor)

        return stop

    def send_now(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise TransportBroken(error_text(error)) from error

    async def aclose(self) -> LinkEnd:
        self.close_socket()
        return LinkEnd("it was closed")

    async def wait_sendable(self) -> None:
        await self._wait(anyio.wait_writable)

    def shut_down(self) -> None:
        """End both directions, for whoever holds the socket."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end_output(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close_socket(self) -> None:
        """Whoever waits for the socket fails with `TransportBroken`."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
        self._socket.close()

    def _read(self, max_bytes: int) -> bytes:
        buffer = self._room(max_bytes)
        return buffer[: self._socket.recv_into(buffer)].tobytes()

    def _room(self, max_bytes: int) -> memoryview:
        # The same at each call: to make one and give it back takes ten times as long as to copy a small message.
        if len(self._buffer) != max_bytes:
            self._buffer = memoryview(bytearray(max_bytes))
        return self._buffer

    async def _wait(self, wait: Callable[[socket.socket], Awaitable[None]]) -> None:
        try:
            await wait(self._socket)
        except (OSError, ValueError, anyio.ClosedResourceError, anyio.BusyResourceError) as error:
            raise TransportBroken("the link was closed") from error


class DescriptorTransport(SocketTransport):
    """A UNIX socket whose other end passes descriptors."""

    takes_descriptors = True

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._descriptors: deque[socket.socket] = deque()

    def take_descriptor(self) -> socket.socket | None:
        return self._descriptors.popleft() if self._descriptors else None

    def close_socket(self) -> None:
        while self._descriptors:
            self._descriptors.popleft().close()
        super().close_socket()

    def _read(self, max_bytes: int) -> bytes:
        buffer = self._room(max_bytes)
        size, messages, flags, _ = self._socket.recvmsg_into([buffer], _ROOM, socket.MSG_CMSG_CLOEXEC)
        for level, kind, content in messages:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                found = array("i")
                found.frombytes(content[: len(content) - len(content) % found.itemsize])
                self._descriptors += map(_stream_socket, found)
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, "descriptors were lost on the way to this process")
        return buffer[:size].tobytes()


_ROOM: Final = socket.CMSG_SPACE(_MOST_DESCRIPTORS * array("i").itemsize)


def _stream_socket(descriptor: int) -> socket.socket:
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=descriptor)
    found.setblocking(False)
    return found


def error_text(error: OSError) -> str:
    return error.strerror or errno.errorcode.get(error.errno or 0, str(error))
