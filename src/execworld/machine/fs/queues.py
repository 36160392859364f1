"""One change of a file at a time, first come first served."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio


class _Queue:
    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = anyio.Lock(fast_acquire=True)
        self.users = 0


class PathQueues:
    """A queue a path, kept only while somebody is in it. Waiting can be cancelled."""

    def __init__(self) -> None:
        self._queues: dict[bytes, _Queue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    @asynccontextmanager
    async def hold(self, *paths: bytes) -> AsyncGenerator[None]:
        """Hold the turn of all *paths*. Taken in one order by everybody, so that no two wait for each other."""
        async with AsyncExitStack() as stack:
            for path in sorted(set(paths)):
                await stack.enter_async_context(self._hold(path))
            yield

    @asynccontextmanager
    async def _hold(self, path: bytes) -> AsyncGenerator[None]:
        queue = self._queues.setdefault(path, _Queue())
        queue.users += 1
        try:
            async with queue.lock:
                yield
        finally:
            queue.users -= 1
            if queue.users == 0:
                del self._queues[path]
