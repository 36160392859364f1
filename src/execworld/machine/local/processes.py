"""Start processes on this host, with pipes or on a terminal, and wait for them by descriptor."""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
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
from execworld.machine.operations import Spawn
from execworld.machine.values import Redirect, SpawnStage
from execworld.seams.results import KillMethod, ResourceUsage, TreeReport

_CHILD_SCRIPT: Final = str(Path(__file__).with_name("child.py"))
_SHORTAGE_PAUSE_S: Final = 0.05
_PIPE_BYTES: Final = 256 * 1024
_INHERITED_SIGNALS: Final = tuple(
    signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ, signal.SIGKILL, signal.SIGSTOP}
)


class SpawnError(Exception):
    """A process could not be started."""

    def __init__(self, status: int, stage: SpawnStage) -> None:
        super().__init__(f"spawn failed in stage {stage.name} with {errno.errorcode.get(status, status)}")
        self.status = status
        self.stage = stage


class LocalProcess:
    """One started process. Everything but `start` runs on the event loop."""

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
            _set_terminal_size(descriptor, rows, columns)

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
        alive = self._has_open_writer() or tree.group_alive(self.pid)
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


_RSS_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024


def start_process(spec: Spawn, path: bytes, cwd: bytes, marker: bytes) -> LocalProcess:
    """Start *spec*; blocks until the program runs or failed to (about a millisecond).

    Raises:
        SpawnError: nothing runs.
    """
    environment = dict(spec.environment)
    inherited = environment.get(tree.MARKER_NAME)
    environment[tree.MARKER_NAME] = marker if not inherited else inherited + b":" + marker
    if spec.terminal is not None:
        return _start_on_terminal(spec, path, cwd, environment, marker, spec.terminal)
    return _start_on_pipes(spec, path, cwd, environment, marker)


def _start_on_pipes(
    spec: Spawn, path: bytes, cwd: bytes, environment: dict[bytes, bytes], marker: bytes
) -> LocalProcess:
    with ExitStack() as child_side, ExitStack() as on_failure:
        streams: dict[int, int] = {}
        input_fd: int | None = None

        def close_later(descriptor: int, stack: ExitStack) -> int:
            stack.callback(os.close, descriptor)
            return descriptor

        null = close_later(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC), child_side)
        child_in = null
        if spec.stdin is Redirect.PIPE:
            read_end, write_end = _pipe()
            child_in = close_later(read_end, child_side)
            input_fd = close_later(write_end, on_failure)
            os.set_blocking(input_fd, False)
        child_out = {STDOUT: null, STDERR: null}
        for stream, redirect in ((STDOUT, spec.stdout), (STDERR, spec.stderr)):
            if redirect is Redirect.PIPE:
                read_end, write_end = _pipe()
                child_out[stream] = close_later(write_end, child_side)
                streams[stream] = close_later(read_end, on_failure)
                os.set_blocking(read_end, False)
            elif redirect is Redirect.MERGE:
                child_out[stream] = child_out[STDOUT]
        stdio = (child_in, child_out[STDOUT], child_out[STDERR])
        if spec.limits or _signals_are_altered():
            pid = _spawn_by_script(spec, path, cwd, environment, stdio)
        else:
            pid = _spawn_directly(spec, path, cwd, environment, stdio)
        on_failure.pop_all()
    return _adopt(tree.Leader(pid, marker), streams, input_fd, None)


def _start_on_terminal(
    spec: Spawn,
    path: bytes,
    cwd: bytes,
    environment: dict[bytes, bytes],
    marker: bytes,
    size: tuple[int, int],
) -> LocalProcess:
    try:
        controller, terminal = os.openpty()
    except OSError as error:
        raise SpawnError(error.errno or errno.EIO, SpawnStage.SETUP) from error
    try:
        _set_terminal_size(terminal, *size)
        device = os.fstat(terminal).st_rdev
        os.set_blocking(controller, False)
        pid = _spawn_by_script(spec, path, cwd, environment, (terminal, terminal, terminal))
    except BaseException:
        os.close(controller)
        raise
    finally:
        os.close(terminal)
    return _adopt(tree.Leader(pid, marker), {STDOUT: controller}, controller, device)


def _adopt(
    leader: tree.Leader, streams: dict[int, int], input_fd: int | None, terminal_device: int | None
) -> LocalProcess:
    """Take charge of a child that runs. If that fails it does not run on without anybody who knows of it."""
    try:
        pid_fd = _open_pid_fd(leader.pid)
    except OSError as error:
        os.killpg(leader.pid, signal.SIGKILL)
        os.waitpid(leader.pid, 0)
        for descriptor in {*streams.values(), input_fd}:
            if descriptor is not None:
                os.close(descriptor)
        raise SpawnError(error.errno or errno.EIO, SpawnStage.SETUP) from error
    return LocalProcess(leader, streams, input_fd, pid_fd, terminal_device)


def _spawn_directly(
    spec: Spawn, path: bytes, cwd: bytes, environment: dict[bytes, bytes], stdio: Sequence[int]
) -> int:
    try:
        child = subprocess.Popen(
            list(spec.argv),
            executable=path,
            cwd=cwd,
            env=environment,
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            start_new_session=True,
            user=spec.uid,
            group=spec.gid,
            extra_groups=_groups(spec),
            umask=-1 if spec.umask is None else spec.umask,
        )
    except OSError as error:
        # CPython names the directory when the child failed before execve(2), the program when in it.
        stage = SpawnStage.DIRECTORY if error.filename == cwd and error.filename != path else SpawnStage.EXEC
        raise SpawnError(error.errno or errno.EIO, stage) from error
    except (ValueError, subprocess.SubprocessError) as error:
        raise SpawnError(errno.EINVAL, SpawnStage.SETUP) from error
    child.returncode = 0  # waiting is ours alone; Popen must neither reap the child nor warn about it
    return child.pid


def _spawn_by_script(
    spec: Spawn, path: bytes, cwd: bytes, environment: dict[bytes, bytes], stdio: Sequence[int]
) -> int:
    """Start through ``child.py``, for what ``subprocess`` has no parameter for. Costs one interpreter start."""
    content = marshal.dumps(
        {
            "path": path,
            "argv": list(spec.argv),
            "environment": environment,
            "cwd": cwd,
            "terminal": spec.terminal is not None,
            "limits": [(limit.resource, limit.soft, limit.hard) for limit in spec.limits],
            "umask": spec.umask,
            "groups": _groups(spec),
            "gid": spec.gid,
            "uid": spec.uid,
        }
    )
    spec_read, spec_write = _pipe()
    try:
        status_read, status_write = _pipe()
    except OSError:
        os.close(spec_read)
        os.close(spec_write)
        raise
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-E", _CHILD_SCRIPT, str(spec_read), str(status_write)],
            env={},
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            start_new_session=True,
            pass_fds=(spec_read, status_write),
        )
    except OSError as error:
        os.close(spec_write)
        os.close(status_read)
        raise SpawnError(error.errno or errno.EIO, SpawnStage.SETUP) from error
    finally:
        os.close(spec_read)
        os.close(status_write)
    try:
        with os.fdopen(spec_write, "wb") as stream:
            stream.write(content)
    except BrokenPipeError:
        pass  # the child died before it read; the status pipe tells
    with os.fdopen(status_read, "rb") as stream:
        status = stream.read()
    if status:
        child.wait()
        raise SpawnError(int.from_bytes(status[1:5], "little"), SpawnStage(status[0]))
    child.returncode = 0
    return child.pid


def _signals_are_altered() -> bool:
    """Whether a child would inherit a blocked or ignored signal beyond the three that `subprocess` resets itself."""
    if signal.pthread_sigmask(signal.SIG_BLOCK, ()):
        return True
    return any(signal.getsignal(number) is signal.SIG_IGN for number in _INHERITED_SIGNALS)


def _groups(spec: Spawn) -> list[int] | None:
    if spec.groups is not None:
        return list(spec.groups)
    return [] if spec.uid is not None else None


def _pipe() -> tuple[int, int]:
    read_end, write_end = os.pipe()  # both ends close-on-exec (PEP 446)
    if sys.platform == "linux":
        try:
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        except OSError:
            pass  # a user over the limit on pipe pages gets the default size, which only costs speed
    return read_end, write_end


def _set_terminal_size(descriptor: int, rows: int, columns: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _open_pid_fd(pid: int) -> int:
    if sys.platform != "linux":
        raise SpawnError(errno.ENOSYS, SpawnStage.SETUP)
    return os.pidfd_open(pid)
