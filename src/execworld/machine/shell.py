"""`Shell` over any `Subprocess`."""

from __future__ import annotations

import dataclasses
import posixpath
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from execworld.machine.environment import SCREENLESS, SHELL_STARTUP_NAMES
from execworld.seams.errors import CommandInvalid, CommandNotFound, WorkingDirectoryMissing
from execworld.seams.files import FileKind
from execworld.seams.filesystem import FileSystem
from execworld.seams.paths import WorldPath, printable_path
from execworld.seams.results import CommandResult, OutputLimits
from execworld.seams.shell import Shell
from execworld.seams.subprocess import (
    DEFAULT_GRACE_S,
    EnvironmentOverrides,
    OutputCallback,
    Process,
    StreamMode,
    Subprocess,
)


class MachineShell(Shell):
    """Runs each command string in a fresh shell of the world."""

    def __init__(
        self, subprocess: Subprocess, fs: Callable[[], FileSystem], *, path: str | None, cwd: str
    ) -> None:
        self._subprocess = subprocess
        self._fs = fs
        self._path = path
        self._cwd = cwd

    @property
    def world_id(self) -> str:
        return self._subprocess.world_id

    @property
    def view_id(self) -> str:
        return self._subprocess.view_id

    @property
    def path(self) -> str | None:
        return self._path

    async def run(
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
        on_output: OutputCallback | None = None,
        check: bool = False,
    ) -> CommandResult:
        argv = self._argv(command, "shell.run")

        async def run_in(directory: WorldPath | None) -> CommandResult:
            return await self._subprocess.run(
                argv,
                cwd=directory,
                env=self._environment(env),
                stdin=stdin,
                stderr=StreamMode.MERGE if merge_stderr else StreamMode.COLLECT,
                limits=limits,
                timeout_s=timeout_s,
                grace_s=grace_s,
                on_output=on_output,
                check=check,
            )

        try:
            return await run_in(cwd)
        except WorkingDirectoryMissing:
            if cwd is not None:
                raise
        remaining = await self._nearest_directory()
        result = await run_in(remaining)
        gone, used = printable_path(self._cwd), printable_path(remaining)
        note = f"the working directory {gone} is gone; {used} was used instead"
        return dataclasses.replace(result, notes=(*result.notes, note))

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
        on_output: OutputCallback | None = None,
    ) -> AbstractAsyncContextManager[Process]:
        return self._subprocess.start(
            self._argv(command, "shell.start"),
            cwd=cwd,
            env=self._environment(env),
            stdin=stdin,
            pipe_stdin=pipe_stdin,
            stderr=StreamMode.MERGE if merge_stderr else StreamMode.COLLECT,
            limits=limits,
            timeout_s=timeout_s,
            grace_s=grace_s,
            on_output=on_output,
        )

    def _argv(self, command: str, op: str) -> list[str]:
        if self._path is None:
            raise CommandNotFound(
                "this world has no shell",
                op=op,
                world=self.world_id,
                hint="run a program with its arguments instead",
            )
        if not command.strip():
            raise CommandInvalid("the command is blank", op=op, world=self.world_id)
        return [self._path, "-c", command]

    def _environment(self, env: EnvironmentOverrides | None) -> EnvironmentOverrides:
        removed: dict[str, str | None] = dict.fromkeys(SHELL_STARTUP_NAMES)
        return {**removed, **SCREENLESS, **(env or {})}

    async def _nearest_directory(self) -> str:
        path: str = self._cwd
        while path != "/":
            path = posixpath.dirname(path)
            info = await self._fs().stat(path)
            if info is not None and info.kind is FileKind.DIRECTORY:
                return path
        return "/"
