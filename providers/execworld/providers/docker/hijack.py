"""The data plane: one stream that the engine has handed over, always drained.

In one direction it carries what the warden reads. In the other come frames of the engine, with a header of eight bytes:
the warden's standard output, which is the protocol, and its standard error, of which the end is kept for messages.
The engine writes the headers; all that they frame comes from the container, which may be hostile.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import anyio
import anyio.to_thread

from execworld.machine.warden.sockets import SocketTransport
from execworld.machine.warden.transport import FarSideGone, LinkEnd, Transport, TransportBroken

if TYPE_CHECKING:
    from paramiko import Channel

_STDOUT: Final = 1
_STDERR: Final = 2
_ENGINE_ERROR: Final = 3
_HEADER_BYTES: Final = 8
_MOST_FRAME_BYTES: Final = 1024 * 1024
"""Engines send up to 32 KiB in one. A longer one means that no frames come at all, as from a terminal."""
_KEPT_BYTES: Final = 4096
_READ_BYTES: Final = 64 * 1024


class FrameReader:
    """Takes the frames of the engine apart, wherever they are cut. Holds no more than a header and the kept text."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._stream = 0
        self._left = 0
        self._kept = bytearray()

    def feed(self, data: bytes | memoryview) -> bytes:
        """The standard output in *data*.

        Raises:
            TransportBroken: these are no frames, or the engine reports an error of its own.
        """
        view = memoryview(data)
        output: list[memoryview] = []
        while view:
            if not self._left:
                taken = _HEADER_BYTES - len(self._header)
                self._header += view[:taken]
                view = view[taken:]
                if len(self._header) == _HEADER_BYTES:
                    self._begin()
                continue
            piece, view = view[: self._left], view[self._left :]
            self._left -= len(piece)
            if self._stream == _STDOUT:
                output.append(piece)
            else:
                self._keep(piece)
                if self._stream == _ENGINE_ERROR and not self._left:
                    raise TransportBroken(f"the engine broke off the stream: {self.said}")
        return b"".join(output)

    @property
    def said(self) -> str:
        """The end of the standard error."""
        return self._kept.decode("utf-8", "replace").strip()

    def _begin(self) -> None:
        stream, padding = self._header[0], self._header[1:4]
        length = int.from_bytes(self._header[4:], "big")
        if stream not in (_STDOUT, _STDERR, _ENGINE_ERROR) or any(padding) or length > _MOST_FRAME_BYTES:
            raise TransportBroken(f"what the engine sends is not framed: {bytes(self._header)!r}")
        self._header.clear()
        self._stream, self._left = stream, length

    def _keep(self, piece: memoryview) -> None:
        self._kept += piece[-_KEPT_BYTES:]
        del self._kept[:-_KEPT_BYTES]


class Ending(Protocol):
    """What belongs to the container at the far end of a stream."""

    async def explain(self, said: str) -> FarSideGone | None:
        """Why the stream has ended, or is about to, when that can be found out.

        *said* is the end of the standard error.
        """
        ...

    async def excuse_silence(self) -> bool:
        """Whether the container is known to be held up, so that its silence means nothing."""
        ...

    async def end(self, said: str) -> LinkEnd:
        """The stream is closed: end what was at its far end, or wait until it has ended. Bounded in time."""
        ...


class Closable(Protocol):
    def close(self) -> None: ...


@dataclass(slots=True)
class Hijacked:
    """A connection that the engine has handed over, torn out of the SDK.

    Attributes:
        wire: The connection itself, which belongs to whoever holds this: a socket that does not wait, or a channel
            of SSH.
        received: What had come already, and lies in no buffer any more.
        holders: What of the SDK holds the same connection, and must be closed as well.
    """

    wire: socket.socket | Channel
    received: bytes = b""
    holders: list[Closable] = field(default_factory=list[Closable])

    def close(self) -> None:
        for holder in (*self.holders, self.wire):
            with suppress(OSError, ValueError):  # a reader of the SDK whose socket is closed already
                holder.close()


def take_over(handed: Any, response: Any) -> Hijacked:
    """Tear a stream out of the SDK, with what its reader of the response has taken in beyond the head.

    The SDK hands out the socket below a buffered reader. What came in one piece with the head of the response lies in
    the buffer of that reader, and whoever reads the socket never sees it.

    Args:
        handed: What the SDK returned for the stream.
        response: Of the request that asked for it.
    """
    reader = response.raw._fp.fp
    if hasattr(handed, "recv_ready"):  # a channel of SSH
        received = bytes(reader._rbuffer)
        handed.settimeout(None)
        # Closing would give the pool a connection that the next request opens again, by one session more.
        response.raw._pool = None
        return Hijacked(handed, received, [response])
    inner: socket.socket = getattr(handed, "_sock", handed)
    inner.setblocking(False)
    # At most one read of what is there already, and nothing waits for more.
    received = reader.peek(_READ_BYTES)
    wire = inner.dup()
    wire.setblocking(False)
    return Hijacked(wire, bytes(received), [response, handed, inner])


class _Drained:
    """What both transports below do beside reading and writing."""

    def __init__(self, hijacked: Hijacked, ending: Ending) -> None:
        self.hijacked = hijacked
        self.frames = FrameReader()
        self._ending = ending
        self._closing: anyio.Event | None = None
        self._end = LinkEnd("")
        self.given_back = b""

    def first_output(self, max_bytes: int) -> bytes:
        """The standard output in what came before the stream was handed over, as far as it was not asked for yet."""
        output, self.given_back = self.given_back[:max_bytes], self.given_back[max_bytes:]
        while (received := self.hijacked.received) and not output:
            self.hijacked.received = received[max_bytes:]
            output = self.frames.feed(received[:max_bytes])
        return output

    async def explain_end(self) -> FarSideGone | None:
        return await self._ending.explain(self.frames.said)

    async def excuse_silence(self) -> bool:
        return await self._ending.excuse_silence()

    async def aclose(self) -> LinkEnd:
        if self._closing is None:
            self._closing = anyio.Event()
            try:
                self.hijacked.close()
                self._end = await self._ending.end(self.frames.said)
            finally:
                self._closing.set()
        await self._closing.wait()
        return self._end


class HijackedSocket(SocketTransport):
    """Over a socket of this process: UNIX or plain TCP."""

    def __init__(self, hijacked: Hijacked, ending: Ending) -> None:
        assert isinstance(hijacked.wire, socket.socket)
        super().__init__(hijacked.wire)
        self._drained = _Drained(hijacked, ending)
        self._takes_nothing = False

    def give_back(self, data: bytes) -> None:
        """Have `receive` return *data*, which it returned before, once more. Only while nobody is in it."""
        self._drained.given_back = data + self._drained.given_back

    def send_now(self, data: memoryview) -> int:
        # That nothing can be sent is no reason. The reader meets the end of the stream too, and finds the reason out.
        try:
            return 0 if self._takes_nothing else super().send_now(data)
        except TransportBroken:
            self._takes_nothing = True
            return 0

    async def wait_sendable(self) -> None:
        if self._takes_nothing:
            await anyio.sleep_forever()
        await super().wait_sendable()

    async def explain_end(self) -> FarSideGone | None:
        return await self._drained.explain_end()

    async def excuse_silence(self) -> bool:
        return await self._drained.excuse_silence()

    async def aclose(self) -> LinkEnd:
        self.close_socket()
        return await self._drained.aclose()

    def _read(self, max_bytes: int) -> bytes:
        if output := self._drained.first_output(max_bytes):
            return output
        buffer = self._room(max_bytes)
        size = self._socket.recv_into(buffer)
        if size and not (output := self._drained.frames.feed(buffer[:size])):
            # Nothing of it is output. What more there is comes with the next call, so that others get their turn.
            raise BlockingIOError
        return output


class HijackedChannel(Transport):
    """Over a channel of SSH, which only threads can wait for."""

    def __init__(self, hijacked: Hijacked, ending: Ending) -> None:
        self._channel: Any = hijacked.wire
        self._drained = _Drained(hijacked, ending)
        # One thread each way, whatever else the program does in threads.
        self._reading, self._writing = anyio.CapacityLimiter(1), anyio.CapacityLimiter(1)
        self._lock = threading.Lock()

    async def receive(self, max_bytes: int) -> bytes:
        if output := self._drained.first_output(max_bytes):
            return output
        while data := await self._read(max_bytes):
            if output := self._drained.frames.feed(data):
                return output
        return b""

    def give_back(self, data: bytes) -> None:
        """Have `receive` return *data*, which it returned before, once more. Only while nobody is in it."""
        self._drained.given_back = data + self._drained.given_back

    async def send(self, data: bytes) -> None:
        # Abandoned only when the stream is closed, which ends the thread.
        await anyio.to_thread.run_sync(self._write, data, abandon_on_cancel=True, limiter=self._writing)

    async def explain_end(self) -> FarSideGone | None:
        return await self._drained.explain_end()

    async def excuse_silence(self) -> bool:
        return await self._drained.excuse_silence()

    async def aclose(self) -> LinkEnd:
        return await self._drained.aclose()

    async def _read(self, max_bytes: int) -> bytes:
        def read() -> bytes:
            try:
                data: bytes = self._channel.recv(max_bytes)
            except OSError as error:
                raise TransportBroken(str(error)) from error
            return data

        return await anyio.to_thread.run_sync(read, abandon_on_cancel=True, limiter=self._reading)

    def _write(self, data: bytes) -> None:
        try:
            self._channel.sendall(data)
        except OSError as error:
            raise TransportBroken(str(error)) from error


def transport_over(hijacked: Hijacked, ending: Ending) -> HijackedSocket | HijackedChannel:
    """The transport for *hijacked*, which it closes; *ending* is asked about its far side."""
    if isinstance(hijacked.wire, socket.socket):
        return HijackedSocket(hijacked, ending)
    return HijackedChannel(hijacked, ending)
