"""Removing the containers of worlds whose process is gone."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from execworld.providers.docker.contexts import engine_variables, find_engine
from execworld.providers.docker.engine import Engine, open_engine
from execworld.providers.docker.failures import EngineRefused, EngineUnreachable
from execworld.providers.docker.labels import MADE_BY, Ownership, OwnerState, read_labels
from execworld.seams.provider import Leftover, LeftoverState

_TIMEOUT_S: Final = 30.0
_SHOWN_ID_CHARACTERS: Final = 12


async def clean(*, dry_run: bool) -> Sequence[Leftover]:
    """Ask the engine that the docker command would use, by its variables and contexts.

    Raises:
        EngineUnreachable, EngineRefused, ConfigurationError
    """
    address = find_engine(variables=engine_variables())
    async with open_engine(address, timeout_s=_TIMEOUT_S) as engine:
        return await sweep(engine, dry_run=dry_run)


async def sweep(engine: Engine, *, dry_run: bool) -> list[Leftover]:
    """Remove each container of ours that leaked. Those of others are not even looked at.

    What is found to have leaked stays so: a process that is gone does not come back, nor does a time that has passed.
    """
    containers = await engine.look("listing containers", _containers_of_ours)
    found: list[Leftover] = []
    for container in containers:
        name = _name_of(container)
        ownership = read_labels(container.get("Labels") or {}, name)
        if ownership is not None:
            found.append(await _sweep(engine, container["Id"], name, ownership, dry_run=dry_run))
    return found


def _containers_of_ours(client: Any) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = client.containers(all=True, filters={"label": [MADE_BY]})
    return found


async def _sweep(
    engine: Engine, container: str, name: str, ownership: Ownership, *, dry_run: bool
) -> Leftover:
    shown = f"{name} ({container[:_SHOWN_ID_CHARACTERS]})"
    reason = ownership.leaked(time.time())
    if not reason:
        return Leftover("container", shown, LeftoverState.KEPT, _why_kept(ownership))
    if dry_run:
        return Leftover("container", shown, LeftoverState.REMOVABLE, reason)
    try:
        await engine.remove(container)
        if await engine.wait_removed(container, _TIMEOUT_S):
            return Leftover("container", shown, LeftoverState.REMOVED, reason)
    except (EngineRefused, EngineUnreachable) as error:
        return Leftover("container", shown, LeftoverState.FAILED, error.message)
    return Leftover("container", shown, LeftoverState.FAILED, "the engine did not remove it in time")


def _why_kept(ownership: Ownership) -> str:
    if ownership.owner is None:
        return "its labels do not say whose it is"
    match ownership.owner.state():
        case OwnerState.RUNS:
            return f"the process that made it, {ownership.owner.pid}, runs"
        case OwnerState.GONE:
            return "it was to be kept"
        case OwnerState.ELSEWHERE:
            return "it was made elsewhere: on another host, in another container, or before this host was started"


def _name_of(container: Mapping[str, Any]) -> str:
    """Its own name: there are also those that links from other containers give it, with more than one slash."""
    names: list[str] = container["Names"] or []
    return next((name.removeprefix("/") for name in names if name.count("/") == 1), "")
