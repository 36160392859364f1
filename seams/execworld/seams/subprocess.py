"""The subprocess seam: ordinary processes and the terminal primitive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from types import TracebackType
from typing import Final, TypeAlias

from anyio.abc import ByteReceiveStream, ByteSendStream

from execworld.seams.paths import WorldPath
from execworld.seams.results import CommandResult, OutputLimits, OutputSlice, TreeReport
from execworld.seams.terminal import Terminal

DEFAULT_GRACE_S: Final = 3.0
"""Time between TERM and KILL unless told otherwise."""

Argument: TypeAlias = "str | bytes"
EnvironmentOverrides: TypeAlias = "Mapping[str, str | None]"
"""Values to set; None removes an inherited name."""


class StreamMode(StrEnum):
    """What happens to a stream of a process.

    ``collect`` keeps a bounded window of it; ``pipe`` hands the raw bytes to the caller, who must read them;
    ``null`` discards; ``merge`` (stderr only) joins it to stdout in exactly the order of the writes.
    """

    COLLECT = "collect"
    PIPE = "pipe"
    NULL = "null"
    MERGE = "merge"


class OutputStream(StrEnum):
    STDOUT = "stdout"
    STDERR = "stderr"


OutputCallback: TypeAlias = Callable[[OutputStream, bytes], Awaitable[None]]
"""Called with each chunk of a collected stream as it arrives, in order; the stream waits until it returns."""


class Process(ABC):
    """One running command and its whole tree.

    An async context manager: leaving it ends the tree and joins it. What a leader left behind in the background belongs
    to the tree too.
    """

    @property
    @abstractmethod
    def pid(self) -> int:
        """Process id in the numbering of its view; for display only."""

    @property
    @abstractmethod
    def world_id(self) -> str: ...

    @property
    @abstractmethod
    def view_id(self) -> str: ...

    @property
    @abstractmethod
    def stdin(self) -> ByteSendStream | None:
        """Set when the process was started with ``pipe_stdin``. Closing it is the end of input for the process.

        Sending raises `anyio.BrokenResourceError` as soon as nothing is left that could read: with the next send, as a
        local pipe does, never one later. What an earlier send put into the pipe and nobody has read is lost, as there.
        """

    @property
    @abstractmethod
    def stdout(self) -> ByteReceiveStream | None:
        """Set in mode ``pipe``. Ends (EndOfStream) when every holder of the stream closed it."""

    @property
    @abstractmethod
    def stderr(self) -> ByteReceiveStream | None: ...

    @property
    @abstractmethod
    def running(self) -> bool:
        """The leader has not been seen to end yet."""

    @abstractmethod
    def read_output(self, stream: OutputStream, offset: int = 0) -> OutputSlice:
        """What is kept of a collected stream from *offset* on. Consumes nothing, waits for nothing, valid for ever.

        Raises:
            ValueError: the stream is not collected, or the offset is negative or beyond the end.
        """

    @abstractmethod
    async def wait(self) -> CommandResult:
        """Wait for the leader and for all that it wrote to collected streams.

        A background job that still holds a stream does not hold this call. May be called any number of times.
        """

    @abstractmethod
    async def wait_tree(self) -> None:
        """Wait until no process of the tree is left."""

    @abstractmethod
    async def send_signal(self, number: int) -> None:
        """Send a signal to the leader alone; nothing happens once it ended. Never sent by number of a reused pid."""

    @abstractmethod
    async def terminate(self, *, grace_s: float | None = None) -> TreeReport:
        """End the whole tree: TERM to all, after *grace_s* KILL to all that is left, until none is.

        Idempotent: concurrent and later calls join the first one.
        """

    @abstractmethod
    async def aclose(self) -> None:
        """Terminate if anything is left, join, free everything. Idempotent."""

    async def __aenter__(self) -> Process:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Subprocess(ABC):
    """Runs programs in one view of one world. No shell, no parsing: arguments arrive byte for byte.

    Environment: an allow-list of the base environment (see the environment reference) without names that look like
    credentials, then *env* on top. It never travels on a command line. Standard input is empty unless asked.
    Errors that any call may raise: `WorldClosed`, `WorldLost`, `OutcomeUnknown`, `SandboxUnavailable`, `PolicyRefused`.
    """

    @property
    @abstractmethod
    def world_id(self) -> str: ...

    @property
    @abstractmethod
    def view_id(self) -> str: ...

    @abstractmethod
    async def resolve_executable(
        self, name: str, *, env: EnvironmentOverrides | None = None, cwd: WorldPath | None = None
    ) -> str:
        """Path in the world of the program that *name* means there.

        An absolute path must be an executable regular file. A bare name is searched in PATH of the environment that a
        command would get; empty segments of PATH are skipped. A relative path with a slash needs *cwd*.

        Raises:
            CommandNotFound, CommandNotExecutable
            CommandInvalid: the name is empty, or relative without a *cwd*.
        """

    @abstractmethod
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
        """Run a command and wait for it.

        A time limit, measured from the start of the process, ends the whole tree before the call returns, at the latest
        *grace_s* plus a moment after it fired. Cancelling the call does the same and then lets the cancellation pass.
        Processes left in the background by a command that ended by itself go on (``background`` in the result) until
        the world closes.

        Args:
            argv: Program and arguments; the program is looked up as by `resolve_executable`.
            cwd: Working directory; the world's by default.
            env: Environment overrides.
            stdin: Input, written and then closed; a program that does not read it is no error. None: no input.
            stdout: ``collect`` or ``null``.
            stderr: ``collect``, ``null`` or ``merge``.
            limits: How much is kept of each stream.
            timeout_s: Wall seconds; None waits for ever.
            grace_s: Time between TERM and KILL.
            on_output: Sees all output live, with back-pressure. All that the command itself wrote was handed to it when
                the call returns. What it raises ends the tree and passes to the caller.
            check: Turn a time limit into `CommandTimeout`, any other end than exit 0 into `CommandFailed`.

        Raises:
            CommandNotFound, CommandNotExecutable, WorkingDirectoryMissing, SpawnFailed: nothing ran.
            CommandInvalid: empty argv, NUL, malformed name, non-positive limit; nothing ran.
            CommandTimeout, CommandFailed: only with *check*.
        """

    @abstractmethod
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
        """Start a command; leaving the context ends its tree. Same arguments and errors as `run`."""

    @abstractmethod
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
        """Start a command on a terminal of its own, of the given size before the program sees it.

        TERM is ``xterm-256color`` unless *env* says otherwise. Leaving the context ends everything in the session.

        Raises:
            CommandInvalid: additionally for a size that is not between 1 and 65535.
        """
