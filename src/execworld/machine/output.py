"""Bounded windows over output streams: an exact head, an exact tail, exact counts of what was dropped."""

from __future__ import annotations

from collections import deque

import anyio

from execworld.machine.spill import SpillFile
from execworld.seams.results import Output, OutputLimits, OutputSlice


class OutputWindow:
    """Keeps the first and the last bytes of one stream, whatever chunks it arrives in."""

    def __init__(self, limits: OutputLimits, spill: SpillFile | None = None) -> None:
        self._limits = limits
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._dropped_bytes = 0
        self._dropped_lines = 0
        self._ended = False
        self._spill = spill
        self._progress: anyio.Event | None = None

    @property
    def total_bytes(self) -> int:
        return len(self._head) + self._dropped_bytes + self._tail_bytes

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def spills(self) -> bool:
        """Whether there is anything to `seal`."""
        return self._spill is not None

    async def add(self, chunk: bytes) -> None:
        """Take in the next bytes; waits only for the spill file."""
        if self._spill is not None:
            kept_so_far = b"" if self._dropped_bytes else bytes(self._head) + b"".join(self._tail)
            capacity = self._limits.head_bytes + self._limits.tail_bytes
            if self.total_bytes + len(chunk) > capacity:
                await self._spill.append(kept_so_far, self.total_bytes, chunk)
        self._keep(chunk)
        self._notify()

    def end(self) -> None:
        self._ended = True
        self._notify()

    async def reached(self, position: int) -> None:
        """Wait until *position* bytes arrived in all, or the stream ended."""
        while self.total_bytes < position and not self._ended:
            await self._next()

    async def reached_end(self) -> None:
        while not self._ended:
            await self._next()

    async def seal(self) -> None:
        """Close the spill file."""
        if self._spill is not None:
            await self._spill.close()

    def snapshot(self) -> Output:
        return Output(
            head=bytes(self._head),
            tail=b"".join(self._tail),
            total_bytes=self.total_bytes,
            dropped_bytes=self._dropped_bytes,
            dropped_lines=self._dropped_lines,
            spill_path=self._spill.path if self._spill is not None and self._dropped_bytes else None,
            spill_error=self._spill.error if self._spill is not None else "",
            complete=self._ended,
        )

    def read_from(self, offset: int) -> OutputSlice:
        if not 0 <= offset <= self.total_bytes:
            raise ValueError(f"offset {offset} is not between 0 and {self.total_bytes}")
        head_end = len(self._head)
        tail_start = head_end + self._dropped_bytes
        if offset < head_end and self._dropped_bytes:
            data, start = bytes(self._head[offset:]), offset
        elif offset < head_end:
            data, start = bytes(self._head[offset:]) + b"".join(self._tail), offset
        else:
            start = max(offset, tail_start)
            data = b"".join(self._tail)[start - tail_start :]
        following = start + len(data)
        return OutputSlice(
            data=data,
            offset=start,
            next_offset=following,
            lost_bytes=start - offset,
            ended=self._ended and following == self.total_bytes,
        )

    def _keep(self, chunk: bytes) -> None:
        room = self._limits.head_bytes - len(self._head)
        if room > 0 and not self._tail and not self._dropped_bytes:
            self._head += chunk[:room]
            chunk = chunk[room:]
        if not chunk:
            return
        limit = self._limits.tail_bytes
        self._tail.append(chunk)
        self._tail_bytes += len(chunk)
        while (excess := self._tail_bytes - limit) > 0:
            oldest = self._tail.popleft()
            if len(oldest) > excess:
                self._tail.appendleft(oldest[excess:])
                oldest = oldest[:excess]
            self._tail_bytes -= len(oldest)
            self._dropped_bytes += len(oldest)
            self._dropped_lines += oldest.count(b"\n")

    async def _next(self) -> None:
        if self._progress is None:
            self._progress = anyio.Event()
        await self._progress.wait()

    def _notify(self) -> None:
        if self._progress is not None:
            self._progress.set()
            self._progress = None
