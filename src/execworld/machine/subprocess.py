"""`Subprocess` over any machine: validation, lookup, spawn and the life of a call."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import anyio.lowlevel

from execworld.machine.batch import Batch, BatchFailed, Step
from execworld.machine.ending import checked_seconds
from execworld.machine.environment import command_environment
from execworld.machine.operations import (
    Check,
    FindExecutable,
    Spawn,
    Stat,
)
from execworld.machine.process import MachineProcess, ProcessOptions, ProcessScope
from execworld.machine.terminal import MachineTerminal, check_size
from execworld.machine.values import KindMask, Redirect, Spawned, SpawnStage
from execworld.seams.errors import (
    CommandFailed,
    CommandInvalid,
    CommandNotExecutable,
    CommandNotFound,
    CommandTimeout,
    ExecworldError,
    OutcomeUnknown,
    SpawnFailed,
    WorkingDirectoryMissing,
)
from execworld.seams.paths import WorldPath, decode_path, encode_path, printable_path
from execworld.seams.results import CommandResult, CommandStatus, OutputLimits
from execworld.seams.subprocess import (
    DEFAULT_GRACE_S,
    Argument,
    EnvironmentOverrides,
    OutputCallback,
    Process,
    StreamMode,
    Subprocess,
)
from execworld.seams.terminal import Terminal
from execworld.seams.values import record

_REDIRECTS: Final = {
    StreamMode.COLLECT: Redirect.PIPE,
    StreamMode.PIPE: Redirect.PIPE,
    StreamMode.NULL: Redirect.NULL,
    StreamMode.MERGE: Redirect.MERGE,
}
_DEFAULT_PATH: Final = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@record
class _Command:
    """A validated command, in bytes."""

    argv: tuple[bytes, ...]
    cwd: bytes
    environment: tuple[tuple[bytes, bytes], ...]

    @property
    def search(self) -> tuple[bytes, ...]:
        path = next((value for name, value in self.environment if name == b"PATH"), _DEFAULT_PATH)
        return tuple(directory for directory in path.split(b":") if directory.startswith(b"/"))

    @property
    def program(self) -> bytes:
        name = self.argv[0]
        return posixpath.join(self.cwd, name) if b"/" in name else name


class MachineSubprocess(Subprocess):
    """Runs programs on a machine.

    Args:
        scope: What all processes of the view share.
        cwd: Directory that commands start in by default.
        environment: What commands start from.
        check: Called with the name of the operation before anything happens; raises when the view may not be used.
        notes: What the result of each command is to say.
    """

    def __init__(
        self,
        scope: ProcessScope,
        *,
        cwd: bytes,
        environment: Mapping[bytes, bytes],
        check: Callable[[str], None],
        notes: tuple[str, ...] = (),
    ) -> None:
        self._notes = notes
        self._scope = scope
        self._cwd = cwd
        self._environment = environment
        self._inherited = command_environment(environment, None)
        self._check = check

    @property
    def world_id(self) -> str:
        return self._scope.world_id

    @property
    def view_id(self) -> str:
        return self._scope.view_id

    def moved(self, cwd: str, note: str) -> MachineSubprocess:
        """The same, with another directory to start in by default, which every result tells of."""
        return MachineSubprocess(
            self._scope,
            cwd=encode_path(cwd),
            environment=self._environment,
            check=self._check,
            notes=(*self._notes, note),
        )

    async def resolve_executable(
        self, name: str, *, env: EnvironmentOverrides | None = None, cwd: WorldPath | None = None
    ) -> str:
        op = "subprocess.resolve_executable"
        self._check(op)
        if not name:
            raise CommandInvalid("the name of the program is empty", op=op, world=self.world_id)
        if "/" in name and not name.startswith("/") and cwd is None:
            raise CommandInvalid(
                f"cannot resolve the relative path {printable_path(name)} without a working directory",
                op=op,
                world=self.world_id,
                hint="name a working directory, or the absolute path",
            )
        command = self._command([name], cwd, env, op)
        batch = Batch()
        found = batch.add(FindExecutable(command.program, command.search))
        try:
            return decode_path((await self._scope.machine.run(batch))[found])
        except BatchFailed as failure:
            raise self._lookup_error(command, failure.error.status, op) from failure

    async def run(
        self,
        argv: Sequence[Argument],
        *,
        cwd: WorldPath | None = None,
        env: EnvironmentOverrides | None = None,
        stdin: bytes | None = None,
        stdout: StreamMode = StreamMode.COLLECT,
        stderr: StreamMode = StreamMode.COLLECT,
        limits: OutputLimits | None = None,
        timeout_s: float | None = None,
        grace_s: float = DEFAULT_GRACE_S,
        on_output: OutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult:
        op = "subprocess.run"
        self._check(op)
        if StreamMode.PIPE in (stdout, stderr):
            raise CommandInvalid(
                "run() cannot hand out a pipe",
                op=op,
                world=self.world_id,
                hint="start the command instead",
            )
        options = self._options(stdout, stderr, limits, timeout_s, grace_s, stdin, False, on_output, op)
        process = await self._spawn(self._command(argv, cwd, env, op), options, op)
        try:
            result = await process.wait()
        except BaseException:
            await process.aclose()
            raise
        await process.leave_in_background()
        if check:
            self._raise_unless_ok(result, argv, op)
        return result

    def start(
        self,
        argv: Sequence[Argument],
        *,
        cwd: WorldPath | None = None,
        env: EnvironmentOverrides | None = None,
        stdin: bytes | None = None,
        pipe_stdin: bool = False,
        stdout: StreamMode = StreamMode.COLLECT,
        stderr: StreamMode = StreamMode.COLLECT,
        limits: OutputLimits | None = None,
        timeout_s: float | None = None,
        grace_s: float = DEFAULT_GRACE_S,
        on_output: OutputCallback | None = None,
    ) -> AbstractAsyncContextManager[Process]:
        op = "subprocess.start"
        self._check(op)
        options = self._options(stdout, stderr, limits, timeout_s, grace_s, stdin, pipe_stdin, on_output, op)
        return self._started(self._command(argv, cwd, env, op), options, op)

    def open_terminal(
        self,
        argv: Sequence[Argument],
        *,
        rows: int = 24,
        columns: int = 80,
        cwd: WorldPath | None = None,
        env: EnvironmentOverrides | None = None,
        grace_s: float = DEFAULT_GRACE_S,
    ) -> AbstractAsyncContextManager[Terminal]:
        op = "subprocess.open_terminal"
        self._check(op)
        check_size(rows, columns)
        checked_seconds(grace_s, "grace_s")
        command = self._command(argv, cwd, {"TERM": "xterm-256color", **(env or {})}, op)
        return self._opened_terminal(command, (rows, columns), ProcessOptions(grace_s=grace_s), op)

    @asynccontextmanager
    async def _started(self, command: _Command, options: ProcessOptions, op: str) -> AsyncGenerator[Process]:
        process = await self._spawn(command, options, op)
        try:
            yield process
        finally:
            await process.aclose()

    @asynccontextmanager
    async def _opened_terminal(
        self, command: _Command, size: tuple[int, int], options: ProcessOptions, op: str
    ) -> AsyncGenerator[Terminal]:
        spawned = await self._spawn_step(command, op, Redirect.NULL, Redirect.NULL, Redirect.NULL, size)
        terminal = MachineTerminal(self._scope, spawned, size, options)
        try:
            yield terminal
        finally:
            await terminal.aclose()

    async def _spawn(self, command: _Command, options: ProcessOptions, op: str) -> MachineProcess:
        with_input = options.pipe_stdin or options.stdin is not None
        spawned = await self._spawn_step(
            command,
            op,
            Redirect.PIPE if with_input else Redirect.NULL,
            _REDIRECTS[options.stdout],
            _REDIRECTS[options.stderr],
            None,
        )
        return MachineProcess(self._scope, spawned, options)

    async def _spawn_step(
        self,
        command: _Command,
        op: str,
        stdin: Redirect,
        stdout: Redirect,
        stderr: Redirect,
        terminal: tuple[int, int] | None,
    ) -> Spawned:
        batch = Batch()
        directory = batch.add(Stat(command.cwd))
        is_directory = batch.add(Check(directory.index, KindMask.DIRECTORY))
        found = batch.add(FindExecutable(command.program, command.search))
        spawned = batch.add(
            Spawn(
                path=found.path,
                argv=command.argv,
                environment=command.environment,
                cwd=command.cwd,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                terminal=terminal,
            )
        )
        await anyio.lowlevel.checkpoint_if_cancelled()  # a machine may spawn without ever waiting
        try:
            return (await self._scope.machine.run(batch))[spawned]
        except BatchFailed as failure:
            raise self._spawn_error(command, failure, (directory, is_directory), found, op) from failure

    def _command(
        self, argv: Sequence[Argument], cwd: WorldPath | None, env: EnvironmentOverrides | None, op: str
    ) -> _Command:
        if isinstance(argv, (str, bytes)):
            raise CommandInvalid(
                "the command is one string, not a sequence of arguments",
                op=op,
                world=self.world_id,
                hint="give a list of arguments; a command string is for the shell",
            )
        arguments = tuple(
            self._bytes(argument, f"argument {position}", op) for position, argument in enumerate(argv)
        )
        if not arguments or not arguments[0]:
            raise CommandInvalid("the command is empty", op=op, world=self.world_id)
        directory = self._cwd
        if cwd is not None:
            directory = posixpath.join(directory, self._bytes(cwd, "the working directory", op))
            if not encode_path(cwd):
                raise CommandInvalid(
                    "the working directory is empty",
                    op=op,
                    world=self.world_id,
                    hint="leave it out for that of the world",
                )
        inherited = command_environment(self._environment, env) if env else self._inherited
        return _Command(arguments, directory, inherited)

    def _bytes(self, value: WorldPath, name: str, op: str) -> bytes:
        try:
            encoded = encode_path(value)
        except UnicodeEncodeError as error:
            raise CommandInvalid(
                f"{name} holds a surrogate that stands for no byte", op=op, world=self.world_id
            ) from error
        if b"\0" in encoded:
            raise CommandInvalid(f"{name} holds a NUL byte", op=op, world=self.world_id)
        return encoded

    def _options(
        self,
        stdout: StreamMode,
        stderr: StreamMode,
        limits: OutputLimits | None,
        timeout_s: float | None,
        grace_s: float,
        stdin: bytes | None,
        pipe_stdin: bool,
        on_output: OutputCallback | None,
        op: str,
    ) -> ProcessOptions:
        if stdout is StreamMode.MERGE:
            raise CommandInvalid("only stderr can be merged, into stdout", op=op, world=self.world_id)
        if pipe_stdin and stdin is not None:
            raise CommandInvalid("stdin is either given or a pipe, not both", op=op, world=self.world_id)
        return ProcessOptions(
            stdout=stdout,
            stderr=stderr,
            limits=limits or OutputLimits(),
            timeout_s=None if timeout_s is None else checked_seconds(timeout_s, "timeout_s"),
            grace_s=checked_seconds(grace_s, "grace_s"),
            stdin=stdin,
            pipe_stdin=pipe_stdin,
            on_output=on_output,
            notes=self._notes,
        )

    def _spawn_error(
        self,
        command: _Command,
        failure: BatchFailed,
        directory_steps: tuple[Step[object], Step[object]],
        found: Step[bytes],
        op: str,
    ) -> ExecworldError:
        status, stage = failure.error.status, failure.error.detail
        if failure.step in {step.index for step in directory_steps} or (
            failure.step > found.index and stage == SpawnStage.DIRECTORY
        ):
            return WorkingDirectoryMissing(
                f"cannot enter the working directory {printable_path(command.cwd)}: {_reason(status)}",
                op=op,
                world=self.world_id,
                hint="make it, or choose another",
            )
        if failure.step == found.index:
            return self._lookup_error(command, status, op)
        name = printable_path(command.argv[0])
        if stage == SpawnStage.EXEC and status in (errno.EACCES, errno.ENOEXEC, errno.ENOENT, errno.ENOTDIR):
            hints = {
                errno.ENOEXEC: "it is neither a binary of this machine nor a script that begins with #!",
                errno.ENOENT: "the interpreter or loader that it names does not exist in this world",
            }
            return CommandNotExecutable(
                f"cannot execute {name}: {_reason(status)}",
                op=op,
                world=self.world_id,
                hint=hints.get(status, "check its mode, and the mount options of its file system"),
            )
        if stage == SpawnStage.UNKNOWN:
            return OutcomeUnknown(
                f"it is not known whether {name} ran: what supervises it was ended before it could tell",
                op=op,
                world=self.world_id,
                hint="a program can end what supervises it; nothing of it is left",
            )
        hint = ""
        if status == errno.E2BIG:
            hint = "arguments and environment are too long for the kernel; pass the data by stdin or a file"
        return SpawnFailed(
            f"cannot start {name}: {_reason(status)}",
            op=op,
            world=self.world_id,
            hint=hint,
            retryable=status in (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE),
        )

    def _lookup_error(self, command: _Command, status: int, op: str) -> ExecworldError:
        name = printable_path(command.argv[0])
        if status == errno.EACCES:
            return CommandNotExecutable(
                f"{name} is not executable", op=op, world=self.world_id, hint="check its mode and type"
            )
        if b"/" in command.argv[0]:
            return CommandNotFound(f"no such program: {name}", op=op, world=self.world_id)
        return CommandNotFound(
            f"{name} was not found in PATH of the world",
            op=op,
            world=self.world_id,
            hint=f"PATH is {printable_path(b':'.join(command.search))}",
        )

    def _raise_unless_ok(self, result: CommandResult, argv: Sequence[Argument], op: str) -> None:
        if result.ok:
            return
        name = printable_path(argv[0])
        if result.status is CommandStatus.TIMED_OUT:
            raise CommandTimeout(
                f"{name} did not end within {result.timeout_s:g} s", result=result, op=op, world=self.world_id
            )
        how = f"signal {result.signal}" if result.signal is not None else f"status {result.exit_code}"
        raise CommandFailed(f"{name} ended with {how}", result=result, op=op, world=self.world_id)


def _reason(status: int) -> str:
    if status >= 4096:
        return "Not a directory"
    return os.strerror(status)
