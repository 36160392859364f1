"""How fast and how small the way over a warden is, beside the plain way of this process, in one run.

    python tests/bench/bench_warden.py

Caveats first: one machine, one run, whatever else runs on it; compare a row's two numbers with each other only.
"""

from __future__ import annotations

import asyncio  # noqa: TID251 - the plain way is what is compared with
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import anyio.to_thread

from execworld.machine.batch import Batch
from execworld.machine.operations import (
    Open,
    Read,
    Rename,
    Spawn,
    Write,
)
from execworld.machine.values import OpenFlag, Redirect
from execworld.machine.warden import WardenMachine, locate_warden, open_warden_machine, start_local_warden

ROUNDS = 200
STREAMS = 1000


def report(row: str, ours: float, plain: float | None, unit: str) -> None:
    ratio = "" if plain is None else f"   plain {plain:10.3f} {unit}   ratio {ours / plain:5.2f}"
    sys.stdout.write(f"{row:44} {ours:10.3f} {unit}{ratio}\n")


async def timed(call: Callable[[], Awaitable[object]], rounds: int = ROUNDS) -> float:
    """Median in milliseconds."""
    times: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        await call()
        times.append((time.perf_counter() - start) * 1000)
    return median(times)


def spawn(argv: list[str], *, output: bool = True, terminal: bool = False) -> Batch:
    batch = Batch()
    batch.add(
        Spawn(
            path=argv[0].encode(),
            argv=tuple(argument.encode() for argument in argv),
            environment=((b"PATH", b"/usr/bin:/bin"),),
            cwd=b"/",
            stdout=Redirect.PIPE if output else Redirect.NULL,
            stderr=Redirect.NULL,
            terminal=(24, 80) if terminal else None,
        )
    )
    return batch


async def start(machine: WardenMachine, batch: Batch) -> int:
    (spawned,) = (await machine.run(batch)).values
    return int(spawned.handle)  # type: ignore[attr-defined]  # the one step is a Spawn


async def run_true(machine: WardenMachine) -> None:
    handle = await start(machine, spawn(["/bin/true"]))
    await machine.wait(handle)
    await machine.release(handle)


async def plain_true() -> None:
    process = await asyncio.create_subprocess_exec("/bin/true", stdout=asyncio.subprocess.PIPE)
    await process.communicate()


async def read_file(machine: WardenMachine, path: bytes) -> None:
    batch = Batch()
    opened = batch.add(Open(path))
    batch.add(Read(opened.handle, 8192, close_at_end=True))
    await machine.run(batch)


async def write_file(machine: WardenMachine, path: bytes, data: bytes) -> None:
    batch = Batch()
    opened = batch.add(Open(path + b".new", OpenFlag.WRITE | OpenFlag.CREATE | OpenFlag.TRUNCATE))
    batch.add(Write(opened.handle, data))
    batch.add(Rename(path + b".new", path))
    results = await machine.run(batch)
    await machine.release(results[opened])


def plain_write(path: Path, data: bytes) -> None:
    beside = path.with_suffix(".plain")
    beside.write_bytes(data)
    beside.replace(path)


async def flood(machine: WardenMachine, size: int) -> None:
    handle = await start(machine, spawn(["/usr/bin/head", "-c", str(size), "/dev/zero"]))
    while await machine.receive(handle, 1, 256 * 1024):
        pass
    await machine.release(handle)


async def plain_flood(size: int) -> None:
    process = await asyncio.create_subprocess_exec(
        "/usr/bin/head", "-c", str(size), "/dev/zero", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    while await process.stdout.read(256 * 1024):
        pass
    await process.wait()


async def many(call: Callable[[], Coroutine[Any, Any, None]], count: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call)


def resident_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm", "rb") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


async def flooded_streams(machine: WardenMachine, warden: int) -> None:
    before = resident_mb(os.getpid())
    handles: list[int] = []

    async def one() -> None:
        handles.append(await start(machine, spawn(["/usr/bin/yes"])))

    await many(one, STREAMS)
    previous = -1.0
    while (now := resident_mb(os.getpid())) != previous:  # until nothing more arrives
        previous = now
        await anyio.sleep(0.5)
    report(f"host memory growth, {STREAMS} flooded streams", now - before, None, "MB")
    report(f"warden memory, {STREAMS} flooded streams", resident_mb(warden), None, "MB")
    for handle in handles:
        await machine.kill_tree(handle)
        await machine.release(handle)


async def echo(machine: WardenMachine) -> float:
    handle = await start(machine, spawn(["/bin/cat"], terminal=True))

    async def once() -> None:
        await machine.send(handle, b"x")
        await machine.receive(handle, 1, 16)

    result = await timed(once)
    await machine.kill_tree(handle)
    await machine.release(handle)
    return result


async def main() -> None:
    binary = locate_warden()
    transport = start_local_warden(binary)
    async with open_warden_machine(transport) as machine:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "file")
            data = bytes(4096)
            await anyio.to_thread.run_sync(path.write_bytes, data)
            raw = os.fsencode(path)
            report("ping", await timed(machine.ping), None, "ms")
            report("spawn and wait", await timed(lambda: run_true(machine)), await timed(plain_true), "ms")
            report(
                "read 4 KiB",
                await timed(lambda: read_file(machine, raw)),
                await timed(lambda: anyio.to_thread.run_sync(path.read_bytes)),
                "ms",
            )
            report(
                "write 4 KiB atomically",
                await timed(lambda: write_file(machine, raw, data)),
                await timed(lambda: anyio.to_thread.run_sync(plain_write, path, data)),
                "ms",
            )
        size = 100_000_000
        ours = await timed(lambda: flood(machine, size), 3)
        report("100 MB of output", ours, await timed(lambda: plain_flood(size), 3), "ms")
        report("echo through a terminal", await echo(machine), None, "ms")
        ours = await timed(lambda: many(lambda: run_true(machine), 1000), 1)
        report("1,000 concurrent spawns", ours, await timed(lambda: many(plain_true, 1000), 1), "ms")
        await flooded_streams(machine, transport.pid)
    report("size of the binary", binary.stat().st_size / 1024, None, "KiB")


if __name__ == "__main__":
    anyio.run(main)
