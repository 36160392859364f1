"""What the local world costs on top of the plain way to do the same. Started by ``scripts/bench``; never a gate."""

from __future__ import annotations

import argparse
import json
import os
import platform
import pty
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from execworld.seams import OutputLimits, OutputStream, World
from execworld.world import open_world

CAVEATS: Final = """\
Read this first:
* Only the ratios mean something, and only those of one run: both sides of a row were measured in turn, call by call,
  in one process. Absolute times change with the machine, its load and its file system.
* The plain side promises less: it ends no tree, bounds no output, guards no version, keeps no mode, and stops at
  nothing half-done. A ratio above 1 is the price of that.
* Medians hide the rare slow call. On a busy machine repeat the run before believing a difference below a fifth.
"""
FLOOD_BYTES: Final = 100_000_000
CHUNK_BYTES: Final = 256 * 1024

Call = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Row:
    """One operation, measured both ways.

    Attributes:
        ours_s: Median time of one call through the world.
        plain_s: Median time of one plain call.
    """

    operation: str
    plain: str
    rounds: int
    ours_s: float
    plain_s: float

    @property
    def ratio(self) -> float:
        return self.ours_s / self.plain_s


async def measure(operation: str, plain_name: str, rounds: int, ours: Call, plain: Call) -> Row:
    """Time both in turn, the first of each pair alternating, after a few calls that do not count."""
    times: dict[Call, list[float]] = {ours: [], plain: []}
    for number in range(rounds + 3):
        for call in (ours, plain) if number % 2 else (plain, ours):
            start = time.perf_counter()
            await call()
            if number >= 3:
                times[call].append(time.perf_counter() - start)
    return Row(operation, plain_name, rounds, statistics.median(times[ours]), statistics.median(times[plain]))


def write_plainly(path: str, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def list_plainly(path: str) -> list[tuple[str, os.stat_result]]:
    with os.scandir(path) as entries:
        return sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)


def terminal_plainly() -> None:
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            os.execv("/bin/true", ["true"])
        finally:
            os._exit(127)
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        pass  # EIO: the last holder of the other side is gone
    os.close(descriptor)
    os.waitpid(pid, 0)


async def flood_plainly() -> None:
    async with await anyio.open_process(
        ["head", "-c", str(FLOOD_BYTES), "/dev/zero"], stderr=None
    ) as process:
        assert process.stdout is not None
        received = 0
        async for chunk in process.stdout:
            received += len(chunk)
    assert received == FLOOD_BYTES


async def flood_through(world: World) -> None:
    received = 0

    async def count(_: OutputStream, chunk: bytes) -> None:
        nonlocal received
        received += len(chunk)

    await world.subprocess.run(
        ["head", "-c", str(FLOOD_BYTES), "/dev/zero"], on_output=count, limits=OutputLimits(0, 1024)
    )
    assert received == FLOOD_BYTES


async def terminal_through(world: World) -> None:
    async with world.subprocess.open_terminal(["/bin/true"]) as terminal:
        try:
            while await terminal.receive():
                pass
        except anyio.EndOfStream:
            pass
        await terminal.wait()


async def measure_all(directory: Path, scale: float) -> list[Row]:
    def rounds(count: int) -> int:
        return max(3, round(count * scale))

    data = os.urandom(4096)
    file, many = directory / "file", directory / "many"
    prepare(file, many, data)
    written, written_plainly = str(directory / "ours"), str(directory / "plain")
    head = ["head", "-c", "65536", "/dev/zero"]
    async with open_world("local", cwd=str(directory)) as world:
        fs, run = world.fs, world.subprocess.run
        limits = OutputLimits(head_bytes=65536, tail_bytes=0)
        return [
            await measure(
                "spawn true", "anyio.run_process", rounds(150),
                lambda: run(["/bin/true"]), lambda: anyio.run_process(["/bin/true"]),
            ),
            await measure(
                "spawn, 64 KiB of output", "anyio.run_process", rounds(150),
                lambda: run(head, limits=limits), lambda: anyio.run_process(head),
            ),
            await measure(
                "read 4 KiB", "anyio.Path.read_bytes", rounds(400),
                lambda: fs.read_bytes(str(file)), anyio.Path(file).read_bytes,
            ),
            await measure(
                "replace 4 KiB atomically", "mkstemp, fsync, rename in a thread", rounds(150),
                lambda: fs.write_bytes(written, data),
                lambda: anyio.to_thread.run_sync(write_plainly, written_plainly, data),
            ),
            await measure(
                "stat", "anyio.Path.stat", rounds(400), lambda: fs.stat(str(file)), anyio.Path(file).stat
            ),
            await measure(
                "list 1,000 entries with metadata", "scandir and lstat in a thread", rounds(60),
                lambda: fs.list_directory(str(many)),
                lambda: anyio.to_thread.run_sync(list_plainly, str(many)),
            ),
            await measure(
                "stream 100 MB of output", "anyio.open_process", rounds(7), partial(flood_through, world),
                flood_plainly,
            ),
            await measure(
                "open a terminal until its end", "pty.fork in a thread", rounds(60),
                partial(terminal_through, world), lambda: anyio.to_thread.run_sync(terminal_plainly),
            ),
        ]  # fmt: skip


def prepare(file: Path, many: Path, data: bytes) -> None:
    file.write_bytes(data)
    many.mkdir()
    for number in range(1000):
        (many / f"{number:04}").touch()


def table(rows: list[Row]) -> str:
    lines = [f"{'operation':34}{'ours':>11}{'plain':>11}{'ratio':>8}   plain way"]
    for row in rows:
        ours, plain = row.ours_s * 1000, row.plain_s * 1000
        lines.append(f"{row.operation:34}{ours:>8.3f} ms{plain:>8.3f} ms{row.ratio:>8.2f}   {row.plain}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one object instead of a table")
    parser.add_argument("--scale", type=float, default=1.0, help="how many rounds, as a factor")
    parser.add_argument("--backend", choices=("asyncio", "trio"), default="asyncio")
    options = parser.parse_args()
    if not options.json:
        sys.stdout.write(CAVEATS + "\n")
        sys.stdout.flush()
    with tempfile.TemporaryDirectory() as directory:
        rows = anyio.run(measure_all, Path(directory), options.scale, backend=options.backend)
    host = {
        "python": platform.python_version(),
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "backend": options.backend,
    }
    if options.json:
        answer = {
            "caveats": CAVEATS,
            "host": host,
            "rows": [{**asdict(row), "ratio": row.ratio} for row in rows],
        }
        sys.stdout.write(json.dumps(answer, indent=1) + "\n")
    else:
        sys.stdout.write(
            table(rows) + "\n" + ", ".join(f"{name} {value}" for name, value in host.items()) + "\n"
        )


if __name__ == "__main__":
    main()
