"""Start processes on this host, with pipes or on a terminal."""

from __future__ import annotations

import errno
import fcntl
import marshal
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from execworld.machine.base import (
    STDERR,
    STDOUT,
)
from execworld.machine.local import tree
from execworld.machine.local.processes import LocalProcess, set_terminal_size
from execworld.machine.operations import Spawn
from execworld.machine.values import Redirect, SpawnStage

_CHILD_SCRIPT: Final = str(Path(__file__).with_name("child.py"))
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


def require_descriptors(count: int) -> None:
    """Make sure that so many descriptors are free just now.

    Raises:
        SpawnError: there are fewer.
    """
    with ExitStack() as spares:
        try:
            first = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            spares.callback(os.close, first)
            for _ in range(count - 1):
                spares.callback(os.close, os.dup(first))
        except OSError as error:
            raise SpawnError(error.errno or errno.EMFILE, SpawnStage.SETUP) from error


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
        before = tree.now_ticks()
        if spec.limits or _signals_are_altered():
            pid = _spawn_by_script(spec, path, cwd, environment, stdio)
        else:
            pid = _spawn_directly(spec, path, cwd, environment, stdio)
        on_failure.pop_all()
    return _adopt(tree.Leader(pid, marker, before), streams, input_fd, None)


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
        set_terminal_size(terminal, *size)
        device = os.fstat(terminal).st_rdev
        os.set_blocking(controller, False)
        before = tree.now_ticks()
        pid = _spawn_by_script(spec, path, cwd, environment, (terminal, terminal, terminal))
    except BaseException:
        os.close(controller)
        raise
    finally:
        os.close(terminal)
    return _adopt(tree.Leader(pid, marker, before), {STDOUT: controller}, controller, device)


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


def _open_pid_fd(pid: int) -> int:
    if sys.platform != "linux":
        raise SpawnError(errno.ENOSYS, SpawnStage.SETUP)
    return os.pidfd_open(pid)
