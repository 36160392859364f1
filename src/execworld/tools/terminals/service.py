"""Who owns which terminal."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup

from execworld.kernel import Key
from execworld.seams import (
    CleanupIncomplete,
    CommandNotFound,
    DuplicateName,
    ExecworldError,
    ForeignSession,
    NoSession,
    SessionClosed,
    SpawnFailed,
    World,
)
from execworld.tools.terminals.readiness import Timing, WaitReason
from execworld.tools.terminals.shells import PromptedShell
from execworld.tools.terminals.values import SendResult, TerminalInfo

if TYPE_CHECKING:
    from execworld.tools.terminals.session import TerminalSession

_SHELL_START_S: Final = 30.0
_PROGRAM_START_S: Final = 2.0


class _Owned:
    """A terminal, or the place of one that is being opened, of one owner."""

    def __init__(self, owner: object, name: str | None) -> None:
        self.owner = owner
        self.name = name
        self.session: TerminalSession | None = None
        self.published = False
        self.gone = anyio.Event()


class TerminalService:
    """Terminals of all owners; an owner is an object, and another object is another owner."""

    def __init__(self, tasks: TaskGroup, timing: Timing) -> None:
        self._tasks = tasks
        self._timing = timing
        self._count = 0
        self._owned: list[_Owned] = []
        self._closing = False

    async def open(
        self,
        owner: object,
        world: World,
        *,
        argv: Sequence[str] | None = None,
        shell: str | None = None,
        silent: bool = False,
        timing: Timing | None = None,
        name: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
        rows: int = 40,
        columns: int = 160,
        grace_s: float = 1.0,
    ) -> tuple[TerminalSession, SendResult]:
        """Start a program on a terminal; with what it wrote at its start.

        Nobody sees it before it can be used. If this call is cancelled or fails, nothing of it is left.

        Args:
            owner: Who may use it.
            world: Where it runs.
            argv: The program and its arguments; without it a shell.
            shell: Path of another shell than the world's, any that understands POSIX.
            silent: The shell shows no prompt and no echo.
            timing: How long to wait for what, if not as usual.
            name: What the owner calls it, unlike any other of his.
            cwd: Working directory.
            env: Environment, on top of what every command gets.
            rows: Height of the screen.
            columns: Width of the screen.
            grace_s: Time between TERM and KILL when it is closed.

        Raises:
            DuplicateName: the owner has a terminal of that name, or opens one.
            CommandNotFound: the program is not there, or there is no shell.
            SpawnFailed: the shell did not come to its prompt.
            ValueError: the name is empty.
        """
        from execworld.tools.terminals.session import TerminalSession, TerminalSpec  # brings pyte

        owned = self._reserve(owner, name)
        try:
            prompted = None if argv else PromptedShell(shell or _shell_of(world), silent=silent)
            spec = TerminalSpec(
                argv=tuple(argv or (prompted.argv if prompted is not None else ())),
                shell=prompted,
                cwd=cwd,
                env=env,
                rows=rows,
                columns=columns,
                grace_s=grace_s,
            )
            self._count += 1
            session = owned.session = TerminalSession(
                f"pty-{self._count}", name, spec, timing or self._timing
            )
            self._tasks.start_soon(session.host, world.subprocess)
            await session.opened()
            started = await session.start_up(_PROGRAM_START_S if prompted is None else _SHELL_START_S)
            if prompted is not None and started.reason is not WaitReason.PROMPT:
                raise SpawnFailed(
                    f"the shell {spec.argv[0]} did not come to its prompt: {started.reason}",
                    op="terminal.open",
                    world=world.world_id,
                )
            if self._closing or owned.gone.is_set():
                raise SessionClosed("the terminal was closed while it was opened", op="terminal.open")
        except BaseException:
            await self._withdraw(owned)
            raise
        owned.published = True
        return session, started

    def get(self, owner: object, ident: str) -> TerminalSession:
        """The terminal of that id.

        Raises:
            NoSession: there is none.
            ForeignSession: it belongs to somebody else.
        """
        return self._find(owner, ident)[1]

    def list(self, owner: object) -> tuple[TerminalInfo, ...]:
        """The owner's terminals, in the order in which they were opened."""
        return tuple(
            owned.session.info
            for owned in self._owned
            if owned.owner is owner and owned.published and owned.session is not None
        )

    async def close(self, owner: object, ident: str) -> bool:
        """Close a terminal; False when it was being closed already.

        Raises:
            NoSession, ForeignSession: as `get`.
            CleanupIncomplete: something could not be proven gone; it stays in the list, for another try.
        """
        owned, session = self._find(owner, ident)
        closed = await session.close()
        self._forget(owned)
        return closed

    def has_activity(self, owner: object) -> bool:
        """Whether the owner has a terminal, or opens or closes one."""
        return any(owned.owner is owner for owned in self._owned)

    async def close_all(self, owner: object | None = None) -> None:
        """Close the terminals of one owner, or all of them, and wait for those that are being opened.

        Raises:
            CleanupIncomplete: after all was tried, something could not be proven gone.
        """
        errors: list[Exception] = []

        async def close(owned: _Owned) -> None:
            try:
                if owned.session is not None:
                    await owned.session.close()
            except ExecworldError as error:
                errors.append(error)
            if owned.published:
                self._forget(owned)

        mine = [owned for owned in self._owned if owner is None or owned.owner is owner]
        async with anyio.create_task_group() as tasks:
            for owned in mine:
                tasks.start_soon(close, owned)
        for owned in mine:
            await owned.gone.wait()
        if errors:
            survivors = tuple(pid for error in errors for pid in getattr(error, "survivors", ()))
            listing = "; ".join(map(str, errors))
            raise CleanupIncomplete(f"terminals could not be closed: {listing}", survivors=survivors)

    async def shut(self) -> None:
        """Open nothing more, and close everything."""
        self._closing = True
        await self.close_all()

    def _reserve(self, owner: object, name: str | None) -> _Owned:
        if self._closing:
            raise SessionClosed("terminals are being closed", op="terminal.open")
        if name is not None:
            if not name.strip():
                raise ValueError("the name of a terminal must not be empty")
            if any(owned.owner is owner and owned.name == name for owned in self._owned):
                raise DuplicateName(f"there is a terminal named {name!r} already", op="terminal.open")
        owned = _Owned(owner, name)
        self._owned.append(owned)
        return owned

    async def _withdraw(self, owned: _Owned) -> None:
        with anyio.CancelScope(shield=True):
            try:
                if owned.session is not None:
                    await owned.session.close()
            except ExecworldError:
                pass  # the first error is the one that the caller gets
            finally:
                self._forget(owned)

    def _forget(self, owned: _Owned) -> None:
        if owned in self._owned:
            self._owned.remove(owned)
        owned.gone.set()

    def _find(self, owner: object, ident: str) -> tuple[_Owned, TerminalSession]:
        for owned in self._owned:
            if owned.published and owned.session is not None and owned.session.id == ident:
                if owned.owner is not owner:
                    raise ForeignSession(f"terminal {ident} belongs to another session", op="terminal")
                return owned, owned.session
        raise NoSession(
            f"there is no terminal {ident!r}", op="terminal", hint="terminal_list names those there are"
        )


TERMINALS: Final = Key[TerminalService]("terminals")


@asynccontextmanager
async def open_terminals(timing: Timing | None = None) -> AsyncGenerator[TerminalService]:
    """A service whose terminals all end with it."""
    async with anyio.create_task_group() as tasks:
        service = TerminalService(tasks, timing or Timing())
        try:
            yield service
        finally:
            with anyio.CancelScope(shield=True):
                await service.shut()


def _shell_of(world: World) -> str:
    path = world.facts.shell
    if path is None:
        raise CommandNotFound(
            "this world has no shell",
            op="terminal.open",
            world=world.world_id,
            hint="open a program with its arguments instead",
        )
    return path
