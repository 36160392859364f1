"""`Terminal` over any machine."""

from __future__ import annotations

import contextlib

import anyio

from execworld.machine.base import STDOUT, NoSuchHandle, SignalFailed, SignalTarget, StreamClosed
from execworld.machine.process import MachineProcess, ProcessOptions, ProcessScope
from execworld.machine.values import Spawned
from execworld.seams.errors import CommandInvalid, SignalRefused
from execworld.seams.results import CommandResult, TreeReport
from execworld.seams.terminal import Foreground, Terminal


class MachineTerminal(Terminal):
    """A spawned command on a terminal; its tree is handled like that of any other process."""

    def __init__(
        self, scope: ProcessScope, spawned: Spawned, size: tuple[int, int], options: ProcessOptions
    ) -> None:
        self._machine = scope.machine
        self._handle = spawned.handle
        self._size = size
        self._process = MachineProcess(scope, spawned, options)
        self._closed = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def world_id(self) -> str:
        return self._process.world_id

    @property
    def view_id(self) -> str:
        return self._process.view_id

    @property
    def size(self) -> tuple[int, int]:
        return self._size

    @property
    def running(self) -> bool:
        return self._process.running

    @property
    def _is_over(self) -> bool:
        """It was closed, by whoever opened it or with its world."""
        return self._closed or self._process.freed

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._is_over:
            raise anyio.ClosedResourceError
        try:
            data = await self._machine.receive(self._handle, STDOUT, max_bytes)
        except NoSuchHandle as error:
            raise anyio.ClosedResourceError from error
        if not data:
            raise anyio.EndOfStream
        self._process.wrote(len(data))
        return data

    async def send(self, data: bytes | str) -> None:
        if self._is_over:
            raise anyio.ClosedResourceError
        content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        try:
            await self._machine.send(self._handle, content)
        except (StreamClosed, NoSuchHandle) as error:
            raise anyio.BrokenResourceError from error

    async def resize(self, rows: int, columns: int) -> None:
        check_size(rows, columns)
        if not self._is_over:
            with contextlib.suppress(NoSuchHandle):  # the world frees it meanwhile
                await self._machine.resize(self._handle, rows, columns)
        self._size = (rows, columns)

    async def foreground(self) -> Foreground | None:
        if self._is_over:
            return None
        try:
            state = await self._machine.foreground(self._handle)
        except NoSuchHandle:
            return None
        return None if state is None else Foreground(state.group_id, state.waits_for_input)

    async def signal_foreground(self, number: int) -> int:
        if self._is_over:
            raise self._refused("the terminal is closed")
        try:
            return await self._machine.signal(self._handle, number, SignalTarget.FOREGROUND)
        except NoSuchHandle as error:
            raise self._refused("the terminal is closed") from error
        except SignalFailed as error:
            raise self._refused(str(error)) from error

    def _refused(self, why: str) -> SignalRefused:
        return SignalRefused(why, op="terminal.signal_foreground", world=self.world_id)

    async def wait(self) -> CommandResult:
        return await self._process.wait()

    async def terminate(self, *, grace_s: float | None = None) -> TreeReport:
        return await self._process.terminate(grace_s=grace_s)

    async def aclose(self) -> None:
        self._closed = True
        await self._process.aclose()


def check_size(rows: int, columns: int) -> None:
    """Refuse a terminal size that the kernel cannot hold (struct winsize, ioctl_tty(2)).

    Raises:
        CommandInvalid: a number is no integer from 1 to 65535.
    """
    for name, value in (("rows", rows), ("columns", columns)):
        if value != int(value) or not 1 <= value <= 0xFFFF:
            raise CommandInvalid(f"{name} of a terminal must be an integer from 1 to 65535, got {value!r}")
