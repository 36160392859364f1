"""Raw streams of a process as anyio byte streams."""

from __future__ import annotations

from collections.abc import Callable

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from execworld.machine.base import Machine, NoSuchHandle, StreamClosed


class MachineReceiveStream(ByteReceiveStream):
    """One output stream of a process, unbuffered: not reading it stops the writer."""

    def __init__(
        self, machine: Machine, handle: int, stream: int, count: Callable[[int], None] | None = None
    ) -> None:
        self._count = count
        self._machine = machine
        self._handle = handle
        self._stream = stream
        self._closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            data = await self._machine.receive(self._handle, self._stream, max_bytes)
        except NoSuchHandle as error:
            raise anyio.ClosedResourceError from error
        if not data:
            raise anyio.EndOfStream
        if self._count is not None:
            self._count(len(data))
        return data

    async def aclose(self) -> None:
        self._closed = True


class MachineSendStream(ByteSendStream):
    """Standard input of a process. Closing it is the end of input."""

    def __init__(self, machine: Machine, handle: int) -> None:
        self._machine = machine
        self._handle = handle
        self._closed = False

    async def send(self, item: bytes) -> None:
        if self._closed:
            raise anyio.ClosedResourceError
        try:
            await self._machine.send(self._handle, item)
        except (StreamClosed, NoSuchHandle) as error:
            raise anyio.BrokenResourceError from error

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            await self._machine.close_input(self._handle)
