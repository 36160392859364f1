"""A window keeps an exact head, an exact tail and exact counts, however a stream is cut into chunks."""

from __future__ import annotations

import random

import anyio
import pytest

from execworld.machine.output import OutputWindow
from execworld.seams.results import Output, OutputLimits

pytestmark = pytest.mark.anyio


def reference(data: bytes, head_bytes: int, tail_bytes: int) -> Output:
    """What must be kept of *data*, computed from the whole of it."""
    head = data[:head_bytes]
    rest = data[len(head) :]
    tail = rest[max(0, len(rest) - tail_bytes) :]
    dropped = rest[: len(rest) - len(tail)]
    return Output(
        head=head,
        tail=tail,
        total_bytes=len(data),
        dropped_bytes=len(dropped),
        dropped_lines=dropped.count(b"\n"),
        complete=False,
    )


def random_stream(source: random.Random, size: int) -> bytes:
    return bytes(source.choice(b"ab\n\xff\xc3\xa9") for _ in range(size))


def random_chunks(source: random.Random, data: bytes) -> list[bytes]:
    chunks: list[bytes] = []
    while data:
        size = source.choice((1, 1, 2, 3, 7, 20, 100))
        chunks.append(data[:size])
        data = data[size:]
    return chunks


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # nothing here depends on the event loop
@pytest.mark.parametrize("seed", range(40))
async def test_any_chunking_gives_the_window_of_the_whole(seed: int) -> None:
    """After every single chunk the snapshot equals that of a reader which holds all of the stream."""
    source = random.Random(seed)
    head_bytes, tail_bytes = source.choice((0, 1, 5, 64)), source.choice((0, 1, 7, 50))
    data = random_stream(source, source.randrange(400))
    window = OutputWindow(OutputLimits(head_bytes=head_bytes, tail_bytes=tail_bytes))
    so_far = b""
    for chunk in random_chunks(source, data):
        await window.add(chunk)
        so_far += chunk
        assert window.snapshot() == reference(so_far, head_bytes, tail_bytes)
        assert window.total_bytes == len(so_far)
    window.end()
    assert window.snapshot().complete


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # nothing here depends on the event loop
@pytest.mark.parametrize("seed", range(20))
async def test_reading_from_any_offset_tells_the_truth(seed: int) -> None:
    """A slice holds the bytes of the stream at its offset, and says how many before it are not kept."""
    source = random.Random(1000 + seed)
    limits = OutputLimits(head_bytes=source.choice((0, 3, 30)), tail_bytes=source.choice((0, 4, 40)))
    data = random_stream(source, 200)
    window = OutputWindow(limits)
    for chunk in random_chunks(source, data):
        await window.add(chunk)
    kept = window.snapshot()
    tail_start = len(data) - len(kept.tail)
    for offset in range(len(data) + 1):
        piece = window.read_from(offset)
        assert piece.lost_bytes == piece.offset - offset
        assert piece.data == data[piece.offset : piece.next_offset]
        if piece.lost_bytes:
            assert len(kept.head) <= offset < tail_start == piece.offset
        assert not piece.ended


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # nothing here depends on the event loop
@pytest.mark.parametrize("seed", range(20))
async def test_following_the_offsets_reads_every_byte_once(seed: int) -> None:
    """A reader that polls while the stream grows gets contiguous slices: all bytes, none twice, losses counted."""
    source = random.Random(2000 + seed)
    window = OutputWindow(OutputLimits(head_bytes=10, tail_bytes=30))
    data = random_stream(source, 600)
    seen, position, so_far = 0, 0, 0
    for chunk in random_chunks(source, data):
        await window.add(chunk)
        so_far += len(chunk)
        if source.random() < 0.2:
            continue
        piece = window.read_from(position)
        assert position + piece.lost_bytes == piece.offset
        seen += piece.lost_bytes + len(piece.data)
        position = piece.next_offset
    window.end()
    while not (piece := window.read_from(position)).ended or piece.data:
        seen += piece.lost_bytes + len(piece.data)
        assert piece.data == data[piece.offset : piece.next_offset]
        position = piece.next_offset
    assert (position, seen) == (len(data), len(data))


@pytest.mark.parametrize("offset", [-1, 4])
async def test_an_offset_outside_the_stream_is_refused(offset: int) -> None:
    """A position before the start or beyond the end is an error, not an empty answer."""
    window = OutputWindow(OutputLimits())
    await window.add(b"abc")
    with pytest.raises(ValueError, match="not between 0 and 3"):
        window.read_from(offset)


async def test_the_end_is_told_only_at_the_end() -> None:
    """A slice is `ended` when the stream ended and the slice reaches its end; one of the head alone is not."""
    window = OutputWindow(OutputLimits(head_bytes=2, tail_bytes=2))
    await window.add(b"abcdefgh")
    assert not window.read_from(8).ended
    window.end()
    head = window.read_from(0)
    assert (head.data, head.next_offset, head.ended) == (b"ab", 2, False)
    rest = window.read_from(head.next_offset)
    assert (rest.lost_bytes, rest.data, rest.ended) == (4, b"gh", True)
    assert window.read_from(8).ended


async def test_the_tail_may_hold_one_byte_per_chunk() -> None:
    """A stream that comes byte by byte costs no more than the window: old chunks are given up one by one."""
    window = OutputWindow(OutputLimits(head_bytes=0, tail_bytes=5))
    for value in range(200):
        await window.add(bytes((value,)))
    assert window.snapshot().tail == bytes(range(195, 200))
    assert window.snapshot().dropped_bytes == 195


async def test_waiters_learn_of_a_position_and_of_the_end() -> None:
    """Whoever waits for a position goes on when it is reached, or when the stream ended before it."""
    window = OutputWindow(OutputLimits(head_bytes=1, tail_bytes=1))
    woken: list[str] = []

    async def wait_for(position: int, name: str) -> None:
        await window.reached(position)
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait_for, 3, "position")
        tasks.start_soon(wait_for, 100, "end")
        await anyio.wait_all_tasks_blocked()
        await window.add(b"ab")
        await anyio.wait_all_tasks_blocked()
        assert woken == []
        await window.add(b"c")
        await anyio.wait_all_tasks_blocked()
        assert woken == ["position"]
        window.end()
    assert woken == ["position", "end"]
    await window.reached_end()
