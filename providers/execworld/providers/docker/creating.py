"""A container that is made for a world: the warden is its first process, and it goes when the warden does."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio

from execworld.machine.warden.transport import FarSideGone, LinkEnd, Transport
from execworld.providers.docker.config import DockerConfig
from execworld.providers.docker.engine import Engine
from execworld.providers.docker.failures import EngineRefused, EngineUnreachable, as_incomplete
from execworld.providers.docker.hijack import Ending, transport_over
from execworld.providers.docker.injecting import carried, inject, read_warden
from execworld.providers.docker.lost import Loss, explain_loss
from execworld.providers.docker.shaping import Shape, configuration
from execworld.seams.errors import CleanupIncomplete, WorldError
from execworld.seams.results import KillMethod, TreeReport

_END_TIMEOUT_S: Final = 12.0
"""The warden sweeps for ten seconds at most."""
_REMOVAL_TIMEOUT_S: Final = 30.0
"""An engine that has missed the end of what it killed waits for it for ten seconds, twice: seen after a restart."""
_LOOK_S: Final = 3.0


class MadeContainer(Ending):
    """Made by `make_container`.

    Attributes:
        container: Its id, the whole of it.
        started_at: By the engine's clock, as it writes it.
        inspected: What the engine says of it as it was started.
    """

    def __init__(self, engine: Engine, name: str, *, keep: bool) -> None:
        self.name = name
        self.container = ""
        self.started_at = ""
        self.inspected: Mapping[str, Any] = {}
        self._engine = engine
        self._keep = keep
        self._loss: Loss | None = None
        self._gone = False
        self.leftover = ""

    def started(self, inspected: Mapping[str, Any]) -> None:
        self.inspected = inspected
        self.started_at = str(inspected["State"]["StartedAt"])

    async def explain(self, said: str) -> FarSideGone:
        self._loss = await explain_loss(self._engine, self.container, self.started_at)
        return FarSideGone(f"{self._loss.reason}{_quoted(said)}", self._loss.hint)

    async def excuse_silence(self) -> bool:
        try:
            found = await self._engine.find(self.container)
        except WorldError:
            return False
        state: Mapping[str, Any] = (found or {}).get("State") or {}
        return bool(state.get("Paused")) and state.get("StartedAt") == self.started_at

    async def end(self, said: str) -> LinkEnd:
        await self.remove(ends_by_itself=self._loss is None)
        reason = "the container has ended" if self._loss is None else self._loss.reason
        return LinkEnd(
            f"{reason}{_quoted(said)}",
            None if self._loss is None else self._loss.exit_code,
            TreeReport(self._gone, KillMethod.PID_NAMESPACE if self._gone else KillMethod.NOT_NEEDED),
        )

    async def remove(self, *, ends_by_itself: bool = False) -> None:
        """Bring it to its end, whatever state it is in; afterwards nothing of it runs, or `leftover` says what may.

        Args:
            ends_by_itself: Its stream was closed, so that the warden ends and the engine removes it.
        """
        if self._gone:
            return
        try:
            if ends_by_itself and await self._wait():
                self._gone = True
            elif self._keep and self.started_at:
                await self._stop()
            else:
                await self._engine.remove(self.container or self.name)
                self._gone = not self.container or await self._engine.wait_removed(
                    self.container, _REMOVAL_TIMEOUT_S
                )
            self.leftover = "" if self._gone else f"container {self.name}"
        except (EngineRefused, EngineUnreachable) as error:
            self.leftover = f"container {self.name} ({error.message})"

    async def _wait(self) -> bool:
        """Whether it came to its end by itself."""
        if self._keep:
            return await self._engine.wait_stopped(self.container, _END_TIMEOUT_S)
        if await self._engine.wait_removed(self.container, _LOOK_S):
            return True
        found = await self._engine.find(self.container)
        state: Mapping[str, Any] = (found or {}).get("State") or {}
        if state.get("Paused") or state.get("StartedAt") != self.started_at:
            return False
        return await self._engine.wait_removed(self.container, _END_TIMEOUT_S - _LOOK_S)

    async def _stop(self) -> None:
        await self._engine.kill(self.container)
        self._gone = await self._engine.wait_stopped(self.container, _END_TIMEOUT_S)


@asynccontextmanager
async def make_container(
    engine: Engine, config: DockerConfig, shape: Shape
) -> AsyncGenerator[tuple[MadeContainer, Transport]]:
    """A container that runs the warden and nothing else, and the stream to it.

    It is gone when the context is left, and when this process is killed: then the engine closes the standard input of
    the warden, which ends, and removes the container. Until it was started only `execworld clean` can find it.

    Raises:
        EngineRefused, EngineUnreachable, WorldUnavailable: it could not be made; nothing was left behind.
        CleanupIncomplete: it could not be proven gone; only a note on an error that is under way.
    """
    made = MadeContainer(engine, f"execworld-{secrets.token_hex(8)}", keep=config.keep)
    try:
        transport = await _make(engine, made, config, shape)
        yield made, transport
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await made.remove()
        if made.leftover:
            if (within := as_incomplete(error)) is not None:
                raise _incomplete(made, within) from error
            error.add_note(f"[CLEANUP_INCOMPLETE] not proven gone: {made.leftover}")
        raise
    with anyio.CancelScope(shield=True):
        await made.remove()
    if made.leftover:
        raise _incomplete(made, None)


def _incomplete(made: MadeContainer, within: CleanupIncomplete | None) -> CleanupIncomplete:
    """The container is left, and perhaps what was left *within* it."""
    leftovers = (made.leftover, *(within.leftovers if within is not None else ()))
    return CleanupIncomplete(
        f"not proven gone after closing the world: {', '.join(leftovers)}",
        leftovers=leftovers,
        op="world.close",
        hint=f"`docker rm -f {made.name}` removes it, and so does `execworld clean` later",
    )


async def _make(engine: Engine, made: MadeContainer, config: DockerConfig, shape: Shape) -> Transport:
    warden = await read_warden(shape.architecture, config.warden)
    document = configuration(config, shape, made.name)
    if config.read_only:
        async with carried(engine, made.name, shape.image, warden) as carrying:
            document["HostConfig"] |= carrying
            made.container = await engine.create(document, made.name, config.platform)
    else:
        made.container = await engine.create(document, made.name, config.platform)
        await inject(engine, made.container, warden)
    # Before it is started, or the first bytes could come before anybody takes them.
    hijacked = await engine.attach(made.container)
    try:
        await engine.start(made.container)
        made.started(await engine.inspect(made.container))
    except BaseException:
        hijacked.close()
        raise
    return transport_over(hijacked, made)


def _quoted(said: str) -> str:
    return f"; it said {said[-400:]!r}" if said else ""
