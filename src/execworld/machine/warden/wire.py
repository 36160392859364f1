"""Reading records strictly: what is missing, left over or out of range is `Malformed`, never a guess."""

from __future__ import annotations

import struct
from typing import Final

_U8: Final = struct.Struct("<B")
_U16: Final = struct.Struct("<H")
_U32: Final = struct.Struct("<I")
_U64: Final = struct.Struct("<Q")
_I32: Final = struct.Struct("<i")
_I64: Final = struct.Struct("<q")


class Malformed(Exception):
    """The warden sent what the protocol does not allow. The world is over."""


class Cursor:
    """Takes values from the front of one record."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def u8(self) -> int:
        return int(self.take(_U8)[0])

    def u16(self) -> int:
        return int(self.take(_U16)[0])

    def u32(self) -> int:
        return int(self.take(_U32)[0])

    def u64(self) -> int:
        return int(self.take(_U64)[0])

    def i32(self) -> int:
        return int(self.take(_I32)[0])

    def i64(self) -> int:
        return int(self.take(_I64)[0])

    def flag(self) -> bool:
        value = self.u8()
        if value > 1:
            raise Malformed(f"{value} where 0 or 1 belongs")
        return bool(value)

    def byte_string(self) -> bytes:
        length = self.u32()
        start = self._position
        if length > len(self._data) - start:
            raise Malformed("a byte string is longer than its message")
        self._position = start + length
        return self._data[start : self._position]

    def take(self, layout: struct.Struct) -> tuple[int, ...]:
        start = self._position
        if layout.size > len(self._data) - start:
            raise Malformed("a message ends too early")
        self._position = start + layout.size
        return layout.unpack_from(self._data, start)

    def rest(self) -> bytes:
        start, self._position = self._position, len(self._data)
        return self._data[start:]

    def end(self) -> None:
        """Demand that nothing is left."""
        if self._position != len(self._data):
            raise Malformed("a message is longer than its fields")


def byte_string(data: bytes) -> bytes:
    return _U32.pack(len(data)) + data
