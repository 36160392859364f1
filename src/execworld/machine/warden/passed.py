"""A cell whose stream the warden passed to this process: section 12 of the protocol."""

from __future__ import annotations

from typing import TypeAlias

import anyio
import anyio.lowlevel

from execworld.machine.base import NoSuchHandle, StreamClosed
from execworld.machine.warden.credit import StreamBuffer
from execworld.machine.warden.handles import RemoteConnection, RemoteProcess, RemoteWatch
from execworld.machine.warden.link import Link
from execworld.machine.warden.sockets import SocketTransport
from execworld.machine.warden.transport import TransportBroken


class RemoteCell:
    """Its stream is a socket of this process, which ends with the handle, or when the world is lost.

    Attributes:
        used: By somebody who closes the stream.
    """

    __slots__ = ("_handle", "_sending", "released", "stream", "streams", "used")

    def __init__(self, handle: int, stream: SocketTransport) -> None:
        self.released = False
        self.stream = stream
        self.streams: dict[int, StreamBuffer] = {}
        self.used = False
        self._handle = handle
        self._sending = anyio.Lock()

    def wake(self) -> None:
        """The world or the handle is gone: reading comes to the end, and nothing can be sent any more."""
        self.stream.shut_down()
        if not self.used:
            self.stream.close_socket()

    async def receive(self, link: Link, max_bytes: int) -> bytes:
        """As `Machine.receive`."""
        await anyio.lowlevel.checkpoint()
        try:
            data = await self.stream.receive(max_bytes)
        except TransportBroken:
            data = b""
        if not data:
            self._check(link, "machine.receive")
        return data

    async def send(self, link: Link, data: bytes) -> None:
        """As `Machine.send`."""
        async with self._sending:
            try:
                await self.stream.send(data)
            except TransportBroken as error:
                self._check(link, "machine.send")
                raise StreamClosed from error

    def _check(self, link: Link, op: str) -> None:
        if link.lost:
            raise link.outcome_unknown(op)
        if self.released:
            raise NoSuchHandle(f"{self._handle} was released")


RemoteHandle: TypeAlias = RemoteProcess | RemoteConnection | RemoteWatch | RemoteCell
