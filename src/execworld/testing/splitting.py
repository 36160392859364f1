"""A machine whose output streams arrive in awkward pieces."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

from execworld.machine.base import Machine
from execworld.testing.forwarding import ForwardingMachine

ONE_BYTE: Final = (1,)
AWKWARD: Final = (65533, 1, 65534, 2, 65535, 3, 65536, 65537, 4, 65538, 65539)
"""Around the size of a pipe, with pieces in between that cut characters and control sequences."""


class SplittingMachine(ForwardingMachine):
    """Gives each `receive` a size of its own, again and again from the first; delays, drops and reorders nothing."""

    def __init__(self, inner: Machine, sizes: Iterable[int] = AWKWARD) -> None:
        super().__init__(inner)
        self._sizes = itertools.cycle(tuple(sizes))

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        return await self.inner.receive(handle, stream, min(next(self._sizes), max_bytes))
