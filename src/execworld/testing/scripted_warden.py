"""The far end of a link as a script: what a warden would send, with an encoder of its own.

For tests of the client and of transports; nothing of `execworld.machine.warden` is used to make or to read a frame.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel

from execworld.machine.batch import Batch
from execworld.machine.operations import Operation, Spawn
from execworld.machine.values import Redirect, Spawned
from execworld.machine.warden import (
    LinkEnd,
    LinkSettings,
    Transport,
    TransportBroken,
    WardenMachine,
    open_warden_machine,
)

HEADER = struct.Struct("<IBBHQ")
BATCH, SEND, CLOSE_INPUT, SIGNAL, KILL_TREE, RELEASE = 0x02, 0x03, 0x04, 0x05, 0x06, 0x09
PING, CREDIT, CANCEL, CLOSE = 0x0A, 0x0C, 0x0D, 0x0E
MAKE_CELL, DROP_CELL = 0x10, 0x11
HELLO, REPLY, DATA, EXIT, TREE_GONE, INPUT_CLOSED, ENDING = range(0x80, 0x87)
OK = struct.pack("<H", 0)
NOTHING_LEFT = OK + struct.pack("<BBI", 1, 1, 0)
INPUT_WINDOW = 131072
SMALL = LinkSettings(
    stream_credit_bytes=2048,
    stream_floor_bytes=256,
    window_bytes=8192,
    open_timeout_s=5,
    close_timeout_s=0.05,
)


def text(value: bytes) -> bytes:
    return struct.pack("<I", len(value)) + value


def frame(kind: int, number: int, body: bytes, flags: int = 0, zero: int = 0) -> bytes:
    return HEADER.pack(len(body), kind, flags, zero, number) + body


def greeting(version: int = 2, added: bytes = b"") -> bytes:
    body = (
        struct.pack("<H", version)
        + text(b"build")
        + struct.pack("<IIHI", 1 << 20, 1 << 24, 1024, INPUT_WINDOW)
    )
    body += b"".join(map(text, (b"x86_64", b"6.1", b"host", b"boot"))) + struct.pack("<QQ", 77, 88)
    body += struct.pack("<iIII", 1, 0, 0, 0o22) + b"".join(map(text, (b"root", b"/root", b"/")))
    body += struct.pack("<I", 1) + text(b"/tmp") + struct.pack("<I", 1) + text(b"A") + text(b"b")
    body += struct.pack("<qBHIII", 10**18, 2, 7, 0, 255, 15) + text(b"/x") + added
    return b"EXECWORLD-WARD\r\n" + frame(HELLO, 0, body)


class Wire:
    """One direction, without bound."""

    def __init__(self) -> None:
        self._data = b""
        self._closed = False
        self._changed = anyio.Event()

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.put(data)

    def put(self, data: bytes) -> None:
        if self._closed:
            raise TransportBroken("closed")
        self._data += data
        self._change()

    async def receive(self) -> bytes:
        await anyio.lowlevel.checkpoint()
        while not self._data and not self._closed:
            await self._changed.wait()
        data, self._data = self._data, b""
        return data

    def close(self) -> None:
        self._closed = True
        self._change()

    def _change(self) -> None:
        changed, self._changed = self._changed, anyio.Event()
        changed.set()


@dataclass
class Pipe(Transport):
    """The host's end. What the host sends waits while *open_gate* is not set."""

    incoming: Wire
    outgoing: Wire
    open_gate: anyio.Event = field(default_factory=anyio.Event)
    closed: anyio.Event = field(default_factory=anyio.Event)

    async def receive(self, max_bytes: int) -> bytes:
        return await self.incoming.receive()

    async def send(self, data: bytes) -> None:
        await self.open_gate.wait()
        await self.outgoing.send(data)

    async def aclose(self) -> LinkEnd:
        self.closed.set()
        self.incoming.close()
        self.outgoing.close()
        return LinkEnd("closed by the test", 0)


@dataclass
class Peer:
    """The warden's end."""

    incoming: Wire
    outgoing: Wire
    pipe: Pipe
    buffer: bytes = b""

    async def write(self, *frames: bytes) -> None:
        await self.outgoing.send(b"".join(frames))

    async def take(self, size: int) -> bytes:
        with anyio.fail_after(5):
            while len(self.buffer) < size:
                data = await self.incoming.receive()
                assert data, "the host closed the link"
                self.buffer += data
        taken, self.buffer = self.buffer[:size], self.buffer[size:]
        return taken

    async def greet(self) -> bytes:
        """Greet and return the body of the host's greeting."""
        await self.write(greeting())
        assert await self.take(16) == b"EXECWORLD-HOST\r\n"
        kind, number, body = await self.next_frame()
        assert (kind, number) == (1, 0)
        return body

    async def next_frame(self) -> tuple[int, int, bytes]:
        """Type with MORE as bit 8, id, body."""
        length, kind, flags, zero, number = HEADER.unpack(await self.take(HEADER.size))
        assert zero == 0
        return kind | flags << 8, number, await self.take(length)

    async def expect(self, kind: int) -> tuple[int, bytes]:
        """The next frame, which must be of this kind."""
        found, number, body = await self.next_frame()
        assert found == kind, f"{found:#x} came, not {kind:#x}: {body[:80]!r}"
        return number, body

    async def reply(self, number: int, body: bytes = OK) -> None:
        await self.write(frame(REPLY, number, body))

    async def nothing_comes(self) -> None:
        with anyio.move_on_after(0.1):
            self.buffer += await self.incoming.receive()
        assert self.buffer == b"", f"came {self.buffer[:80]!r}"


def make_pipe() -> tuple[Pipe, Peer]:
    to_host, to_peer = Wire(), Wire()
    pipe = Pipe(to_host, to_peer)
    pipe.open_gate.set()
    return pipe, Peer(to_peer, to_host, pipe)


@asynccontextmanager
async def opened(settings: LinkSettings = SMALL) -> AsyncGenerator[tuple[WardenMachine, Peer]]:
    pipe, peer = make_pipe()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.greet)
        async with open_warden_machine(pipe, settings) as machine:
            await anyio.wait_all_tasks_blocked()
            yield machine, peer


def one(operation: Operation[Any]) -> Batch:
    batch = Batch()
    batch.add(operation)
    return batch


def spawn(stdin: Redirect = Redirect.NULL) -> Batch:
    return one(Spawn(b"/bin/x", (b"x",), (), b"/", stdin=stdin))


SPAWN = spawn()


def batch_reply(*values: bytes) -> bytes:
    return struct.pack("<HIHH", 0, 0, 0xFFFF, len(values)) + b"".join(OK + value for value in values)


def spawned(handle: int) -> bytes:
    return batch_reply(struct.pack("<Qi", handle, 1000 + handle))


def data(handle: int, content: bytes, *, flags: int = 1, stream: int = 1) -> bytes:
    return frame(DATA, 0, struct.pack("<QBBH", handle, stream, flags, 0) + content)


def exited(handle: int, raw: int = 0) -> bytes:
    return frame(EXIT, 0, struct.pack("<QiBQQQQQ", handle, raw, 3, 2_000_000, 0, 4096, 5, 0))


def gone(handle: int) -> bytes:
    return frame(TREE_GONE, 0, struct.pack("<QB", handle, 0))


async def run(machine: WardenMachine, batch: Batch, results: list[object]) -> None:
    results.append((await machine.run(batch)).values[0])


@asynccontextmanager
async def with_process(
    settings: LinkSettings = SMALL, stdin: Redirect = Redirect.NULL, *follow: bytes
) -> AsyncGenerator[tuple[WardenMachine, Peer]]:
    """A machine on which process 7 runs; *follow* comes in one piece with the reply to its spawn."""
    async with opened(settings) as (machine, peer):
        results: list[object] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, machine, spawn(stdin), results)
            number, _ = await peer.expect(BATCH)
            await peer.write(frame(REPLY, number, spawned(7)), *follow)
        assert results == [Spawned(7, 1007)]
        yield machine, peer
