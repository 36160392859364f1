"""After the stream has ended: what became of the container."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio

from execworld.providers.docker.engine import Engine
from execworld.providers.docker.failures import EngineRefused, EngineUnreachable

_PATIENCE_S: Final = 3.0
"""The stream ends before the engine knows of the end, and before it has removed what is to be removed."""
_PAUSE_S: Final = 0.05
_ANOTHER: Final = "open another world"


@dataclass(frozen=True, slots=True)
class Loss:
    """What became of a container, for people.

    Attributes:
        reason: What happened.
        hint: What to do about it.
        exit_code: Of its first process, where the engine told.
    """

    reason: str
    hint: str = _ANOTHER
    exit_code: int | None = None


async def explain_loss(engine: Engine, container: str, started_at: str) -> Loss:
    """Find out what became of *container*, which was started at *started_at* and whose stream has ended, or will.

    The stream carries no reason. What the engine says of the container does, while it is there; its events do when it
    has been removed, as one that was made for a world is at its end.
    """
    give_up_at = anyio.current_time() + _PATIENCE_S
    try:
        while (found := await engine.find(container)) is not None:
            state: Mapping[str, Any] = found.get("State") or {}
            if state.get("Running") and state.get("StartedAt") != started_at:
                return Loss("the container was restarted, which ended all that ran in it")
            if anyio.current_time() > give_up_at:
                break
            # One that has ended may be about to be removed, or to be started again.
            await anyio.sleep(_PAUSE_S)
        if found is not None:
            state = found.get("State") or {}
            if state.get("Running"):
                return Loss(
                    "the engine ended the stream while the container runs on",
                    "the engine was restarted, or something on the way to it ended the connection",
                )
            if state.get("OOMKilled"):
                return _out_of_memory(state.get("ExitCode"))
        return loss_of_events(await engine.events(container, started_at))
    except EngineUnreachable as error:
        return Loss("the engine is gone", error.hint)
    except EngineRefused as error:
        return Loss(f"the container cannot be looked at: {error.explanation}", error.hint or _ANOTHER)


def loss_of_events(events: Iterable[Mapping[str, Any]]) -> Loss:
    """What the *events* of a container, in their order, tell of its end."""
    attributes: dict[str, Mapping[str, Any]] = {}
    for event in events:
        actor: Mapping[str, Any] = event.get("Actor") or {}
        attributes[str(event.get("Action"))] = actor.get("Attributes") or {}
    code = _number(attributes.get("die", {}).get("exitCode"))
    if "restart" in attributes:
        return Loss("the container was restarted, which ended all that ran in it", exit_code=code)
    if "kill" in attributes:
        # Stopping and removing it begin with a signal too.
        by = _signal_name(_number(attributes["kill"].get("signal")))
        return Loss(f"the container was stopped, killed or removed by somebody else{by}", exit_code=code)
    if "oom" in attributes and "die" in attributes:
        return _out_of_memory(code)
    if "die" in attributes:
        return Loss(f"the first process of the container ended{_status(code)}", exit_code=code)
    return Loss("the container is gone, and the engine does not remember how")


def _out_of_memory(code: int | None) -> Loss:
    return Loss(
        "the container ran out of memory, and the kernel killed its first process",
        "give it more by the option `memory_bytes`, or run less at a time",
        code,
    )


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _signal_name(number: int | None) -> str:
    try:
        return "" if number is None else f", by {signal.Signals(number).name}"
    except ValueError:
        return f", by signal {number}"


def _status(code: int | None) -> str:
    if code is None:
        return ""
    return (
        f", by {signal.Signals(code - 128).name}" if code in (137, 139, 143, 134) else f" with status {code}"
    )
