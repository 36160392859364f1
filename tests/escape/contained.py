"""What a container stops by itself, with or without a view: there, no probe proves anything of a view."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from .containers import JOINED, MADE, OF_HOST
from .plans import Plan

ROOT, USER = 0, 1000
_ALL: Final = (MADE, JOINED, OF_HOST)
_OWN: Final = (MADE, JOINED)


@dataclass(frozen=True)
class Stop:
    """Attributes:
    by: What stops it.
    probes: What is stopped.
    worlds: In which kinds of containers; *uids*: and of whom.
    always: Else it depends on the version of the engine.
    """

    by: str
    probes: frozenset[str]
    worlds: tuple[str, ...]
    uids: tuple[int, ...] = (ROOT, USER)
    always: bool = True


def _stop(
    by: str,
    worlds: tuple[str, ...],
    probes: Iterable[str],
    *,
    uids: tuple[int, ...] = (ROOT, USER),
    always: bool = True,
) -> Stop:
    return Stop(by, frozenset(probes), worlds, uids, always)


_OF_THE_WARDEN: Final = (
    "trace-cell",
    "take-descriptor-of-cell",
    "open-descriptors-of-cell",
    "open-memory-of-cell",
)
_SINCE_OR_BEFORE: Final = (
    "create-file-by-ring",
    "connect-by-ring",
    "open-vsock",
    "open-kernel-cipher",
    "read-memory",
    "write-memory",
)
STOPS: Final = (
    _stop("no CAP_SYS_BOOT and no CAP_SYS_TIME", _ALL, ("reboot", "set-clock")),
    _stop("control groups that are read-only", _ALL, ("leave-control-group",)),
    _stop("terminals of its own", (OF_HOST,), ("type-into-terminal", "write-to-terminal")),
    _stop("a /proc/sys that is read-only", _OWN, ("write-kernel-setting",)),
    _stop("no CAP_DAC_READ_SEARCH", _OWN, ("link-inherited-descriptor",)),
    _stop("no CAP_NET_ADMIN", _OWN, ("change-interface",)),
    _stop(
        "no CAP_SYS_ADMIN",
        _OWN,
        (
            "set-host-name",
            "make-bpf-map",
            "watch-file-system",
            "bind-mount-and-write",
            "mount-tmpfs",
            "mount-by-descriptor",
            "write-below-cloned-tree",
            "remount-writable",
            "create-user-namespace",
            "enter-mount-namespace",
            "enter-by-pidfd",
            "pivot-root",
        ),
    ),
    _stop("no CAP_SYS_ADMIN", _OWN, ("remount-in-place",), uids=(ROOT,)),
    _stop("the filter of the engine, without CAP_SYS_PTRACE", _OWN, ("take-descriptor",)),
    _stop("a root that takes no whiteouts (overlayfs)", _OWN, ("rename-whiteout",), always=False),
    _stop("a warden that lets nobody trace it", _OWN, _OF_THE_WARDEN),
    _stop("a warden that lets nobody trace it", (OF_HOST,), _OF_THE_WARDEN, uids=(USER,)),
    _stop(
        "our profile", (MADE,), ("create-file-by-ring", "connect-by-ring", "open-vsock", "open-kernel-cipher")
    ),
    _stop("no_new_privs", (MADE,), ("run-setuid-program",)),
    _stop(
        "the filter of the engine, before or since some version",
        (JOINED, OF_HOST),
        _SINCE_OR_BEFORE,
        always=False,
    ),
)


def stops(name: str, plan: Plan) -> tuple[Stop, ...]:
    return tuple(
        stop for stop in STOPS if name in stop.probes and plan.world in stop.worlds and plan.uid in stop.uids
    )
