"""Flow control of this side: section 9 of the protocol.

The other side may send only what was granted, so what is held here is bounded; a warden that sends more is at fault.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from execworld.machine.warden.facts import LinkSettings
from execworld.machine.warden.wire import Malformed

_HEAD: Final = struct.Struct("<II")
_ENTRY: Final = struct.Struct("<QBI")
_SMALL_BYTES: Final = 2048
_PIECE_BYTES: Final = 16 * 1024
_WINDOW_STEP_BYTES: Final = 1024 * 1024
_RAISED: Final = 4
"""A stream that keeps up gets this many times the credit that all begin with: giving back costs a message, and each
message wakes everything between here and the warden."""
_RAISED_AT_A_TIME: Final = 4
"""What was raised is held beside the window, so it is for few."""


class StreamBuffer:
    """What came on one stream and was not read yet."""

    __slots__ = (
        "_arrival",
        "_chunks",
        "closed",
        "due",
        "ended",
        "granted",
        "held",
        "raised",
        "read",
        "windowed",
    )

    def __init__(self) -> None:
        self._chunks: deque[bytes | bytearray] = deque()
        self._arrival: anyio.Event | None = None
        self.held = 0  # bytes in the chunks
        self.windowed = 0  # of them, how many are to be given back to the window
        self.granted = 0  # credit beyond what every stream begins with
        self.raised = 0  # of that, what it has because it keeps up
        self.read = 0  # bytes that were ever read
        self.due = 0  # bytes that were read and not given back yet
        self.ended = False
        self.closed = False

    @property
    def waits(self) -> bool:
        """Whether a reader has to wait."""
        return not (self.held or self.ended or self.closed)

    def add(self, data: bytes) -> None:
        self.held += len(data)
        last = self._chunks[-1] if self._chunks else None
        # A writer may cut its output into single bytes; an object for each would break the bound on memory.
        if isinstance(last, bytearray) and len(last) < _PIECE_BYTES:
            last += data
        else:
            self._chunks.append(data if len(data) > _SMALL_BYTES else bytearray(data))

    def take(self, max_bytes: int) -> bytes:
        chunks = self._chunks
        if self.held <= max_bytes:
            data = bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)
            chunks.clear()
        else:
            data = self._take_some(max_bytes)
        self.held -= len(data)
        return data

    def _take_some(self, max_bytes: int) -> bytes:
        taken: list[bytes | bytearray] = []
        while max_bytes:
            chunk = self._chunks.popleft()
            if len(chunk) > max_bytes:
                taken.append(chunk[:max_bytes])
                self._chunks.appendleft(chunk[max_bytes:])
                break
            taken.append(chunk)
            max_bytes -= len(chunk)
        return b"".join(taken)

    def drop(self) -> None:
        self._chunks.clear()
        self.held = 0

    async def arrival(self) -> None:
        """Wait until `wake` is called."""
        if self._arrival is None:
            self._arrival = anyio.Event()
        await self._arrival.wait()

    def wake(self) -> None:
        if self._arrival is not None:
            self._arrival.set()
            self._arrival = None


class CreditLedger:
    """What was granted, what came, and what is to be given back.

    Args:
        send: Takes the body of a CREDIT message.
    """

    def __init__(self, settings: LinkSettings, send: Callable[[bytes], None]) -> None:
        self._stream_credit = settings.stream_credit_bytes
        self._floor = settings.stream_floor_bytes
        self._window = settings.window_bytes
        self._window_step = min(_WINDOW_STEP_BYTES, settings.window_bytes // 2)
        self._send = send
        self._outstanding = 0  # bytes of the window that were not given back
        self._window_due = 0
        self._raises_left = _RAISED_AT_A_TIME
        self._due: dict[tuple[int, int], StreamBuffer] = {}

    def came(self, stream: StreamBuffer | None, size: int, *, windowed: bool) -> None:
        """Account for data; without a stream it is thrown away.

        Raises:
            Malformed: the warden had no credit for it.
        """
        if not size:
            return
        if windowed:
            self._outstanding += size
            if self._outstanding > self._window:
                raise Malformed("data beyond the window of the connection")
        if stream is None:
            self._window_due += size * windowed
        else:
            unreturned = stream.held + stream.due + size
            if unreturned - stream.granted > (self._stream_credit if windowed else self._floor):
                raise Malformed("data beyond the credit of its stream")
            stream.windowed += size * windowed
        self._flush_when_due()

    def grant(self, key: tuple[int, int], stream: StreamBuffer, size: int) -> None:
        """Let *stream* send *size* bytes more ahead of its reader, from now on. The window still bounds it."""
        stream.granted += size
        self._send(_HEAD.pack(0, 1) + _ENTRY.pack(*key, size))

    def consumed(self, key: tuple[int, int], stream: StreamBuffer, size: int) -> None:
        """*size* bytes were taken from *stream*."""
        # In whatever order they came, those of the window first: it is shared, and both sums stay true.
        from_window = min(size, stream.windowed)
        stream.windowed -= from_window
        self._window_due += from_window
        stream.read += size
        if not stream.ended:
            stream.due += size
            self._due[key] = stream
            self._raise(stream)
        if stream.due >= (self._stream_credit + stream.raised) // 2:
            self._flush()
        else:
            self._flush_when_due()

    def gave_up(self, key: tuple[int, int], stream: StreamBuffer) -> None:
        """Nobody will read *stream* any more."""
        self._due.pop(key, None)
        self._window_due += stream.windowed
        stream.windowed = stream.due = 0
        self._raises_left += bool(stream.raised)
        self._flush_when_due()

    def _raise(self, stream: StreamBuffer) -> None:
        """Let *stream* run further ahead if its reader takes all that comes."""
        keeps_up = not stream.held and stream.read >= _RAISED * self._stream_credit
        if keeps_up and not stream.raised and self._raises_left:
            self._raises_left -= 1
            stream.raised = (_RAISED - 1) * self._stream_credit
            stream.granted += stream.raised
            stream.due += stream.raised

    def _flush_when_due(self) -> None:
        # With more than half of the window out, a stream that was read must not wait for more to give back: all of
        # the window may be with streams that nobody reads, and this one could send nothing on either account.
        pressed = 2 * self._outstanding > self._window and (self._window_due or self._due)
        if pressed or self._window_due >= self._window_step:
            self._flush()

    def _flush(self) -> None:
        entries = [_ENTRY.pack(handle, number, stream.due) for (handle, number), stream in self._due.items()]
        body = _HEAD.pack(self._window_due, len(entries)) + b"".join(entries)
        for stream in self._due.values():
            stream.due = 0
        self._due.clear()
        self._outstanding -= self._window_due
        self._window_due = 0
        self._send(body)
