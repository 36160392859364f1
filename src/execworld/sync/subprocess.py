"""The subprocess seam, blocking."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from anyio import to_thread

from execworld.seams import (
    DEFAULT_GRACE_S,
    Argument,
    CommandResult,
    EnvironmentOverrides,
    OutputCallback,
    OutputLimits,
    OutputStream,
    StreamMode,
    Subprocess,
    WorldPath,
)
from execworld.sync.bridge import Bridge
from execworld.sync.process import SyncProcess
from execworld.sync.terminal import SyncTerminal

SyncOutputCallback: TypeAlias = "Callable[[OutputStream, bytes], None]"
"""Called with each chunk, in a thread that is neither the caller's nor the event loop's; it may block."""


def in_thread(callback: SyncOutputCallback | None) -> OutputCallback | None:
    if callback is None:
        return None

    async def deliver(stream: OutputStream, data: bytes) -> None:
        await to_thread.run_sync(callback, stream, data)

    return deliver


class SyncSubprocess:
    """Runs programs in one view of one world. Each method promises what the one of `Subprocess` does."""

    def __init__(self, bridge: Bridge, subprocess: Subprocess) -> None:
        self._bridge = bridge
        self._subprocess = subprocess

    @property
    def world_id(self) -> str:
        return self._subprocess.world_id

    @property
    def view_id(self) -> str:
        return self._subprocess.view_id

    def resolve_executable(
        self, name: str, *, env: EnvironmentOverrides | None = None, cwd: WorldPath | None = None
    ) -> str:
        return self._bridge.call(lambda: self._subprocess.resolve_executable(name, env=env, cwd=cwd))

    def run(
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
        on_output: SyncOutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult:
        return self._bridge.call(
            lambda: self._subprocess.run(
                argv,
                cwd=cwd,
                env=env,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                limits=limits,
                timeout_s=timeout_s,
                grace_s=grace_s,
                on_output=in_thread(on_output),
                check=check,
            )
        )

    @contextmanager
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
        on_output: SyncOutputCallback | None = None,
    ) -> Generator[SyncProcess]:
        started = self._subprocess.start(
            argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            pipe_stdin=pipe_stdin,
            stdout=stdout,
            stderr=stderr,
            limits=limits,
            timeout_s=timeout_s,
            grace_s=grace_s,
            on_output=in_thread(on_output),
        )
        with self._bridge.enter(started) as process:
            yield SyncProcess(self._bridge, process)

    @contextmanager
    def open_terminal(
        self,
        argv: Sequence[Argument],
        *,
        rows: int = 24,
        columns: int = 80,
        cwd: WorldPath | None = None,
        env: EnvironmentOverrides | None = None,
        grace_s: float = DEFAULT_GRACE_S,
    ) -> Generator[SyncTerminal]:
        opened = self._subprocess.open_terminal(
            argv, rows=rows, columns=columns, cwd=cwd, env=env, grace_s=grace_s
        )
        with self._bridge.enter(opened) as terminal:
            yield SyncTerminal(self._bridge, terminal)
