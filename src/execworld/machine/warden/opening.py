"""Opening a machine over a transport."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio

from execworld.machine.warden.facts import (
    LinkSettings,
    WardenFacts,
    WrongVersion,
    decode_facts,
    encode_greeting,
)
from execworld.machine.warden.frames import split_greeting
from execworld.machine.warden.link import Link
from execworld.machine.warden.machine import WardenMachine
from execworld.machine.warden.transport import FarSideGone, LinkEnd, Transport, TransportBroken
from execworld.machine.warden.wire import Malformed
from execworld.seams.errors import WorldUnavailable

_READ_BYTES: Final = 64 * 1024
_SHOWN_NOISE_CHARACTERS: Final = 400


@asynccontextmanager
async def open_warden_machine(
    transport: Transport, settings: LinkSettings | None = None
) -> AsyncGenerator[WardenMachine]:
    """A machine over *transport*, which is closed with it, whatever happens.

    Leaving the context ends everything that the machine runs. The machine's tasks end then, not when the context is
    cancelled, so that a request to end still gets through.

    Raises:
        WorldUnavailable: there is no warden of this version at the other end.
    """
    chosen = settings or LinkSettings()
    received = bytearray()
    try:
        facts, rest = await _greet(transport, chosen, received)
    except (Malformed, TransportBroken, WrongVersion, TimeoutError) as error:
        end = await _close(transport)
        raise _unavailable(error, end, bytes(received)) from error
    except BaseException:
        await _close(transport)
        raise
    link = Link(transport, chosen)
    machine = WardenMachine(link, facts, chosen)
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(link.run, rest)
        try:
            yield machine
        except Exception as error:  # noqa: BLE001 - raised again below, where no group wraps it
            failure = error
        finally:
            with anyio.CancelScope(shield=True):
                await machine.aclose()
    if failure is not None:
        raise failure


async def _greet(
    transport: Transport, settings: LinkSettings, received: bytearray
) -> tuple[WardenFacts, bytes]:
    with anyio.fail_after(settings.open_timeout_s):
        await transport.send(encode_greeting(settings, takes_descriptors=transport.takes_descriptors))
        while True:
            data = await transport.receive(_READ_BYTES)
            if not data:
                gone = await transport.explain_end()
                raise gone or TransportBroken("the link ended before the warden said anything")
            received += data
            found = split_greeting(bytes(received))
            if found is not None:
                body, rest = found
                return decode_facts(body), rest


async def _close(transport: Transport) -> LinkEnd:
    ends: list[LinkEnd] = []
    with anyio.CancelScope(shield=True):
        ends.append(await transport.aclose())
    return ends[0]


def _unavailable(error: Exception, end: LinkEnd, received: bytes) -> WorldUnavailable:
    reason = "it said nothing in time" if isinstance(error, TimeoutError) else str(error)
    parts = [f"the warden does not answer: {reason}"]
    if end.reason:
        parts.append(end.reason)
    if received and not isinstance(error, WrongVersion):
        shown = received[:_SHOWN_NOISE_CHARACTERS].decode("utf-8", "replace")
        parts.append(f"instead came {shown!r}")
    return WorldUnavailable(
        "; ".join(parts),
        op="world.open",
        hint=error.hint
        if isinstance(error, FarSideGone)
        else "use the warden of this version of execworld"
        if isinstance(error, WrongVersion)
        else "what starts the warden must pass its standard input and output on unchanged",
    )
