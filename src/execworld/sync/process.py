"""A running command and its streams, blocking."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from execworld.seams import CommandResult, OutputSlice, OutputStream, Process, TreeReport
from execworld.sync.bridge import Bridge


class SyncReceiveStream:
    """Bytes from a command. Iterating gives chunks of no particular size until the end."""

    def __init__(self, bridge: Bridge, stream: ByteReceiveStream) -> None:
        self._bridge = bridge
        self._stream = stream

    def receive(self, max_bytes: int = 65536) -> bytes:
        """The next bytes, at least one.

        Raises:
            anyio.EndOfStream: there are no more.
        """
        return self._bridge.call(lambda: self._stream.receive(max_bytes))

    def __iter__(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = self.receive()
            except anyio.EndOfStream:
                return
            yield chunk

    def close(self) -> None:
        self._bridge.call(self._stream.aclose)


class SyncSendStream:
    """Bytes to a command."""

    def __init__(self, bridge: Bridge, stream: ByteSendStream) -> None:
        self._bridge = bridge
        self._stream = stream

    def send(self, data: bytes) -> None:
        """Write all of *data*, waiting for the reader.

        Raises:
            anyio.BrokenResourceError: the command does not read any more.
        """
        self._bridge.call(lambda: self._stream.send(data))

    def close(self) -> None:
        """End of input for the command."""
        self._bridge.call(self._stream.aclose)


class SyncProcess:
    """One running command and its whole tree. Each method promises what the one of `Process` does."""

    def __init__(self, bridge: Bridge, process: Process) -> None:
        self._bridge = bridge
        self._process = process

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
    def stdin(self) -> SyncSendStream | None:
        stream = self._process.stdin
        return None if stream is None else SyncSendStream(self._bridge, stream)

    @property
    def stdout(self) -> SyncReceiveStream | None:
        stream = self._process.stdout
        return None if stream is None else SyncReceiveStream(self._bridge, stream)

    @property
    def stderr(self) -> SyncReceiveStream | None:
        stream = self._process.stderr
        return None if stream is None else SyncReceiveStream(self._bridge, stream)

    @property
    def running(self) -> bool:
        return self._process.running

    def read_output(self, stream: OutputStream, offset: int = 0) -> OutputSlice:
        async def read() -> OutputSlice:  # in the loop, where the window of kept output is written
            return self._process.read_output(stream, offset)

        return self._bridge.call(read)

    def wait(self) -> CommandResult:
        return self._bridge.call(self._process.wait)

    def wait_tree(self) -> None:
        self._bridge.call(self._process.wait_tree)

    def send_signal(self, number: int) -> None:
        self._bridge.call(lambda: self._process.send_signal(number))

    def terminate(self, *, grace_s: float | None = None) -> TreeReport:
        return self._bridge.call(lambda: self._process.terminate(grace_s=grace_s))

    def close(self) -> None:
        """`Process.aclose`."""
        self._bridge.call(self._process.aclose)
