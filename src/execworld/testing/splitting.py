"""A machine whose output streams arrive in awkward pieces."""

from __future__ import annotations

from typing import Final

from execworld.machine.base import Machine
from execworld.testing.forwarding import ForwardingMachine

AWKWARD: Final = (65533, 1, 65534, 2, 65535, 3, 65536, 65537, 4, 65538, 65539)
"""Around the size of a pipe, with pieces in between that cut characters and control sequences."""


class SplittingMachine(ForwardingMachine):
    """Gives each `receive` a size of its own; delays, drops and reorders nothing.

    The first *single_bytes* calls of a stream give one byte each, the others the sizes in turn, again and again.
    """

    def __init__(self, inner: Machine, *, single_bytes: int = 0, sizes: tuple[int, ...] = AWKWARD) -> None:
        super().__init__(inner)
        self._single_bytes = single_bytes
        self._sizes = sizes
        self._calls: dict[tuple[int, int], int] = {}

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        call = self._calls.get((handle, stream), 0)
        self._calls[handle, stream] = call + 1
        size = 1 if call < self._single_bytes else self._sizes[call % len(self._sizes)]
        return await self.inner.receive(handle, stream, min(size, max_bytes))

    async def release(self, handle: int) -> None:
        for key in [key for key in self._calls if key[0] == handle]:
            del self._calls[key]
        await super().release(handle)
