"""A content that is written in pieces."""

from __future__ import annotations

from collections.abc import AsyncIterable
from typing import Protocol

from execworld.machine.values import (
    MAX_TRANSFER_BYTES,
)


class Pieces(Protocol):
    """A content in pieces of at most one transfer."""

    async def next(self) -> bytes:
        """The next piece; empty at the end, and ever after."""
        ...


class DataPieces:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    async def next(self) -> bytes:
        piece = self._data[self._position : self._position + MAX_TRANSFER_BYTES]
        self._position += len(piece)
        return piece


class StreamPieces:
    """Chunks of any size, joined and cut."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(chunks)
        self._buffer = bytearray()
        self._end = False

    async def next(self) -> bytes:
        buffer = self._buffer
        while len(buffer) < MAX_TRANSFER_BYTES and not self._end:
            try:
                buffer += await anext(self._chunks)
            except StopAsyncIteration:
                self._end = True
        piece = bytes(buffer[:MAX_TRANSFER_BYTES])
        del buffer[:MAX_TRANSFER_BYTES]
        return piece

    async def aclose(self) -> None:
        """Finish a generator that was not read to its end."""
        close = getattr(self._chunks, "aclose", None)
        if close is not None:
            await close()
