"""Stream connections opened from this host."""

from __future__ import annotations

import os
import socket

import anyio

from execworld.machine.base import STDOUT, StreamClosed
from execworld.machine.operations import Connect
from execworld.machine.values import AddressKind


class LocalConnection:
    """One connected socket. Its input is the stream that the other side sends, number 1."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._shut = False

    async def receive(self, stream: int, max_bytes: int) -> bytes:
        if stream != STDOUT:
            return b""
        while True:
            try:
                return self._socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except ConnectionResetError:
                return b""

    async def send(self, data: bytes) -> None:
        if self._shut:
            raise StreamClosed
        view = memoryview(data)
        while view:
            try:
                view = view[self._socket.send(view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise StreamClosed from error

    def close_input(self) -> None:
        if not self._shut:
            self._shut = True
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                return  # the other side is gone already

    def close(self) -> None:
        anyio.notify_closing(self._socket)
        self._socket.close()

    def close_blocking(self) -> None:
        """Close a connection that no task has seen yet."""
        self._socket.close()


def open_connection(step: Connect) -> LocalConnection:
    """Connect; blocks until the other side answered.

    Raises:
        OSError: it did not.
    """
    if step.kind is AddressKind.UNIX:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address: object = os.fsdecode(step.host)
    else:
        host = step.host.decode("ascii", "replace")
        connected = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        address = (host, step.port)
    try:
        connected.connect(address)  # type: ignore[arg-type]  # the pair or the path that the family above wants
        connected.setblocking(False)
    except BaseException:
        connected.close()
        raise
    return LocalConnection(connected)
