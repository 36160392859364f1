"""What is measured."""

from __future__ import annotations

import os
import resource
import secrets
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from execworld.machine.warden import locate_warden
from execworld.seams import OutputLimits
from execworld.testing.bench import engine, peers
from execworld.testing.bench.bubblewrap import spawn_by_bubblewrap
from execworld.testing.bench.measuring import Case, LeftOut, Measured, Row, measure
from execworld.testing.bench.memory import measure_memory
from execworld.testing.bench.place import MakeRow, Place, open_and_close, stream_flood
from execworld.testing.bench.source import WorldSource

MANY: Final = 1000
_ENTRIES: Final = 1000
_DATA: Final = os.urandom(4096)
_HEAD: Final = ["head", "-c", "65536", "/dev/zero"]


async def spawn(place: Place) -> Case:
    run = place.world.subprocess.run
    plain = {"asyncio": peers.spawn_by_asyncio, "anyio.run_process": peers.spawn_by_anyio}
    return Case("spawn `true`", "ms", 150, lambda: run(["true"]), plain)


async def confined(place: Place) -> Case:
    run = place.world.subprocess.run
    plain = {"bubblewrap": await spawn_by_bubblewrap(place.world.policy)}
    return Case("spawn `true` under the policy", "ms", 100, lambda: run(["true"]), plain)


async def output(place: Place) -> Case:
    run, limits = place.world.subprocess.run, OutputLimits(head_bytes=65536, tail_bytes=0)
    plain = {"anyio.run_process": lambda: anyio.run_process(_HEAD)}
    return Case("spawn, 64 KiB of output", "ms", 150, lambda: run(_HEAD, limits=limits), plain)


async def read(place: Place) -> Case:
    fs, path, beside = place.world.fs, f"{place.directory}/read", place.host / "read"
    await fs.write_bytes(path, _DATA)
    await anyio.Path(beside).write_bytes(_DATA)
    plain = {"anyio.Path": anyio.Path(beside).read_bytes}
    return Case("read 4 KiB", "ms", 400, lambda: fs.read_bytes(path), plain)


async def write(place: Place) -> Case:
    fs, path, beside = place.world.fs, f"{place.directory}/written", str(place.host / "written")
    plain = {
        "mkstemp, fsync, rename in a thread": lambda: anyio.to_thread.run_sync(
            peers.replace_file, beside, _DATA
        )
    }
    return Case("replace 4 KiB atomically", "ms", 150, lambda: fs.write_bytes(path, _DATA), plain)


async def stat(place: Place) -> Case:
    fs, directory = place.world.fs, place.directory
    return Case("stat", "ms", 400, lambda: fs.stat(directory), {"anyio.Path": anyio.Path(place.host).stat})


async def listing(place: Place) -> Case:
    many, beside = f"{place.directory}/many", place.host / "many"
    script = f"mkdir {many} && cd {many} && seq -w {_ENTRIES} | xargs touch"
    await place.world.subprocess.run(["sh", "-c", script], check=True)
    await anyio.run_process(["sh", "-c", script.replace(many, str(beside))])
    plain = {
        "scandir and lstat in a thread": lambda: anyio.to_thread.run_sync(peers.list_entries, str(beside))
    }
    title = f"list {_ENTRIES:,} entries with metadata"
    return Case(title, "ms", 40, lambda: place.world.fs.list_directory(many), plain)


async def flood(place: Place) -> Case:
    size = place.flood_bytes
    argv = ["head", "-c", str(size), "/dev/zero"]
    plain = {"anyio.open_process": lambda: peers.stream_by_anyio(argv)}
    return Case(f"stream {size / 1e6:g} MB of output", "ms", 5, partial(stream_flood, place, argv), plain)


async def at_once(place: Place) -> Case:
    count = max(2, round(MANY * min(1.0, place.scale)))
    plain = {
        "asyncio": lambda: peers.at_once(peers.spawn_by_asyncio, count),
        "anyio.run_process": lambda: peers.at_once(peers.spawn_by_anyio, count),
    }

    async def one() -> None:
        await place.world.subprocess.run(["true"])

    return Case(f"{count:,} concurrent spawns", "s", 3, lambda: peers.at_once(one, count), plain)


@asynccontextmanager
async def echo(place: Place) -> AsyncGenerator[Case]:
    async with place.world.subprocess.open_terminal(
        ["sh", "-c", "stty raw -echo; printf R; exec cat"]
    ) as terminal:
        while not (await terminal.receive()).endswith(b"R"):
            pass
        with peers.echoing_terminal() as plainly:

            async def ours() -> None:
                await terminal.send(b"x")
                await terminal.receive()

            async def plain() -> None:
                plainly()

            yield Case("echo through a terminal", "ms", 200, ours, {"a pty, blocking": plain})


async def memory(place: Place, *, of_warden: bool) -> Case:
    count = max(2, round(MANY * min(1.0, place.scale)))

    async def measured(source: WorldSource | None) -> float:
        ours = source is not None
        if ours not in place.memory:
            place.memory[ours] = await measure_memory(source, count)
        host_mib, warden_mib = place.memory[ours]
        return warden_mib if of_warden and ours else host_mib

    whose = "of the warden" if of_warden else "growth of this program"
    title = f"memory {whose}, {count:,} flooded streams"
    return Case(title, "MiB", 1, partial(measured, place.source), {"asyncio": partial(measured, None)})


async def opening(place: Place) -> Case:
    ours = partial(open_and_close, place)
    return Case("open and close a world", "ms", 30, ours, {"anyio.run_process": peers.spawn_by_anyio})


async def size(place: Place) -> Case:
    async def ours() -> float:
        return locate_warden().stat().st_size / 2**20

    async def plain() -> float:
        return peers.shell_bytes() / 2**20

    return Case("size of the warden", "MiB", 1, ours, {"/bin/sh": plain})


def _simple(make: Callable[[Place], Awaitable[Case]]) -> MakeRow:
    @asynccontextmanager
    async def made(place: Place) -> AsyncGenerator[Case]:
        yield await make(place)

    return made


ROWS: Final[dict[str, MakeRow]] = {
    "spawn": _simple(spawn),
    "confined": _simple(confined),
    "output": _simple(output),
    "read": _simple(read),
    "write": _simple(write),
    "stat": _simple(stat),
    "list": _simple(listing),
    "stream": _simple(flood),
    "at-once": _simple(at_once),
    "echo": echo,
    "open": _simple(opening),
    "memory-host": _simple(partial(memory, of_warden=False)),
    "memory-warden": _simple(partial(memory, of_warden=True)),
    "size": _simple(size),
    "engine-spawn": engine.spawn_row,
    "engine-file": engine.file_row,
    "engine-stream": engine.stream_row,
    "engine-open": engine.open_row,
}


async def measure_rows(
    source: WorldSource, names: Collection[str], *, scale: float = 1.0, progress: Callable[[str], None]
) -> Measured:
    """The rows *names* in a world that is opened for them. Needs asyncio, which is one of the peers."""
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    async with source.open() as world:
        directory = f"{world.facts.temp_roots[0]}/execworld-bench-{secrets.token_hex(8)}"
        await world.fs.make_directory(directory)
        with tempfile.TemporaryDirectory() as host, _many_descriptors():
            place = Place(source, world, directory, Path(host), scale)
            try:
                for name in names:
                    try:
                        async with ROWS[name](place) as case:
                            progress(case.title)
                            rows.append(await measure(name, case, scale))
                    except LeftOut as reason:
                        progress(f"{name} is left out: {reason}")
                        left_out[name] = str(reason)
            finally:
                with anyio.CancelScope(shield=True):
                    await world.fs.remove(directory, recursive=True)
    return Measured(tuple(rows), left_out)


@contextmanager
def _many_descriptors() -> Generator[None]:
    """A thousand commands at once need three thousand; those that read them plainly do not wait their turn."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
