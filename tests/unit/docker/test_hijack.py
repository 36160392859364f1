"""The frames of the engine: cut anywhere, and hostile ones refused."""

from __future__ import annotations

import io
import socket
from typing import Any

import anyio
import pytest

from execworld.machine.warden import FarSideGone, LinkEnd, TransportBroken
from execworld.providers.docker.hijack import FrameReader, Hijacked, HijackedSocket, take_over

STDIN, STDOUT, STDERR, ENGINE_ERROR = range(4)


def frame(stream: int, payload: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(payload).to_bytes(4, "big") + payload


MIXED = (
    frame(STDOUT, b"one ")
    + frame(STDERR, b"noise ")
    + frame(STDOUT, b"")
    + frame(STDOUT, bytes(range(256)) * 40)
    + frame(STDERR, b"more")
    + frame(STDOUT, b" end")
)
OUTPUT = b"one " + bytes(range(256)) * 40 + b" end"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 4096, len(MIXED)])
def test_frames_are_read_wherever_they_are_cut(size: int) -> None:
    reader = FrameReader()
    pieces = [MIXED[at : at + size] for at in range(0, len(MIXED), size)]
    assert b"".join(map(reader.feed, pieces)) == OUTPUT
    assert reader.said == "noise more"


def test_payload_is_handed_on_before_its_frame_is_complete() -> None:
    reader = FrameReader()
    assert reader.feed(frame(STDOUT, b"x" * 100)[:58]) == b"x" * 50


@pytest.mark.parametrize(
    "hostile",
    [
        frame(STDIN, b"x"),
        frame(4, b"x"),
        frame(255, b"x"),
        b"\x01\x00\x00\x01\x00\x00\x00\x01x",
        b"\x01\x01\x00\x00\x00\x00\x00\x01x",
        b"\x01\x00\x00\x00\x00\x10\x00\x01",
        b"\x01\x00\x00\x00\xff\xff\xff\xff",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"root@container:/# ",
    ],
    ids=repr,
)
@pytest.mark.parametrize("size", [1, 4096])
def test_what_is_no_frame_ends_the_stream(hostile: bytes, size: int) -> None:
    reader = FrameReader()
    assert reader.feed(frame(STDOUT, b"good")) == b"good"
    with pytest.raises(TransportBroken):  # noqa: PT012 - whichever piece completes the header
        for at in range(0, len(hostile), size):
            reader.feed(hostile[at : at + size])


def test_a_flood_of_errors_is_bounded() -> None:
    """A container may write to its standard error for ever. The end of it is what explains the end."""
    reader = FrameReader()
    for _ in range(300):
        assert reader.feed(frame(STDERR, b"y" * 32_000)) == b""
    reader.feed(frame(STDERR, b"last words\xff\n"))
    assert len(reader.said) <= 4096
    assert reader.said.endswith("last words\ufffd")


def test_the_engine_reports_an_error_of_its_own() -> None:
    with pytest.raises(TransportBroken, match="disk on fire"):
        FrameReader().feed(frame(ENGINE_ERROR, b"disk on fire"))


class FarSide:
    """What a test says of the container."""

    def __init__(self, known: FarSideGone | None = None) -> None:
        self.known = known
        self.said: list[str] = []

    async def explain(self, said: str) -> FarSideGone | None:
        self.said.append(said)
        return self.known

    async def excuse_silence(self) -> bool:
        return False

    async def end(self, said: str) -> LinkEnd:
        return LinkEnd(f"ended; {said}")


def opened(
    received: bytes = b"", known: FarSideGone | None = None
) -> tuple[HijackedSocket, socket.socket, FarSide]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    far = FarSide(known)
    return HijackedSocket(Hijacked(ours, received), far), theirs, far


async def everything(transport: HijackedSocket, max_bytes: int = 65536) -> bytes:
    found = b""
    while data := await transport.receive(max_bytes):
        assert len(data) <= max_bytes
        found += data
    return found


@pytest.mark.anyio
@pytest.mark.parametrize("cut", [0, 1, 5, 8, 12, 13, 40, len(MIXED) - 1, len(MIXED)])
@pytest.mark.parametrize("max_bytes", [1, 65536])
async def test_what_had_come_before_is_the_beginning(cut: int, max_bytes: int) -> None:
    """Where it was cut makes no difference, and neither does how much is asked for at a time."""
    transport, theirs, _ = opened(MIXED[:cut])
    with theirs:
        theirs.sendall(MIXED[cut:])
        theirs.shutdown(socket.SHUT_WR)
        with anyio.fail_after(10):
            assert await everything(transport, max_bytes) == OUTPUT
        assert (await transport.aclose()).reason == "ended; noise more"


@pytest.mark.anyio
async def test_the_end_of_the_stream_is_explained() -> None:
    transport, theirs, far = opened(known=FarSideGone("it burnt down", "call somebody"))
    theirs.sendall(frame(STDERR, b"fire!"))
    theirs.close()
    assert await transport.receive(100) == b""
    gone = await transport.explain_end()
    assert (str(gone), gone and gone.hint) == ("it burnt down", "call somebody")
    assert far.said == ["fire!"]
    await transport.aclose()


@pytest.mark.anyio
async def test_what_is_no_output_is_not_waited_for() -> None:
    """Whoever asks has another turn, so that a container that writes errors for ever holds nobody up."""
    transport, theirs, _ = opened(frame(STDERR, b"before"))
    with theirs:
        assert transport.receive_now(100) is None
        theirs.sendall(frame(STDERR, b"noise") + frame(STDOUT, b"one")[:9])
        assert transport.receive_now(100) == b"o"
        theirs.sendall(b"ne" + frame(STDERR, b"noise"))
        assert transport.receive_now(100) == b"ne"
        theirs.sendall(frame(STDERR, b"noise"))
        assert transport.receive_now(100) is None
    await transport.aclose()


@pytest.mark.anyio
async def test_that_nothing_can_be_sent_is_left_to_the_reader_to_explain() -> None:
    transport, theirs, _ = opened()
    theirs.close()
    while transport.send_now(memoryview(b"x" * 1000)):
        pass
    assert transport.send_now(memoryview(b"x")) == 0
    with anyio.move_on_after(0.05) as scope:
        await transport.wait_sendable()
    assert scope.cancelled_caught
    await transport.aclose()


@pytest.mark.anyio
async def test_closing_releases_whoever_waits() -> None:
    transport, theirs, _ = opened()
    with theirs:
        async with anyio.create_task_group() as tasks:

            async def wait() -> None:
                with pytest.raises(TransportBroken):
                    await transport.receive(100)

            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await transport.aclose()
        assert await transport.aclose() == await transport.aclose()
        assert theirs.recv(100) == b""


class Handed:
    """What a SDK hands out: a file of a socket, and the response whose reader is a buffer above it."""

    def __init__(self, connection: socket.socket) -> None:
        self.raw = socket.SocketIO(connection, "rwb")
        reader = io.BufferedReader(self.raw)
        inner = type("Inner", (), {"fp": reader})
        self.raw_response = type("Raw", (), {"_fp": inner})
        self.reader = reader

    @property
    def response(self) -> Any:
        return type("Response", (), {"raw": self.raw_response, "close": lambda: None})


def test_what_lies_in_the_buffer_of_the_response_is_taken_along() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(60)
        theirs.sendall(b"head\r\n\r\n" + MIXED[:20])
        handed = Handed(ours)
        assert handed.reader.readline() == b"head\r\n"
        assert handed.reader.readline() == b"\r\n"
        hijacked = take_over(handed.raw, handed.response)
        assert hijacked.received == MIXED[:20]
        assert isinstance(hijacked.wire, socket.socket)
        assert hijacked.wire.gettimeout() == 0.0
        theirs.sendall(b"later")
        assert hijacked.wire.recv(100) == b"later"
        hijacked.close()
        assert theirs.recv(100) == b""


def test_nothing_in_the_buffer_is_no_reason_to_wait() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(60)
        handed = Handed(ours)
        hijacked = take_over(handed.raw, handed.response)
        assert hijacked.received == b""
        hijacked.close()
