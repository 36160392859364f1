"""One program in a container that belongs to somebody else: it becomes the warden, or it has to go."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from execworld.machine.warden.frames import MAX_NOISE_BYTES, WARDEN_PREAMBLE
from execworld.machine.warden.transport import FarSideGone, LinkEnd, TransportBroken
from execworld.providers.docker.engine import Engine
from execworld.providers.docker.failures import EngineRefused, EngineUnreachable
from execworld.providers.docker.hijack import HijackedChannel, HijackedSocket
from execworld.providers.docker.lost import Loss, explain_loss
from execworld.seams.errors import WorldError
from execworld.seams.results import KillMethod, TreeReport

_END_TIMEOUT_S: Final = 12.0
"""The warden sweeps for ten seconds at most."""
_PAUSED_S: Final = 0.5
_PAUSE_S: Final = 0.02
_SHOWN_CHARACTERS: Final = 400
_READ_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Life:
    """One life of a container, from its start to its end. What is started again is another one.

    Attributes:
        container: Its id, the whole of it.
        started_at: By the engine's clock, as it writes it.
        inspected: What the engine says of it.
    """

    container: str
    started_at: str
    inspected: Mapping[str, Any]

    def goes_on(self, inspected: Mapping[str, Any] | None) -> bool:
        """Whether a later look at the container has found the same life, and running."""
        state: Mapping[str, Any] = (inspected or {}).get("State") or {}
        return state.get("Running") is True and state.get("StartedAt") == self.started_at


class Execution:
    """An `Ending`. The engine can end no such program; one whose input ends does so by itself.

    Attributes:
        greeted: It is the warden.
        leftover: What may still run.
    """

    def __init__(self, engine: Engine, life: Life, execution: str) -> None:
        self.greeted = False
        self.leftover = ""
        self._engine = engine
        self._life = life
        self._execution = execution
        self._loss: Loss | None = None

    async def explain(self, said: str) -> FarSideGone | None:
        if not self.greeted:
            return None  # it was no warden, which is for the next way in to bear
        self._loss = await self._find_loss()
        return FarSideGone(f"{self._loss.reason}{_quoted(said)}", self._loss.hint)

    async def excuse_silence(self) -> bool:
        try:
            found = await self._engine.find(self._life.container)
        except WorldError:
            return False
        return self._life.goes_on(found) and found is not None and found["State"].get("Paused") is True

    async def end(self, said: str) -> LinkEnd:
        try:
            state, gone = await self._wait()
        except (EngineRefused, EngineUnreachable) as error:
            state, gone = None, False
            self.leftover = f"what was started in the container ({error.message})"
        code = None if state is None or state.get("Running") else state.get("ExitCode")
        if self._loss is not None:
            reason = self._loss.reason
        else:
            reason = "it has ended" if code is None else f"it has ended with status {code}"
        # All that is in a container ends with its first process. Nobody but the warden can tell in one that runs on.
        tree = TreeReport(True, KillMethod.PID_NAMESPACE) if gone else None
        return LinkEnd(f"{reason}{_quoted(said)}", code, tree)

    async def _find_loss(self) -> Loss:
        life = self._life
        loss = await explain_loss(self._engine, life.container, life.started_at)
        try:
            state = await self._engine.executed(self._execution)
            runs_on = life.goes_on(await self._engine.find(life.container))
        except WorldError:
            return loss
        if not runs_on or state is None or state.get("Running"):
            return loss
        return Loss(
            f"the warden in the container was ended, with status {state.get('ExitCode')}",
            "a program in the container has killed it, or the kernel, when memory ran out: open another world",
            state.get("ExitCode"),
        )

    async def _wait(self) -> tuple[Mapping[str, Any] | None, bool]:
        """What became of the program; and whether the container has ended with it."""
        begun_at = anyio.current_time()
        while True:
            state = await self._engine.executed(self._execution)
            if state is not None and not state.get("Running"):
                return state, False
            found = await self._engine.find(self._life.container)
            if not self._life.goes_on(found):
                return state, True
            waited_s = anyio.current_time() - begun_at
            if state is None:
                self.leftover = "what was started in the container (the engine has forgotten it)"
                return None, False
            if found is not None and found["State"].get("Paused") and waited_s > _PAUSED_S:
                self.leftover = (
                    "what was started in the container, which is paused: it ends when that goes on"
                )
                return state, False
            if waited_s > _END_TIMEOUT_S:
                self.leftover = "what was started in the container, which does not end"
                return state, False
            await anyio.sleep(min(0.5, _PAUSE_S + waited_s / 10))


async def deliver(
    transport: HijackedSocket | HijackedChannel, content: bytes, timeout_s: float = math.inf
) -> None:
    """Send *content* to a loader, and wait until the warden speaks, or it is clear that it will not.

    Nothing may be sent behind it before that: loaders read ahead.
    """
    received = bytearray()
    with anyio.move_on_after(timeout_s):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_send, transport, content)
            while WARDEN_PREAMBLE not in received and len(received) <= MAX_NOISE_BYTES:
                try:
                    data = await transport.receive(_READ_BYTES)
                except TransportBroken:
                    break
                if not data:
                    break
                received += data
            tasks.cancel_scope.cancel()
    transport.give_back(bytes(received))


async def _send(transport: HijackedSocket | HijackedChannel, content: bytes) -> None:
    try:
        await transport.send(content)
    except TransportBroken:
        pass  # the end of what it says tells why


def _quoted(said: str) -> str:
    return f"; it said {said[-_SHOWN_CHARACTERS:]!r}" if said else ""
