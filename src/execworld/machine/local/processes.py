"""A running process of this host and its tree: streams, signals, and waiting for them by descriptor."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import signal
import struct
import sys
import termios
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from execworld.machine.base import (
    STDERR,
    STDOUT,
    ExitStatus,
    ForegroundState,
    NoSuchHandle,
    SignalFailed,
    SignalTarget,
    StreamClosed,
)
from execworld.machine.local import tree
from execworld.machine.local.inspection import group_waits_for_input
from execworld.seams.results import KillMethod, ResourceUsage, TreeReport

_SHORTAGE_PAUSE_S: Final = 0.05
_RSS_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


class LocalProcess:
    """One started process. All of it runs on the event loop."""

    def __init__(
        self,
        leader: tree.Leader,
        streams: dict[int, int],
        input_fd: int | None,
        pid_fd: int,
        terminal_device: int | None,
    ) -> None:
        self.pid = leader.pid
        self._leader = leader
        self._streams = streams
        self._input_fd = input_fd
        self._terminal = terminal_device is not None
        self._terminal_device = terminal_device
        self._received = {STDOUT: 0, STDERR: 0}
        self._exit: ExitStatus | None = None
        self._tree_gone = False
        self._ended: set[int] = set()
        self._waiting = anyio.Lock()
        self._pid_fd = pid_fd

    # Streams

    async def receive(self, stream: int, max_bytes: int) -> bytes:
        """The next bytes; empty at the end of the stream (see `Machine.receive`)."""
        # A stream that always has something must not keep the event loop from everything else. Before the read, because
        # what was read would be lost to a cancellation after it.
        await anyio.lowlevel.checkpoint()
        while True:
            descriptor = self._streams.get(stream)
            if descriptor is None or stream in self._ended:
                return b""
            exited = self._terminal and self._has_exited()
            try:
                data = os.read(descriptor, max_bytes)
            except BlockingIOError:
                # On a terminal a background job may hold the other side for ever. The kernel flushes its buffers before
                # it answers EAGAIN (n_tty_read), so after the leader's end that answer means that all was delivered.
                if exited:
                    self._ended.add(stream)
                    return b""
                await self._wait_readable(descriptor)
                continue
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EBADF):  # EIO: nobody holds the terminal any more
                    raise
                data = b""
            if not data:
                self._ended.add(stream)
            self._received[stream] += len(data)
            return data

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            if self._input_fd is None or (self._terminal and self._has_exited()):
                raise StreamClosed
            try:
                view = view[os.write(self._input_fd, view) :]
            except BlockingIOError:
                await anyio.wait_writable(self._input_fd)
            except (BrokenPipeError, ConnectionResetError) as error:
                raise StreamClosed from error
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EBADF):
                    raise
                raise StreamClosed from error
        if self._input_fd is None:
            raise StreamClosed

    def close_input(self) -> None:
        if self._input_fd is not None and not self._terminal:
            descriptor, self._input_fd = self._input_fd, None
            anyio.notify_closing(descriptor)
            os.close(descriptor)

    # Signals and waiting

    async def signal(self, number: int, target: SignalTarget) -> int:
        match target:
            case SignalTarget.LEADER:
                return self._signal_leader(number)
            case SignalTarget.FOREGROUND:
                return self._signal_foreground(number)
            case SignalTarget.TREE:
                return await anyio.to_thread.run_sync(self._signal_tree, number)

    async def wait(self) -> ExitStatus:
        async with self._waiting:  # an event loop allows one waiter a descriptor
            while not self._has_exited():
                await anyio.wait_readable(self._pid_fd)
        assert self._exit is not None
        return self._exit

    async def wait_tree(self) -> None:
        await self.wait()
        while not self._tree_gone:
            try:
                members = await anyio.to_thread.run_sync(self._members, abandon_on_cancel=True)
                descriptor = tree.open_pidfd(members[0]) if members else None
            except OSError as error:
                if error.errno not in tree.OUT_OF_DESCRIPTORS:
                    raise
                await anyio.sleep(_SHORTAGE_PAUSE_S)
                continue
            if not members:
                self._tree_gone = True
                return
            if descriptor is not None:
                try:
                    await anyio.wait_readable(descriptor)
                finally:
                    anyio.notify_closing(descriptor)
                    os.close(descriptor)

    async def kill_tree(self) -> TreeReport:
        if self._tree_gone and self._exit is not None:
            return TreeReport(gone=True, method=KillMethod.MARKER_SWEEP)
        if self._exit is None:
            self._kill_group()
        # Not abandoned on cancellation: it is bounded, and a half-done sweep is what a caller must never get.
        try:
            survivors = await anyio.to_thread.run_sync(tree.kill_members, self._members)
        except OSError:
            return TreeReport(gone=False, method=KillMethod.PROCESS_GROUP)
        if not survivors:
            await self.wait()
            self._tree_gone = True
        return TreeReport(
            gone=not survivors,
            method=KillMethod.MARKER_SWEEP,
            survivors=tuple(member.pid for member in survivors),
        )

    # Terminal

    def resize(self, rows: int, columns: int) -> None:
        descriptor = self._streams.get(STDOUT)
        if descriptor is not None:
            set_terminal_size(descriptor, rows, columns)

    async def foreground(self) -> ForegroundState | None:
        group = self._foreground_group()
        if group is None or self._terminal_device is None:
            return None
        waits = await anyio.to_thread.run_sync(group_waits_for_input, group, self._terminal_device)
        return ForegroundState(group, waits)

    # End

    def close(self) -> None:
        """Free descriptors and reap the leader if it ended. The tree is left alone."""
        self.close_input()
        for descriptor in self._streams.values():
            anyio.notify_closing(descriptor)
            os.close(descriptor)
        self._streams, self._input_fd = {}, None
        if self._pid_fd >= 0:
            self._has_exited()
            anyio.notify_closing(self._pid_fd)
            os.close(self._pid_fd)
            self._pid_fd = -1

    def discard(self) -> None:
        """Kill and free a process that no task has seen yet, from a worker thread."""
        self.kill_now()
        tree.kill_members(self._members)
        for descriptor in {*self._streams.values(), self._input_fd, self._pid_fd}:
            if descriptor is not None:
                os.close(descriptor)
        os.waitpid(self.pid, 0)

    def kill_now(self) -> None:
        """Last resort at the exit of this process: one KILL to the group, no waiting."""
        if self._exit is None:
            self._kill_group()

    def _has_exited(self) -> bool:
        if self._exit is None:
            self._reap()
        return self._exit is not None

    def _reap(self) -> None:
        """Collect the status if the leader ended. Until then its number is not reused: signals by number are safe."""
        if self._pid_fd < 0:
            raise NoSuchHandle(f"process {self.pid} was released")
        pid, raw, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return
        pending = {stream: self._readable_bytes(stream) for stream in (STDOUT, STDERR)}
        alive = self._has_open_writer() or self._has_followers()
        self._exit = ExitStatus(
            raw=raw,
            usage=ResourceUsage(usage.ru_utime, usage.ru_stime, usage.ru_maxrss * _RSS_UNIT_BYTES),
            out_of_memory=None,
            output_bytes=(
                self._received[STDOUT] + pending[STDOUT],
                self._received[STDERR] + pending[STDERR],
            ),
            tree_alive=alive,
        )

    def _has_followers(self) -> bool:
        """Whether the leader, which was just reaped, left processes behind.

        A shell at a terminal starts each job in a group of its own, so all of the session is looked for there.
        """
        if not self._terminal:
            return tree.group_alive(self.pid)
        try:
            return bool(tree.tree_members(self._leader, reaped=True))
        except OSError:
            return True  # out of descriptors: not proven gone

    def _readable_bytes(self, stream: int) -> int:
        descriptor = self._streams.get(stream)
        if descriptor is None or self._terminal:
            return 0
        answer = fcntl.ioctl(descriptor, termios.FIONREAD, b"\0\0\0\0")
        return int(struct.unpack("i", answer)[0])

    def _has_open_writer(self) -> bool:
        """Whether some process still holds a pipe of ours: one without a writer reports a hang-up."""
        if self._terminal or not self._streams:
            return False
        poller = select.poll()
        for descriptor in self._streams.values():
            poller.register(descriptor, 0)
        hung_up = {descriptor for descriptor, events in poller.poll(0) if events & select.POLLHUP}
        return any(descriptor not in hung_up for descriptor in self._streams.values())

    def _members(self) -> list[tree.Member]:
        return tree.tree_members(self._leader, reaped=self._exit is not None)

    def _signal_leader(self, number: int) -> int:
        if self._has_exited():
            return 0
        try:
            os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return 0
        return 1

    def _signal_tree(self, number: int) -> int:
        try:
            return tree.signal_all(self._members, number)
        except OSError:
            # No descriptor to look into /proc with. The group is reached without one, while its number is ours.
            if self._exit is None:
                os.killpg(self.pid, number)
            return 0

    def _foreground_group(self) -> int | None:
        descriptor = self._streams.get(STDOUT)
        if not self._terminal or descriptor is None or self._has_exited():
            return None
        try:
            group = os.tcgetpgrp(descriptor)
        except OSError:
            return None
        return group if group > 1 else None

    def _signal_foreground(self, number: int) -> int:
        group = self._foreground_group()
        if group is None:
            raise SignalFailed("the terminal has no foreground process group")
        if group == self.pid and number == signal.SIGKILL:
            raise SignalFailed("KILL would end the program that the terminal was opened with")
        try:
            os.killpg(group, number)
        except (ProcessLookupError, PermissionError) as error:
            raise SignalFailed(f"process group {group} cannot be signalled") from error
        return group

    def _kill_group(self) -> None:
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            return  # nothing is left in the group, or all that is left took another user id; the sweep will tell

    async def _wait_readable(self, descriptor: int) -> None:
        if not self._terminal:
            await anyio.wait_readable(descriptor)
            return
        async with anyio.create_task_group() as group:

            async def until(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                group.cancel_scope.cancel()

            group.start_soon(until, partial(anyio.wait_readable, descriptor))
            group.start_soon(until, self.wait)


def set_terminal_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
