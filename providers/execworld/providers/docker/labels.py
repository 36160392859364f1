"""Labels that say whose a container is, so that a leak can be told from what is in use."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

PREFIX: Final = "io.execworld."
MADE_BY: Final = f"{PREFIX}made-by"
"""On everything that this package makes: containers and volumes. Its value is a `Purpose`."""

_NAME: Final = f"{PREFIX}name"
_HOST: Final = f"{PREFIX}owner.host"
_PID: Final = f"{PREFIX}owner.pid"
_STARTED: Final = f"{PREFIX}owner.started"
_EXPIRES: Final = f"{PREFIX}expires"
_KEEP: Final = f"{PREFIX}keep"


class Purpose(StrEnum):
    """What something was made for."""

    WORLD = "world"
    CARRIER = "carrier"
    """A container that is never started: it holds the warden for the world that is made of it."""


class OwnerState(StrEnum):
    """Whether the process that made something still runs, as far as this host can tell."""

    RUNS = "runs"
    GONE = "gone"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, so that another one with the same number is not taken for it.

    Attributes:
        host: Host, boot and process table: numbers of processes mean something only there.
        pid: In that process table.
        started: When it was started, in units of its kernel; empty where that cannot be known.
    """

    host: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Owner:
        return cls(_this_host(), os.getpid(), _start_of(os.getpid()) or "")

    def state(self) -> OwnerState:
        if self.host != _this_host():
            return OwnerState.ELSEWHERE
        started = _start_of(self.pid)
        if started is None or (self.started and started and started != self.started):
            return OwnerState.GONE
        return OwnerState.RUNS


@dataclass(frozen=True, slots=True)
class Ownership:
    """What the labels of one container or volume say.

    Attributes:
        owner: Who made it; None when its labels do not say so in full.
        expires_at_s: UNIX time after which nobody can want it any more; None likewise.
        keep: It was to outlive its owner.
    """

    purpose: str
    owner: Owner | None
    expires_at_s: float | None
    keep: bool = False

    def leaked(self, now_s: float) -> str:
        """Why it is a leak; empty when it is none, or when that cannot be told.

        A running owner on this host is believed more than the time: it may hold its world for as long as it likes.
        """
        state = OwnerState.ELSEWHERE if self.owner is None else self.owner.state()
        if state is OwnerState.RUNS:
            return ""
        if self.expires_at_s is not None and now_s > self.expires_at_s:
            return "it has expired"
        if state is OwnerState.GONE and not self.keep:
            return f"the process that made it, {self.owner.pid if self.owner else '?'}, is gone"
        return ""


def labels_for(purpose: Purpose, name: str, *, lifetime_s: float, keep: bool = False) -> dict[str, str]:
    """Labels of something that this process makes now under *name*, and that nobody wants after *lifetime_s*.

    All of them are always given: an image may have labels of its own, which hold where nothing else is said.
    """
    owner = Owner.current()
    return {
        MADE_BY: str(purpose),
        _NAME: name,
        _HOST: owner.host,
        _PID: str(owner.pid),
        _STARTED: owner.started,
        _EXPIRES: str(int(time.time() + lifetime_s)),
        _KEEP: "yes" if keep else "no",
    }


def read_labels(labels: Mapping[str, str], name: str) -> Ownership | None:
    """What the *labels* of the container *name* say; None when they are not ours.

    Whoever may make containers may write anything there. And an image that was committed from a container of ours has
    the labels of that one, and so have the containers that anybody makes of it: ours are only those of the right name.
    """
    purpose = labels.get(MADE_BY)
    if purpose is None or labels.get(_NAME) != name.removeprefix("/"):
        return None
    pid, expires = labels.get(_PID, ""), labels.get(_EXPIRES, "")
    host = labels.get(_HOST, "")
    owner = Owner(host, int(pid), labels.get(_STARTED, "")) if host and _is_number(pid) else None
    return Ownership(
        purpose=purpose,
        owner=owner,
        expires_at_s=float(expires) if _is_number(expires) else None,
        keep=labels.get(_KEEP) == "yes",
    )


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16 and int(text) > 0


def _this_host() -> str:
    """Differs between hosts, between boots of one, and between process tables on it."""
    boot = _line_of("/proc/sys/kernel/random/boot_id")
    try:
        table = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        table = ""
    return "/".join((socket.gethostname(), boot or platform.system(), table or "0"))


def _start_of(pid: int) -> str | None:
    """When a process was started; None when there is none, empty when this system does not tell."""
    # State, field 3 of proc(5), and the start time, field 22. A zombie runs nothing.
    fields = _line_of(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) >= 20:
        return None if fields[0] in "ZX" else fields[19]
    try:
        os.kill(pid, 0)  # there may be no /proc, or one that hides the processes of others
    except ProcessLookupError:
        return None
    except OSError:
        pass
    return ""


def _line_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
