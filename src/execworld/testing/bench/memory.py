"""Memory under flooded streams, each way in a program of its own, since memory that was freed is used again."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the plain way
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import anyio

from execworld.seams import StreamMode, World
from execworld.testing.bench.source import WorldSource

_FLOOD: Final = ("yes",)
_SETTLED_S: Final = 0.5
_HARDLY_MIB: Final = 0.25


def resident_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def wardens() -> list[int]:
    """Children of this process that are wardens."""
    found: list[int] = []
    for children in Path("/proc/self/task").glob("*/children"):
        found += [
            pid
            for pid in map(int, children.read_bytes().split())
            if Path(f"/proc/{pid}/comm").read_bytes().startswith(b"warden")
        ]
    return found


async def settled_mib() -> float:
    """Once nothing more arrives, or hardly anything."""
    before, now = -1.0, resident_mib(os.getpid())
    while abs(now - before) > _HARDLY_MIB:
        await anyio.sleep(_SETTLED_S)
        before, now = now, resident_mib(os.getpid())
    return now


async def through_a_world(world: World, streams: int) -> tuple[float, float]:
    """Growth of this process, and all of the wardens."""
    await world.subprocess.run(["true"])
    before = resident_mib(os.getpid())
    async with AsyncExitStack() as stack:
        for _ in range(streams):
            await stack.enter_async_context(world.subprocess.start(_FLOOD, stdout=StreamMode.PIPE))
        return await settled_mib() - before, sum(map(resident_mib, wardens()))


async def plainly(streams: int) -> tuple[float, float]:
    await asyncio.create_subprocess_exec("true", stdout=asyncio.subprocess.PIPE)
    before = resident_mib(os.getpid())
    started = [
        await asyncio.create_subprocess_exec(*_FLOOD, stdout=asyncio.subprocess.PIPE) for _ in range(streams)
    ]
    try:
        return await settled_mib() - before, 0.0
    finally:
        for process in started:
            process.kill()
        for process in started:
            await process.communicate()  # wait() would wait for the end of a stream that nobody reads


async def measured(source: WorldSource | None, streams: int) -> tuple[float, float]:
    if source is None:
        return await plainly(streams)
    async with source.open() as world:
        return await through_a_world(world, streams)


async def measure_memory(source: WorldSource | None, streams: int) -> tuple[float, float]:
    """Growth of the host and all of the wardens, in MiB, in a program of its own."""
    command = [sys.executable, "-c", f"from {__name__} import main; main()"]
    described = None if source is None else [source.function, dict(source.arguments)]
    # By its input and not as an argument: what a world is opened with may be secret.
    finished = await anyio.run_process(command, input=json.dumps([described, streams]).encode(), stderr=None)
    host_mib, warden_mib = json.loads(finished.stdout)
    return float(host_mib), float(warden_mib)


def main() -> None:
    """In the program of its own: a request as JSON comes in, MiB go out."""
    described, streams = json.loads(sys.stdin.read())
    source = None if described is None else WorldSource(*described)
    sys.stdout.write(json.dumps(anyio.run(measured, source, streams)))
