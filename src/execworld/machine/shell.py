"""`Shell` over `MachineSubprocess`."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar

from execworld.machine.environment import SCREENLESS, SHELL_STARTUP_NAMES
from execworld.machine.subprocess import MachineSubprocess
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

BegunT = TypeVar("BegunT")


class MachineShell(Shell):
    """Runs each command string in a fresh shell of the world."""

    def __init__(
        self, subprocess: MachineSubprocess, fs: Callable[[], FileSystem], *, path: str | None, cwd: str
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

        async def run_with(subprocess: Subprocess) -> CommandResult:
            return await subprocess.run(
                argv,
                cwd=cwd,
                env=self._environment(env),
                stdin=stdin,
                stderr=StreamMode.MERGE if merge_stderr else StreamMode.COLLECT,
                limits=limits,
                timeout_s=timeout_s,
                grace_s=grace_s,
                on_output=on_output,
                check=check,
            )

        return await self._begin(run_with, falls_back=cwd is None)

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
        argv = self._argv(command, "shell.start")

        def start_with(subprocess: Subprocess) -> AbstractAsyncContextManager[Process]:
            return subprocess.start(
                argv,
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

        first = start_with(self._subprocess)  # a malformed call fails now, not when the context is entered
        return self._started(first, start_with, falls_back=cwd is None)

    @asynccontextmanager
    async def _started(
        self,
        first: AbstractAsyncContextManager[Process],
        start_with: Callable[[Subprocess], AbstractAsyncContextManager[Process]],
        *,
        falls_back: bool,
    ) -> AsyncGenerator[Process]:
        async with AsyncExitStack() as stack:

            async def enter(subprocess: Subprocess) -> Process:
                started = first if subprocess is self._subprocess else start_with(subprocess)
                return await stack.enter_async_context(started)

            yield await self._begin(enter, falls_back=falls_back)

    async def _begin(self, begin: Callable[[Subprocess], Awaitable[BegunT]], *, falls_back: bool) -> BegunT:
        """Begin a command, in the nearest directory that is left when that of the world is gone."""
        try:
            return await begin(self._subprocess)
        except WorkingDirectoryMissing:
            if not falls_back:
                raise
        remaining = await self._nearest_directory()
        gone, used = printable_path(self._cwd), printable_path(remaining)
        note = f"the working directory {gone} is gone; {used} was used instead"
        return await begin(self._subprocess.moved(remaining, note))

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
