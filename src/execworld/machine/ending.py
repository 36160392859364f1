"""How a process tree is ended: the ladder from TERM over a grace period to KILL, and what a wait status means."""

from __future__ import annotations

import math
import os
import signal

import anyio

from execworld.machine.base import Machine, SignalTarget
from execworld.seams.errors import CommandInvalid
from execworld.seams.results import TreeReport


async def end_tree(machine: Machine, handle: int, grace_s: float) -> TreeReport:
    """TERM to every process of the tree, KILL after *grace_s* to all that are left, until none is.

    A stopped process is continued so that it can act on the TERM. Must be called shielded from cancellation.
    """
    await machine.signal(handle, signal.SIGTERM, SignalTarget.TREE)
    await machine.signal(handle, signal.SIGCONT, SignalTarget.TREE)
    with anyio.move_on_after(grace_s):
        await machine.wait_tree(handle)
    return await machine.kill_tree(handle)


def decode_status(raw: int) -> tuple[int | None, int | None]:
    """Exit code and signal number of a wait status; exactly one of them is not None."""
    if os.WIFSIGNALED(raw):
        return None, os.WTERMSIG(raw)
    return os.WEXITSTATUS(raw), None


def checked_seconds(value: float, name: str) -> float:
    """*value*, if it is a positive finite number.

    Raises:
        CommandInvalid: it is not.
    """
    if isinstance(value, bool) or not math.isfinite(value) or value <= 0:
        raise CommandInvalid(f"{name} must be a positive number of seconds, got {value!r}")
    return value
