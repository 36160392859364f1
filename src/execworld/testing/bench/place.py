"""Where it is measured, and what several rows do there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from execworld.seams import OutputLimits, OutputStream, World
from execworld.testing.bench.measuring import Case
from execworld.testing.bench.source import WorldSource

_FLOOD_BYTES: Final = 100_000_000


@dataclass(frozen=True, slots=True)
class Place:
    """A world, a directory in it, and one on this host for the plain ways."""

    source: WorldSource
    world: World
    directory: str
    host: Path
    scale: float
    memory: dict[bool, tuple[float, float]] = field(default_factory=dict[bool, tuple[float, float]])
    """Growth of the host and size of the wardens, measured once for both rows: through the world, and plainly."""

    @property
    def flood_bytes(self) -> int:
        return max(1, round(_FLOOD_BYTES * min(1.0, self.scale)))


MakeRow = Callable[[Place], AbstractAsyncContextManager[Case]]


async def stream_flood(place: Place, argv: list[str]) -> None:
    received = 0

    async def count(_: OutputStream, chunk: bytes) -> None:
        nonlocal received
        received += len(chunk)

    await place.world.subprocess.run(argv, on_output=count, limits=OutputLimits(0, 1024))
    assert received == place.flood_bytes


async def open_and_close(place: Place) -> None:
    async with place.source.open():
        pass
