"""Frames: section 3 of the protocol."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from execworld.machine.warden.wire import Malformed

VERSION: Final = 2
WARDEN_PREAMBLE: Final = b"EXECWORLD-WARD\r\n"
HOST_PREAMBLE: Final = b"EXECWORLD-HOST\r\n"
MAX_NOISE_BYTES: Final = 65536
MAX_BODY_BYTES: Final = 1024 * 1024
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
PIECE_BYTES: Final = 64 * 1024
"""Longest body that this side sends, so that control messages need not wait for a long one to pass."""

_HEADER: Final = struct.Struct("<IBBHQ")
HEADER_BYTES: Final = _HEADER.size
_MORE: Final = 1


class HostMessage(IntEnum):
    HELLO = 0x01
    BATCH = 0x02
    SEND = 0x03
    CLOSE_INPUT = 0x04
    SIGNAL = 0x05
    KILL_TREE = 0x06
    RESIZE = 0x07
    FOREGROUND = 0x08
    RELEASE = 0x09
    PING = 0x0A
    FACTS = 0x0B
    CREDIT = 0x0C
    CANCEL = 0x0D
    CLOSE = 0x0E
    MAKE_CELL = 0x10
    DROP_CELL = 0x11


class WardenMessage(IntEnum):
    HELLO = 0x80
    REPLY = 0x81
    DATA = 0x82
    EXIT = 0x83
    TREE_GONE = 0x84
    INPUT_CLOSED = 0x85
    ENDING = 0x86


_KINDS: Final = {int(kind): kind for kind in WardenMessage}


class Frame(NamedTuple):
    """One frame of the warden; *body* is valid until the next call of the parser."""

    kind: WardenMessage
    more: bool
    request: int
    body: memoryview


class FrameParser:
    """Cuts a byte stream into frames. Holds at most one unfinished frame."""

    __slots__ = ("_needed", "_rest")

    def __init__(self) -> None:
        self._rest = bytearray()
        self._needed = HEADER_BYTES

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that *data* completes; must be exhausted.

        Raises:
            Malformed: the stream is broken from here on; frames before that were returned.
        """
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data, self._rest = bytes(self._rest), bytearray()
        view, position, size = memoryview(data), 0, len(data)
        self._needed = HEADER_BYTES
        while size - position >= HEADER_BYTES:
            length, number, flags, zero, request = _HEADER.unpack_from(data, position)
            kind = _checked_header(length, number, flags, zero, request)
            end = position + HEADER_BYTES + length
            if end > size:
                self._needed = HEADER_BYTES + length
                break
            yield Frame(kind, flags == _MORE, request, view[position + HEADER_BYTES : end])
            position = end
        self._rest += view[position:]


def _checked_header(length: int, number: int, flags: int, zero: int, request: int) -> WardenMessage:
    kind = _KINDS.get(number)
    if kind is None:
        raise Malformed(f"unknown type of message {number:#x}")
    is_reply = kind is WardenMessage.REPLY
    if length > MAX_BODY_BYTES:
        raise Malformed(f"a frame of {length} bytes")
    if zero or flags > _MORE or (flags and not is_reply):
        raise Malformed("reserved bits of a frame are set")
    if (request != 0) != is_reply:
        raise Malformed(f"request number {request} in a message of type {number:#x}")
    return kind


def split_greeting(data: bytes) -> tuple[bytes, bytes] | None:
    """The body of the warden's HELLO, and what came behind it; None when more is needed.

    Raises:
        Malformed: there will be none, whatever follows.
    """
    start = data.find(WARDEN_PREAMBLE)
    if start < 0:
        if len(data) > MAX_NOISE_BYTES + len(WARDEN_PREAMBLE):
            raise Malformed(f"no greeting of a warden in {len(data)} bytes")
        return None
    position = start + len(WARDEN_PREAMBLE)
    if len(data) - position < HEADER_BYTES:
        return None
    length, number, flags, zero, request = _HEADER.unpack_from(data, position)
    if _checked_header(length, number, flags, zero, request) is not WardenMessage.HELLO:
        raise Malformed("something else than a greeting comes first")
    position += HEADER_BYTES
    if len(data) - position < length:
        return None
    return data[position : position + length], data[position + length :]


def encode_message(kind: HostMessage, request: int, body: bytes) -> list[bytes]:
    """The frames of one message. Only a batch may come in several; the plan of a cell may fill the longest frame."""
    size = len(body)
    if size <= PIECE_BYTES or kind is HostMessage.MAKE_CELL:
        assert size <= MAX_BODY_BYTES
        return [_HEADER.pack(size, kind, 0, 0, request) + body]
    assert kind is HostMessage.BATCH
    frames: list[bytes] = []
    for start in range(0, size, PIECE_BYTES):
        piece = body[start : start + PIECE_BYTES]
        more = _MORE if start + PIECE_BYTES < size else 0
        frames.append(_HEADER.pack(len(piece), kind, more, 0, request) + piece)
    return frames
