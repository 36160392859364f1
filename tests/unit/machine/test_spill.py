"""A spill file holds every byte of a stream or does not exist, and its failures touch nobody."""

from __future__ import annotations

import os
import random
import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from execworld.machine.local.machine import LocalMachine
from execworld.machine.output import OutputWindow
from execworld.machine.spill import SpillStore
from execworld.seams.results import Output, OutputLimits

pytestmark = pytest.mark.anyio


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory that the machine of the test takes for temporary files."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
async def store(temporary: Path, machine: LocalMachine) -> AsyncGenerator[SpillStore]:
    store = SpillStore(machine)
    yield store
    assert await store.aclose() == []
    assert everything_in(temporary) == []


async def fill(store: SpillStore, limits: OutputLimits, chunks: list[bytes]) -> Output:
    window = OutputWindow(limits, store.new_file(limits.spill_bytes) if limits.spill_bytes else None)
    for chunk in chunks:
        await window.add(chunk)
    window.end()
    await window.seal()
    return window.snapshot()


def everything_in(directory: Path) -> list[Path]:
    return list(directory.rglob("*"))


def files_in(directory: Path) -> list[Path]:
    return [path for path in everything_in(directory) if path.is_file()]


def content_of(output: Output) -> bytes:
    assert output.spill_path is not None, output.spill_error
    return Path(output.spill_path).read_bytes()


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_output_that_fits_makes_no_file(store: SpillStore, temporary: Path) -> None:
    """Up to the last byte of head and tail nothing is written."""
    output = await fill(store, OutputLimits(4, 4, spill_bytes=1000), [b"abc", b"def", b"gh"])
    assert (output.spill_path, output.spill_error, output.data) == (None, "", b"abcdefgh")
    assert everything_in(temporary) == []


@pytest.mark.parametrize("seed", range(8))
async def test_the_file_holds_every_byte(store: SpillStore, seed: int) -> None:
    """However the stream is cut, the file equals the stream, from its first byte on."""
    source = random.Random(seed)
    chunks = [source.randbytes(source.choice((1, 5, 90))) for _ in range(40)]
    output = await fill(store, OutputLimits(10, 20, spill_bytes=1 << 20), chunks)
    assert output.dropped_bytes > 0
    assert content_of(output) == b"".join(chunks)


async def test_one_chunk_larger_than_a_transfer_is_written_whole(store: SpillStore) -> None:
    data = random.Random(5).randbytes(3_000_001)
    output = await fill(store, OutputLimits(10, 10, spill_bytes=1 << 22), [b"first", data])
    assert content_of(output) == b"first" + data


async def test_a_stream_of_exactly_the_limit_is_kept(store: SpillStore) -> None:
    """The limit is the largest size that is allowed; one byte more and there is no file."""
    limits = OutputLimits(2, 2, spill_bytes=30)
    exact = await fill(store, limits, [b"x" * 10] * 3)
    assert content_of(exact) == b"x" * 30
    over = await fill(store, limits, [b"x" * 10] * 3 + [b"y"])
    assert over.spill_path is None
    assert "30" in over.spill_error
    assert (over.total_bytes, over.dropped_bytes) == (31, 27)


async def test_a_file_that_became_incomplete_is_removed(store: SpillStore, temporary: Path) -> None:
    """A file with a part of the output would be taken for all of it, so none is left; its descriptor is closed."""
    await fill(store, OutputLimits(2, 2, spill_bytes=20), [b"x" * 10])  # the directory is held from now on
    kept = files_in(temporary)
    before = open_descriptors()
    output = await fill(store, OutputLimits(2, 2, spill_bytes=20), [b"x" * 10] * 5)
    assert output.spill_path is None
    assert output.spill_error
    assert files_in(temporary) == kept
    assert open_descriptors() == before


async def test_only_the_owner_can_read_it(store: SpillStore, temporary: Path) -> None:
    """The directory is 0700, the file 0600, and the name cannot be guessed from that of another."""
    outputs = [await fill(store, OutputLimits(1, 1, spill_bytes=100), [b"secret"]) for _ in range(2)]
    names = {output.spill_path for output in outputs}
    assert len(names) == 2
    for name in names:
        assert name is not None
        assert stat.S_IMODE(os.stat(name).st_mode) == 0o600
        assert stat.S_IMODE(os.stat(Path(name).parent).st_mode) == 0o700


async def test_a_full_disk_costs_the_file_and_nothing_else(
    store: SpillStore, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The window stays exact, the reason is told, no partial file is left."""

    async def refuse(handle: int, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "write", refuse)
    output = await fill(store, OutputLimits(3, 3, spill_bytes=100), [b"abcdef", b"ghi", b"jkl"])
    assert (output.head, output.tail, output.dropped_bytes) == (b"abc", b"jkl", 6)
    assert output.spill_path is None
    assert "No space left" in output.spill_error
    assert files_in(temporary) == []


async def test_a_directory_that_cannot_be_made_is_told(
    machine: LocalMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine without a usable directory for temporary files still collects output."""
    monkeypatch.setattr("tempfile.tempdir", "/proc/nowhere")
    store = SpillStore(LocalMachine())
    output = await fill(store, OutputLimits(1, 1, spill_bytes=100), [b"abc", b"def"])
    assert (output.data, output.spill_path) == (b"af", None)
    assert output.spill_error
    assert await store.aclose() == []


async def test_closing_twice_and_without_use(machine: LocalMachine) -> None:
    store = SpillStore(machine)
    assert await store.aclose() == []
    assert await store.aclose() == []


async def test_what_cannot_be_removed_is_reported(machine: LocalMachine, temporary: Path) -> None:
    """A foreign file in the directory keeps it from being removed; closing says so instead of hiding it."""
    monitored = SpillStore(LocalMachine())
    output = await fill(monitored, OutputLimits(1, 1, spill_bytes=100), [b"abc"])
    assert output.spill_path is not None
    directory = Path(output.spill_path).parent
    (directory / "foreign").touch()
    assert await monitored.aclose() == [str(directory)]
    assert files_in(directory) == [directory / "foreign"]
