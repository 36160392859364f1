"""The stream of a cell that a warden on this host passes as a descriptor."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import pytest

from execworld.machine.base import STDOUT, NoSuchHandle, StreamClosed
from execworld.machine.cell import CellPlan, CellReport
from execworld.machine.operations import MakeDirectory
from execworld.machine.warden import WardenMachine, open_cell_machine, open_warden_machine
from execworld.machine.warden.sockets import DescriptorTransport
from execworld.seams.errors import OutcomeUnknown, WorldLost
from execworld.testing.forwarding import ForwardingMachine
from execworld.testing.scripted_warden import (
    BATCH,
    CLOSE,
    DROP_CELL,
    MAKE_CELL,
    NOTHING_LEFT,
    PING,
    REPLY,
    SMALL,
    Peer,
    Wire,
    frame,
    make_pipe,
    one,
)

from .test_cells import RUNNING, make

pytestmark = pytest.mark.anyio


class SocketWire(Wire):
    """Both directions of the far end of a socket."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__()
        end.setblocking(False)
        self.end = end

    async def send(self, data: bytes) -> None:
        await anyio.lowlevel.checkpoint()
        self.end.sendall(data)

    async def receive(self) -> bytes:
        await anyio.wait_readable(self.end)
        return self.end.recv(65536)

    def close(self) -> None:
        self.end.close()


def far_end(end: socket.socket) -> tuple[Peer, SocketWire]:
    wire = SocketWire(end)
    return Peer(wire, wire, make_pipe()[0]), wire


@dataclass
class Scene:
    """A machine over a socket, its warden as a script, and both ends of the stream of a cell."""

    machine: WardenMachine
    warden: Peer
    wire: SocketWire
    passed: socket.socket
    cell: Peer
    cell_wire: SocketWire

    async def make(self, *, passing: bool = True) -> list[object]:
        outcomes: list[object] = []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make, self.machine, CellPlan([]), outcomes)
            number, _ = await self.warden.expect(MAKE_CELL)
            reply = frame(REPLY, number, RUNNING)
            if passing:
                socket.send_fds(self.wire.end, [reply], [self.passed.fileno()])
                self.passed.close()
            else:
                await self.warden.write(reply)
        return outcomes

    async def report(self) -> CellReport:
        (report,) = await self.make()
        assert isinstance(report, CellReport)
        return report


@asynccontextmanager
async def scene() -> AsyncGenerator[Scene]:
    (ours, theirs), (passed, inside) = socket.socketpair(), socket.socketpair()
    ours.setblocking(False)
    warden, wire = far_end(theirs)
    cell, cell_wire = far_end(inside)
    greetings: list[bytes] = []

    async def greet() -> None:
        greetings.append(await warden.greet())

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(greet)
            async with open_warden_machine(DescriptorTransport(ours), SMALL) as machine:
                await anyio.wait_all_tasks_blocked()
                assert greetings[0][2:4] == b"\2\0"
                yield Scene(machine, warden, wire, passed, cell, cell_wire)
    finally:
        for end in (theirs, passed, inside):
            end.close()


@asynccontextmanager
async def opened_cell(*, wrapped: bool = False) -> AsyncGenerator[tuple[Scene, WardenMachine]]:
    async with scene() as found:
        report = await found.report()
        first = ForwardingMachine(found.machine) if wrapped else found.machine

        greeted = anyio.Event()

        async def greet() -> None:
            await found.cell.greet()
            greeted.set()

        async def answer_drop() -> None:
            # Also when the test has failed, or it would never end.
            with anyio.CancelScope(shield=True), suppress(AssertionError, TimeoutError, OSError):
                number, _ = await found.warden.expect(DROP_CELL)
                found.cell_wire.close()
                await found.warden.reply(number, NOTHING_LEFT)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_drop)
            tasks.start_soon(greet)
            async with open_cell_machine(first, report, SMALL) as inner:
                await greeted.wait()
                yield found, inner


@pytest.mark.parametrize("wrapped", [False, True], ids=["direct", "wrapped"])
async def test_a_cell_is_a_machine_of_its_own(wrapped: bool) -> None:
    async with opened_cell(wrapped=wrapped) as (found, inner), anyio.create_task_group() as tasks:
        tasks.start_soon(inner.ping)
        number, _ = await found.cell.expect(PING)
        await found.cell.reply(number)
    assert (await inner.aclose()).gone


@pytest.mark.parametrize("wrapped", [False, True], ids=["direct", "wrapped"])
async def test_the_outer_link_takes_the_inner_one_with_it(wrapped: bool) -> None:
    """What was sent is unknown, what comes later was not sent; and the cell sees the end of its stream."""
    async with opened_cell(wrapped=wrapped) as (found, inner):
        async with anyio.create_task_group() as tasks:

            async def unknown() -> None:
                with pytest.raises(OutcomeUnknown):
                    await inner.run(one(MakeDirectory(b"/x", 0o700)))

            tasks.start_soon(unknown)
            await found.cell.expect(BATCH)
            found.machine._link.lose("the test")  # pyright: ignore[reportPrivateUsage] the script must not have to end
        assert inner.lost
        with pytest.raises(WorldLost):
            await inner.run(one(MakeDirectory(b"/x", 0o700)))
        assert await found.cell.incoming.receive() == b""
        assert not (await inner.aclose()).gone


async def test_a_call_in_the_moment_of_the_loss_was_not_sent() -> None:
    """The inner link has not heard of the loss yet."""
    async with opened_cell() as (found, inner):
        found.machine._link.lose("the test")  # pyright: ignore[reportPrivateUsage] the moment cannot be met from outside
        assert not inner.lost
        with pytest.raises(WorldLost):
            await inner.run(one(MakeDirectory(b"/x", 0o700)))


async def test_a_cell_that_ends_leaves_the_first_warden_alone() -> None:
    async with opened_cell() as (found, inner):
        found.cell_wire.end.shutdown(socket.SHUT_RDWR)
        with anyio.fail_after(5):
            while not inner.lost:
                await anyio.lowlevel.checkpoint()
        assert not found.machine.lost


async def test_leaving_drops_the_cell_and_closes_the_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with opened_cell() as (found, inner):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(inner.aclose)
            number, _ = await found.cell.expect(CLOSE)
            await found.cell.reply(number, NOTHING_LEFT)
        assert not found.machine.lost
    assert len(os.listdir("/proc/self/fd")) == before


async def test_the_handle_is_a_stream_for_everybody() -> None:
    async with scene() as found:
        report = await found.report()
        await found.machine.send(report.handle, b"to the cell")
        assert await found.cell.incoming.receive() == b"to the cell"
        found.cell_wire.end.sendall(b"from the cell")
        assert await found.machine.receive(report.handle, STDOUT, 4) == b"from"
        assert await found.machine.receive(report.handle, STDOUT, 100) == b" the cell"
        await found.machine.close_input(report.handle)
        assert await found.cell.incoming.receive() == b""
        found.cell_wire.close()
        assert await found.machine.receive(report.handle, STDOUT, 100) == b""
        with pytest.raises(StreamClosed):
            await found.machine.send(report.handle, b"x")
        await found.machine.release(report.handle)
        with pytest.raises(NoSuchHandle):
            await found.machine.receive(report.handle, STDOUT, 100)


async def test_a_cell_without_its_descriptor_ends_the_world() -> None:
    async with scene() as found:
        (outcome,) = await found.make(passing=False)
        assert isinstance(outcome, WorldLost | OutcomeUnknown)
        assert found.machine.lost


async def test_more_descriptors_than_were_due_are_closed_with_the_world() -> None:
    async with scene() as found:
        socket.send_fds(found.wire.end, [frame(0x84, 0, bytes(9))], [found.passed.fileno()])
        found.passed.close()
        await anyio.wait_all_tasks_blocked()
        await found.machine.aclose()
        assert await found.cell.incoming.receive() == b""


async def test_a_cancelled_making_leaves_no_descriptor() -> None:
    async with scene() as found:
        before = len(os.listdir("/proc/self/fd"))
        number = 0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(make, found.machine, CellPlan([]), list[object]())
            number, _ = await found.warden.expect(MAKE_CELL)
            tasks.cancel_scope.cancel()
        socket.send_fds(found.wire.end, [frame(REPLY, number, RUNNING)], [found.passed.fileno()])
        found.passed.close()
        assert await found.cell.incoming.receive() == b""
        assert len(os.listdir("/proc/self/fd")) == before - 1
