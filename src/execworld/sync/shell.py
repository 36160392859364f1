"""The shell seam, blocking."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from execworld.seams import (
    DEFAULT_GRACE_S,
    CommandResult,
    EnvironmentOverrides,
    OutputLimits,
    Shell,
    WorldPath,
)
from execworld.sync.bridge import Bridge
from execworld.sync.process import SyncProcess
from execworld.sync.subprocess import SyncOutputCallback, in_thread


class SyncShell:
    """Runs command strings. Each method promises what the one of `Shell` does."""

    def __init__(self, bridge: Bridge, shell: Shell) -> None:
        self._bridge = bridge
        self._shell = shell

    @property
    def world_id(self) -> str:
        return self._shell.world_id

    @property
    def view_id(self) -> str:
        return self._shell.view_id

    @property
    def path(self) -> str | None:
        return self._shell.path

    def run(
        self,
        command: str,
        *,
        cwd: WorldPath | None = None,
        env: EnvironmentOverrides | None = None,
        stdin: bytes | None = None,
        merge_stderr: bool = False,
        limits: OutputLimits | None = None,
        timeout_s: float | None = None,
        grace_s: float = DEFAULT_GRACE_S,
        on_output: SyncOutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult:
        return self._bridge.call(
            lambda: self._shell.run(
                command,
                cwd=cwd,
                env=env,
                stdin=stdin,
                merge_stderr=merge_stderr,
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
        command: str,
        *,
        cwd: WorldPath | None = None,
        env: EnvironmentOverrides | None = None,
        stdin: bytes | None = None,
        pipe_stdin: bool = False,
        merge_stderr: bool = False,
        limits: OutputLimits | None = None,
        timeout_s: float | None = None,
        grace_s: float = DEFAULT_GRACE_S,
        on_output: SyncOutputCallback | None = None,
    ) -> Generator[SyncProcess]:
        started = self._shell.start(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            pipe_stdin=pipe_stdin,
            merge_stderr=merge_stderr,
            limits=limits,
            timeout_s=timeout_s,
            grace_s=grace_s,
            on_output=in_thread(on_output),
        )
        with self._bridge.enter(started) as process:
            yield SyncProcess(self._bridge, process)
