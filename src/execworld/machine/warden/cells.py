"""Machines over the stream of a cell."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio

from execworld.machine.base import STDOUT, Machine, NoSuchHandle, StreamClosed
from execworld.machine.cell import CellReport
from execworld.machine.warden.facts import LinkSettings
from execworld.machine.warden.machine import WardenMachine
from execworld.machine.warden.opening import open_warden_machine
from execworld.machine.warden.sending import InputPipe
from execworld.machine.warden.sockets import SocketTransport
from execworld.machine.warden.transport import DirectTransport, LinkEnd, Transport, TransportBroken
from execworld.seams.errors import ExecworldError

_LOST = "the world that it is in was lost"


@asynccontextmanager
async def open_cell_machine(
    machine: Machine, report: CellReport, settings: LinkSettings | None = None
) -> AsyncGenerator[WardenMachine]:
    """A machine over the cell of *report*, which *machine* made; leaving the context drops the cell.

    When the link of *machine* is lost, this one is lost with it, and tells of every call whether it was sent.

    Raises:
        WorldUnavailable: the cell does not answer; it was dropped.
    """
    chosen = replace(settings or LinkSettings(), lease_s=None)
    async with open_warden_machine(_transport(machine, report.handle), chosen) as inner:
        if isinstance(machine, WardenMachine):
            inner.world_id = machine.world_id
        yield inner


def _transport(machine: Machine, handle: int) -> Transport:
    if isinstance(machine, WardenMachine):
        passed = machine.cell_stream(handle)
        if passed is not None:
            return _PassedCellTransport(machine, handle, passed)
        return _DirectCellTransport(machine, handle)
    return _CellTransport(machine, handle)


class _CellTransport(Transport):
    """The stream of a cell over any machine."""

    def __init__(self, machine: Machine, handle: int) -> None:
        self._machine = machine
        self._handle = handle
        self._closing: anyio.Event | None = None
        self._end = LinkEnd("")

    async def receive(self, max_bytes: int) -> bytes:
        try:
            return await self._machine.receive(self._handle, STDOUT, max_bytes)
        except (ExecworldError, NoSuchHandle) as error:
            raise _broken(error) from error

    async def send(self, data: bytes) -> None:
        try:
            await self._machine.send(self._handle, data)
        except (ExecworldError, NoSuchHandle, StreamClosed) as error:
            raise _broken(error) from error

    async def aclose(self) -> LinkEnd:
        if self._closing is None:
            self._closing = anyio.Event()
            try:
                self._end = await self._drop()
            finally:
                self._closing.set()
        await self._closing.wait()
        return self._end

    async def _drop(self) -> LinkEnd:
        try:
            report = await self._machine.drop_cell(self._handle)
        except (ExecworldError, NoSuchHandle):
            return LinkEnd(_LOST)
        return LinkEnd("the cell ended" if report.gone else "the cell could not be ended", tree=report)


class _DirectCellTransport(_CellTransport, DirectTransport):
    """The stream of a cell over a warden: what is sent to the cell is on its way in the same turn of the event loop."""

    def __init__(self, machine: WardenMachine, handle: int) -> None:
        super().__init__(machine, handle)
        self._input: InputPipe = machine.input_pipe(handle)

    def send_now(self, data: memoryview) -> int:
        try:
            return self._input.send_now(data)
        except (ExecworldError, NoSuchHandle, StreamClosed) as error:
            raise _broken(error) from error

    async def wait_sendable(self) -> None:
        await self._input.wait_sendable()

    async def send(self, data: bytes) -> None:
        await DirectTransport.send(self, data)


class _PassedCellTransport(_CellTransport, DirectTransport):
    """The stream of a cell as the warden passed it; the warden still drops the cell, and proves it gone."""

    def __init__(self, machine: WardenMachine, handle: int, stream: SocketTransport) -> None:
        super().__init__(machine, handle)
        self._stream = stream

    async def receive(self, max_bytes: int) -> bytes:
        data = await self._stream.receive(max_bytes)
        self._check_end(data)
        return data

    def receive_now(self, max_bytes: int) -> bytes | None:
        data = self._stream.receive_now(max_bytes)
        self._check_end(data)
        return data

    def call_when_readable(self, call: Callable[[], None]) -> Callable[[], None] | None:
        return self._stream.call_when_readable(call)

    def _check_end(self, data: bytes | None) -> None:
        if data == b"" and self._machine.lost:
            raise TransportBroken(_LOST)

    def send_now(self, data: memoryview) -> int:
        return self._stream.send_now(data)

    async def wait_sendable(self) -> None:
        await self._stream.wait_sendable()

    async def send(self, data: bytes) -> None:
        await DirectTransport.send(self, data)

    async def aclose(self) -> LinkEnd:
        try:
            return await super().aclose()
        finally:
            self._stream.close_socket()


def _broken(error: Exception) -> TransportBroken:
    if isinstance(error, ExecworldError):
        return TransportBroken(error.message)
    return TransportBroken("the cell is gone")
