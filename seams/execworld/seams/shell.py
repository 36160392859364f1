"""The shell seam: run a command string."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager

from execworld.seams.paths import WorldPath
from execworld.seams.results import CommandResult, OutputLimits
from execworld.seams.subprocess import DEFAULT_GRACE_S, EnvironmentOverrides, OutputCallback, Process


class Shell(ABC):
    """Runs command strings with the world's shell: a fresh, non-login, non-interactive one for each call.

    Start-up files are not read (BASH_ENV and ENV are removed). The environment says that there is no person and no
    screen: ``TERM=dumb``, pagers are ``cat``, no colour; the caller's *env* wins. Neither the exit status nor the end
    of a command is ever derived from what it prints.
    """

    @property
    @abstractmethod
    def world_id(self) -> str: ...

    @property
    @abstractmethod
    def view_id(self) -> str: ...

    @property
    @abstractmethod
    def path(self) -> str | None:
        """The shell program in the world; None when there is none."""

    @abstractmethod
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
        """Run *command* and wait for it, with everything that `Subprocess.run` promises.

        Without *cwd* and with the world's own working directory gone, the nearest directory above it that still exists
        is used and the result's notes say so.

        Raises:
            CommandNotFound: the world has no shell.
            CommandInvalid: *command* is blank or holds a NUL.
        """

    @abstractmethod
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
        """Start *command* in the background; leaving the context ends its tree.

        A working directory that is gone is replaced, and told, as by `run`.
        """
