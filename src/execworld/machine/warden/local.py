"""A warden as a child of this process, over a socket pair."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

import anyio
import anyio.to_thread

from execworld.machine.warden.sockets import DescriptorTransport, error_text
from execworld.machine.warden.transport import LinkEnd
from execworld.seams.errors import WorldUnavailable

_BUFFER_BYTES: Final = 1024 * 1024
_END_TIMEOUT_S: Final = 12.0
_LOOK_S: Final = 0.5
_SHOWN_BYTES: Final = 400


# Kept so that they can be reaped later.
_unreaped: Final[list[subprocess.Popen[bytes]]] = []


class LocalWardenTransport(DescriptorTransport):
    """Made by `start_local_warden`."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, said: int) -> None:
        super().__init__(connection)
        self._process = process
        self._said = said
        self._closing: anyio.Event | None = None
        self._end = LinkEnd("")

    @property
    def pid(self) -> int:
        """Of the warden."""
        return self._process.pid

    async def aclose(self) -> LinkEnd:
        if self._closing is None:
            self._closing = anyio.Event()
            try:
                self.close_socket()
                self._end = await anyio.to_thread.run_sync(self._join)
            finally:
                self._closing.set()
        await self._closing.wait()
        return self._end

    def _join(self) -> LinkEnd:
        """Wait until the warden ended, which it does by itself when the link is closed. Bounded."""
        killed = ""
        code = self._join_process(_END_TIMEOUT_S)
        if code is None and not _is_zombie(self._process.pid):
            self._process.kill()  # the supervisors of its commands end them when it is gone
            killed = " (it did not end by itself in time)"
            code = self._join_process(_END_TIMEOUT_S)
        said = _last_words(self._said)
        if code is None:
            # Not even KILL ends a thread that waits for a file system; the process goes when that answers or is gone.
            _unreaped.append(self._process)
            ended = (
                "the warden ended but for a thread that hangs in the kernel: a file system does not answer"
            )
        elif code < 0:
            ended = f"the warden was ended by signal {signal.Signals(-code).name}"
        else:
            ended = f"the warden ended with status {code}"
        return LinkEnd(ended + killed + (f", and said {said!r}" if said else ""), code)

    def _join_process(self, timeout_s: float) -> int | None:
        """Its status; None when it did not end in time, or never will by anything that could be done here."""
        deadline = time.monotonic() + timeout_s
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                return self._process.wait(min(_LOOK_S, left_s))
            except subprocess.TimeoutExpired:
                if _is_zombie(self._process.pid):
                    return None
        return None


def start_local_warden(path: Path) -> LocalWardenTransport:
    """Start the warden *path* as a child of this process.

    It is in a session of its own: what a terminal sends to this program must not end its world.

    Raises:
        WorldUnavailable: it could not be started.
    """
    _unreaped[:] = [process for process in _unreaped if process.poll() is None]
    ours, theirs = socket.socketpair()
    said, says = os.pipe()
    try:
        ours.setblocking(False)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER_BYTES)
        for end_of_pipe in (said, says):
            # Read at the end only, and by then some process may still hold it: neither side may wait for the other.
            os.set_blocking(end_of_pipe, False)
        process = subprocess.Popen(
            [os.fspath(path)],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=says,
            start_new_session=True,
        )
    except OSError as error:
        ours.close()
        os.close(said)
        raise WorldUnavailable(
            f"the warden {path} cannot be started: {error_text(error)}",
            op="world.open",
            hint="it must be a program for this kernel and architecture",
        ) from error
    finally:
        theirs.close()
        os.close(says)
    return LocalWardenTransport(process, ours, said)


def _is_zombie(pid: int) -> bool:
    """Whether its first thread ended. With wait(2) saying otherwise of the process, another thread did not."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2][:1] == b"Z"
    except OSError:
        return False


def _last_words(said: int) -> str:
    try:
        data = os.read(said, 65536)
    except OSError:
        data = b""
    finally:
        os.close(said)
    return data[-_SHOWN_BYTES:].decode("utf-8", "replace").strip()
