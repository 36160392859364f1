"""Whole contents, ranges and streams, each through one open handle that nothing could have blocked."""

from __future__ import annotations

import codecs
import errno
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from execworld.machine.batch import Batch, BatchFailed, Step
from execworld.machine.fs.access import Call
from execworld.machine.fs.text import (
    BINARY_WINDOW_BYTES,
    TextError,
    check_binary,
    decode_text,
    exact_encoding,
    undecodable,
)
from execworld.machine.operations import (
    Check,
    Close,
    Open,
    Read,
    ReadAt,
    Stat,
    StatHandle,
)
from execworld.machine.values import MAX_TRANSFER_BYTES, FileStat, KindMask
from execworld.seams.errors import FileError, FileMissing, NotText, TooLarge

_CHUNK_BYTES: Final = 256 * 1024
_READS_A_BATCH: Final = 4
_MAX_OFFSET: Final = 2**63 - 1


def add_open(
    batch: Batch,
    path: bytes,
    *,
    max_size: int | None = None,
    version: tuple[int, int, int, int, int | None] | None = None,
    max_links: int = 0,
) -> tuple[Step[int], Step[FileStat]]:
    """Open a regular file for reading. What is there is looked at before it is opened, since opening a FIFO
    or a device can block or act, and again through the handle, since it may have been replaced in between."""
    before = batch.add(Stat(path))
    batch.add(Check(before.index, KindMask.FILE, version, max_links, max_size))
    opened = batch.add(Open(path))
    stat = batch.add(StatHandle(opened.handle))
    batch.add(Check(stat.index, KindMask.FILE, version, max_links, max_size))
    return opened, stat


def read_error(call: Call, failure: BatchFailed) -> FileError:
    """A path through a file names nothing."""
    if failure.error.status == errno.ENOTDIR:
        return call.error(
            errno.ENOTDIR, kind=FileMissing, text="it leads through something that is no directory"
        )
    return call.failure(failure)


async def read_bytes(call: Call, max_bytes: int) -> bytes:
    if max_bytes < 0:
        message = "max_bytes must not be negative"
        raise ValueError(message)
    batch = Batch()
    opened, _ = add_open(batch, call.display, max_size=max_bytes)
    size = min(MAX_TRANSFER_BYTES, max_bytes + 1)
    content = batch.add(Read(opened.handle, size, close_at_end=True))
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        raise read_error(call, failure) from failure
    data = results[content]
    if len(data) < size:
        return data
    return await read_on(call, results[opened], data, max_bytes)


async def read_on(call: Call, handle: int, beginning: bytes, max_bytes: int) -> bytes:
    """The rest of a file whose *beginning* filled a whole step. The handle is closed in every case."""
    parts, size = [beginning], len(beginning)
    try:
        while size <= max_bytes:
            batch = Batch()
            wanted: list[tuple[Step[bytes], int]] = []
            ahead = size
            for _ in range(_READS_A_BATCH):
                step_size = min(MAX_TRANSFER_BYTES, max_bytes + 1 - ahead)
                if step_size <= 0:
                    break
                # A step after the one that met the end finds the handle closed.
                read = batch.add(Read(handle, step_size, close_at_end=True), tolerate=(errno.EBADF,))
                wanted.append((read, step_size))
                ahead += step_size
            results = await call.run_plain(batch)
            for read, step_size in wanted:
                data = results.get(read) or b""
                parts.append(data)
                size += len(data)
                if len(data) < step_size and size <= max_bytes:
                    return b"".join(parts)
    finally:
        await call.access.release(handle)
    text = f"it is larger than the limit of {max_bytes} bytes"
    raise call.refusal(TooLarge, text, hint="read a range or stream it")


async def read_range(call: Call, offset: int, size_bytes: int) -> bytes:
    if not 0 <= offset <= _MAX_OFFSET or size_bytes < 0:
        message = "offset and size_bytes must not be negative, nor offset beyond 2**63 - 1"
        raise ValueError(message)
    size_bytes = min(size_bytes, _MAX_OFFSET - offset)
    batch = Batch()
    opened, _ = add_open(batch, call.display)
    first = min(size_bytes, MAX_TRANSFER_BYTES)
    content = batch.add(ReadAt(opened.handle, offset, first))
    if first == size_bytes:
        batch.add(Close(opened.handle))
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        raise read_error(call, failure) from failure
    data = results[content]
    if first == size_bytes:
        return data
    handle = results[opened]
    parts, size = [data], len(data)
    try:
        while len(data) == first and size < size_bytes:
            first = min(size_bytes - size, MAX_TRANSFER_BYTES)
            batch = Batch()
            content = batch.add(ReadAt(handle, offset + size, first))
            data = (await call.run_plain(batch))[content]
            parts.append(data)
            size += len(data)
    finally:
        await call.access.release(handle)
    return b"".join(parts)


async def read_text(call: Call, encoding: str, max_bytes: int) -> str:
    exact_encoding(encoding, b"")
    data = await read_bytes(call, max_bytes)
    try:
        return decode_text(data, encoding)
    except TextError as error:
        raise not_text(call, error) from error


def not_text(call: Call, error: TextError) -> FileError:
    return call.refusal(NotText, str(error), hint="name another encoding, or work with its bytes")


class _Chunks:
    """The content of an open handle. Not an async generator, so that leaving it early leaves nothing to
    finalise.
    """

    def __init__(self, call: Call, handle: int, first: bytes) -> None:
        self._call = call
        self._handle = handle
        self._first: bytes | None = first
        self._end = len(first) < _CHUNK_BYTES

    def __aiter__(self) -> _Chunks:
        return self

    async def __anext__(self) -> bytes:
        data, self._first = self._first, None
        if data is None:
            if self._end:
                raise StopAsyncIteration
            batch = Batch()
            content = batch.add(Read(self._handle, _CHUNK_BYTES))
            data = (await self._call.run_plain(batch))[content]
            self._end = len(data) < _CHUNK_BYTES
        if not data:
            raise StopAsyncIteration
        return data


class _TextChunks:
    def __init__(self, call: Call, chunks: _Chunks, encoding: str) -> None:
        self._call = call
        self._chunks = chunks
        self._encoding = encoding
        self._exact = ""
        self._decoder: codecs.IncrementalDecoder | None = None
        self._seen = 0
        self._end = False

    def __aiter__(self) -> _TextChunks:
        return self

    async def __anext__(self) -> str:
        while not self._end:
            data = await anext(self._chunks, b"")
            self._end = not data
            try:
                text = self._decode(data)
            except TextError as error:
                self._end = True
                raise not_text(self._call, error) from error
            if text:
                return text
        raise StopAsyncIteration

    def _decode(self, data: bytes) -> str:
        if self._decoder is None:
            self._exact = exact_encoding(self._encoding, data[:4])
            self._decoder = codecs.getincrementaldecoder(self._exact)("strict")
        if self._seen < BINARY_WINDOW_BYTES:
            check_binary(data[: BINARY_WINDOW_BYTES - self._seen], self._exact)
        self._seen += len(data)
        try:
            return self._decoder.decode(data, final=not data)
        except UnicodeError as error:
            raise undecodable(error, self._exact) from error


@asynccontextmanager
async def open_reader(call: Call) -> AsyncGenerator[_Chunks]:
    batch = Batch()
    opened, _ = add_open(batch, call.display)
    content = batch.add(Read(opened.handle, _CHUNK_BYTES))
    try:
        results = await call.run(batch)
    except BatchFailed as failure:
        raise read_error(call, failure) from failure
    handle = results[opened]
    try:
        yield _Chunks(call, handle, results[content])
    finally:
        await call.access.release(handle)


@asynccontextmanager
async def open_text_reader(call: Call, encoding: str) -> AsyncGenerator[_TextChunks]:
    exact_encoding(encoding, b"")
    async with open_reader(call) as chunks:
        yield _TextChunks(call, chunks, encoding)
