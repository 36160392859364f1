"""A container that runs already, and that is left as it was found: never stopped, paused or removed.

It is joined by one program more in it, which becomes the warden. There are several ways to bring that in, and whether
one works is decided by the greeting of the warden alone, never by what an image, an engine or a program says.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final

import anyio

from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.operations import RemoveDirectory, Unlink
from execworld.machine.warden import LinkSettings, WardenMachine, locate_warden, open_warden_machine
from execworld.providers.docker.config import DockerConfig
from execworld.providers.docker.engine import Engine, archive_of
from execworld.providers.docker.executing import Execution, Life, deliver
from execworld.providers.docker.failures import EngineRefused, as_incomplete
from execworld.providers.docker.hijack import transport_over
from execworld.providers.docker.injecting import PROGRAM, read_warden
from execworld.providers.docker.ways import (
    PREFIX,
    is_file_of,
    python_command,
    shell_command,
    writable_mounts,
)
from execworld.seams.errors import CleanupIncomplete, ConfigurationError, WorldError, WorldUnavailable

_WAY_TIMEOUT_S: Final = 10.0
_OPTIONS: Final = frozenset(
    {"container", "user", "env", "host", "context", "from_environment", "engine_timeout_s", "warden"}
)


def refuse_options_of_made(config: DockerConfig) -> None:
    """Refuse options that shape a new container: they would do nothing.

    Raises:
        ConfigurationError
    """
    plain = DockerConfig(container=config.container)
    names = [field.name for field in dataclasses.fields(config) if field.name not in _OPTIONS]
    given = [f"`{name}`" for name in names if getattr(config, name) != getattr(plain, name)]
    if given:
        raise ConfigurationError(
            f"world `docker`: a container that runs already cannot be given {', '.join(given)}",
            hint="leave it out; or make a container, by docker://IMAGE",
        )


@asynccontextmanager
async def join_container(
    engine: Engine, config: DockerConfig, environment: Mapping[str, str], settings: LinkSettings
) -> AsyncGenerator[tuple[Life, WardenMachine]]:
    """The container that *config* names, and a machine in it.

    At the end nothing is left of either but the container, also when this process is killed: the engine then closes
    the input of the warden, which ends all that it has started.

    Args:
        environment: Beside that of the container.

    Raises:
        EngineRefused, EngineUnreachable: the engine did not let it be joined.
        WorldUnavailable: it is not there, does not run, or no way in leads anywhere.
        CleanupIncomplete: something could not be proven gone; only a note on an error that is under way.
    """
    life = await _find_life(engine, config.container)
    joining = _Joining(engine, life, config, environment, settings)
    try:
        async with AsyncExitStack() as stack:
            machine = await joining.enter(stack)
            await _find_life(engine, life.container, life)
            yield life, machine
    except BaseException as error:
        if joining.leftovers and (within := as_incomplete(error)) is not None:
            raise _incomplete(config.container, (*joining.leftovers, *within.leftovers)) from error
        for leftover in joining.leftovers:
            error.add_note(f"[CLEANUP_INCOMPLETE] not proven gone: {leftover}")
        raise
    if joining.leftovers:
        raise _incomplete(config.container, joining.leftovers)


def _incomplete(container: str, leftovers: tuple[str, ...]) -> CleanupIncomplete:
    return CleanupIncomplete(
        f"not proven gone after leaving the container {container}: {', '.join(leftovers)}",
        leftovers=leftovers,
        op="world.close",
        hint="it was not ours to stop; `docker top` shows what runs in it",
    )


async def _find_life(engine: Engine, container: str, known: Life | None = None) -> Life:
    """The life of a container that can be joined, which must be the *known* one.

    Raises:
        WorldUnavailable: there is none.
    """
    found = await engine.find(container)
    if found is None:
        raise _unavailable(f"there is no container {container}", "`docker ps` lists those that run")
    state: Mapping[str, Any] = found.get("State") or {}
    name = str(found.get("Name") or container).removeprefix("/")
    if state.get("Restarting"):
        raise _unavailable(f"the container {name} is being restarted", f"`docker logs {name}` may tell why")
    if state.get("Running") is not True:
        raise _unavailable(
            f"the container {name} is not running: {state.get('Status', 'in an unknown state')}",
            f"`docker start {name}` starts it",
        )
    if state.get("Paused"):
        raise _unavailable(f"the container {name} is paused", f"`docker unpause {name}` lets it go on")
    life = Life(str(found["Id"]), str(state.get("StartedAt")), found)
    if known is not None and life.started_at != known.started_at:
        raise _unavailable(f"the container {name} was restarted while it was joined", "open the world again")
    return life


def _unavailable(message: str, hint: str = "") -> WorldUnavailable:
    return WorldUnavailable(message, op="world.open", hint=hint)


class _NoWay(Exception):
    """One way in led nowhere."""


class _Joining:
    """One attempt to get into a container, and what it leaves there."""

    def __init__(
        self,
        engine: Engine,
        life: Life,
        config: DockerConfig,
        environment: Mapping[str, str],
        settings: LinkSettings,
    ) -> None:
        self._engine = engine
        self._life = life
        self._config = config
        self._environment = environment
        self._settings = dataclasses.replace(settings, open_timeout_s=_WAY_TIMEOUT_S)
        self._name = f"{PREFIX}{secrets.token_hex(8)}"
        self._executions: list[Execution] = []
        self._files: list[str] = []

    @property
    def leftovers(self) -> tuple[str, ...]:
        running = (execution.leftover for execution in self._executions)
        return (*filter(None, running), *self._files)

    async def enter(self, stack: AsyncExitStack) -> WardenMachine:
        """A machine in the container, by the first way that leads there."""
        architecture = await self._architecture()
        warden = await read_warden(architecture, self._config.warden)
        ways = (
            (f"the warden at {PROGRAM}", self._by_what_is_there),
            ("the warden through the shell", self._by_shell),
            ("the warden in an archive", self._by_archive),
            ("the warden through python3", self._by_python),
        )
        failures: list[str] = []
        for what, way in ways:
            try:
                return await way(stack, warden)
            except _NoWay as failure:
                failures.append(f"{what}: {failure}")
            # What ended the container is the reason then, and no way in is.
            await _find_life(self._engine, self._life.container, self._life)
        user = f"see that it has the user {self._config.user}; " if self._config.user else ""
        raise _unavailable(
            f"no warden could be started in the container {self._config.container}: {'; '.join(failures)}",
            f"{user}mount {self._config.warden or locate_warden(architecture)} read-only at {PROGRAM} there; or give "
            "it a tmpfs that programs may be run from, and a shell",
        )

    async def _architecture(self) -> str:
        """As the image says, which may be gone; else that of the engine's host."""
        name = self._life.inspected.get("Image")
        image = await self._engine.image(str(name)) if name else None
        found = str((image or {}).get("Architecture") or "")
        return found or str((await self._engine.info())["Architecture"])

    # The ways

    async def _by_what_is_there(self, stack: AsyncExitStack, warden: bytes) -> WardenMachine:
        try:
            archive = await self._engine.fetch(self._life.container, PROGRAM, len(warden))
        except EngineRefused as refused:
            raise _NoWay(refused.explanation) from refused
        if archive is None:
            raise _NoWay("there is no such file")
        if not is_file_of(archive, warden):
            raise _NoWay("it is another program")
        return await self._start(stack, (PROGRAM,))

    async def _by_shell(self, stack: AsyncExitStack, warden: bytes) -> WardenMachine:
        mounted = writable_mounts(self._life.inspected)
        return await self._start(stack, shell_command(len(warden), self._name, mounted), warden)

    async def _by_python(self, stack: AsyncExitStack, warden: bytes) -> WardenMachine:
        return await self._start(stack, python_command(len(warden)), warden)

    async def _by_archive(self, stack: AsyncExitStack, warden: bytes) -> WardenMachine:
        """The engine writes it, as root, and only root may put another program in its place."""
        is_read_only = self._life.inspected["HostConfig"].get("ReadonlyRootfs") is not False
        places = [] if is_read_only else ["/"]
        places += writable_mounts(self._life.inspected, volumes_alone=True)
        failures = ["its root is read-only"] if is_read_only else []
        for place in places:
            try:
                return await self._by_archive_in(place, stack, warden)
            except _NoWay as failure:
                failures.append(f"in {place}: {failure}")
        raise _NoWay(", ".join([*failures, *([] if places else ["and no volume of it may be written"])]))

    async def _by_archive_in(self, place: str, stack: AsyncExitStack, warden: bytes) -> WardenMachine:
        directory = f"{place.rstrip('/')}/{self._name}"
        program = f"{directory}/warden"
        archive = archive_of((self._name, None, 0o755, 0, 0), (f"{self._name}/warden", warden, 0o555, 0, 0))
        self._files.append(directory)
        try:
            try:
                await self._engine.put(
                    self._life.container,
                    archive,
                    what="putting the warden into the container",
                    directory=place,
                )
            except EngineRefused as refused:
                raise _NoWay(refused.explanation) from refused
            machine = await self._start(stack, (program,))
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._remove_by_program(directory)
            raise
        if await _remove(machine, program, directory) or await self._remove_as_root(program, directory):
            self._files.remove(directory)
        return machine

    async def _remove_as_root(self, program: str, directory: str) -> bool:
        """Our user may not remove what the engine has put there as root. The program itself can, as root."""
        try:
            async with AsyncExitStack() as stack:
                machine = await self._start(stack, (program,), user="0:0")
                return await _remove(machine, program, directory)
        except _NoWay:
            return False

    async def _remove_by_program(self, directory: str) -> None:
        """Remove what was no way in. The engine itself can remove nothing, so it takes a program of the container."""
        container = self._life.container
        try:
            if await self._engine.has_path(container, directory):
                execution, hijacked = await self._engine.execute(
                    container, ("rm", "-rf", directory), user="0:0", environment={}
                )
                await transport_over(hijacked, Execution(self._engine, self._life, execution)).aclose()
            if not await self._engine.has_path(container, directory):
                self._files.remove(directory)
        except WorldError:
            pass  # it stays among what is left

    async def _start(
        self, stack: AsyncExitStack, command: Sequence[str], given: bytes = b"", user: str | None = None
    ) -> WardenMachine:
        """Run *command*, which becomes the warden when it is *given* that.

        Raises:
            _NoWay: it does not, in time.
        """
        user = self._config.user if user is None else user
        try:
            execution, hijacked = await self._engine.execute(
                self._life.container, command, user=user, environment=self._environment
            )
        except EngineRefused as refused:
            raise _NoWay(refused.explanation) from refused
        ending = Execution(self._engine, self._life, execution)
        self._executions.append(ending)
        transport = transport_over(hijacked, ending)
        try:
            if given:
                await deliver(transport, given, _WAY_TIMEOUT_S)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await transport.aclose()
            raise
        try:
            machine = await stack.enter_async_context(open_warden_machine(transport, self._settings))
        except WorldUnavailable as error:
            raise _NoWay(error.message) from error
        ending.greeted = True
        return machine


async def _remove(machine: WardenMachine, program: str, directory: str) -> bool:
    batch = Batch()
    batch.add(Unlink(program.encode()))
    batch.add(RemoveDirectory(directory.encode()))
    try:
        await machine.run(batch)
    except BatchFailed:
        return False
    return True
