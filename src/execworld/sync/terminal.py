"""A command on a terminal, blocking."""

from __future__ import annotations

from collections.abc import Iterator

import anyio

from execworld.seams import CommandResult, Foreground, Terminal, TreeReport
from execworld.sync.bridge import Bridge


class SyncTerminal:
    """Each method promises what the one of `Terminal` does. Iterating gives the output until its end."""

    def __init__(self, bridge: Bridge, terminal: Terminal) -> None:
        self._bridge = bridge
        self._terminal = terminal

    @property
    def pid(self) -> int:
        return self._terminal.pid

    @property
    def world_id(self) -> str:
        return self._terminal.world_id

    @property
    def view_id(self) -> str:
        return self._terminal.view_id

    @property
    def size(self) -> tuple[int, int]:
        return self._terminal.size

    @property
    def running(self) -> bool:
        return self._terminal.running

    def receive(self, max_bytes: int = 65536) -> bytes:
        """As `Terminal.receive`.

        Raises:
            anyio.EndOfStream: the command ended and everything that it wrote was delivered.
        """
        return self._bridge.call(lambda: self._terminal.receive(max_bytes))

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = self.receive()
            except anyio.EndOfStream:
                return
            yield chunk

    def send(self, data: bytes | str) -> None:
        self._bridge.call(lambda: self._terminal.send(data))

    def resize(self, rows: int, columns: int) -> None:
        self._bridge.call(lambda: self._terminal.resize(rows, columns))

    def foreground(self) -> Foreground | None:
        return self._bridge.call(self._terminal.foreground)

    def signal_foreground(self, number: int) -> int:
        return self._bridge.call(lambda: self._terminal.signal_foreground(number))

    def wait(self) -> CommandResult:
        return self._bridge.call(self._terminal.wait)

    def terminate(self, *, grace_s: float | None = None) -> TreeReport:
        return self._bridge.call(lambda: self._terminal.terminate(grace_s=grace_s))

    def close(self) -> None:
        """`Terminal.aclose`."""
        self._bridge.call(self._terminal.aclose)
