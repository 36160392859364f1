"""The seccomp profile of containers that we make, in the engine's format, and what programs lose of it again.

It allows what the engine's default allows by its documentation, and, for the cells of the warden, namespaces and
mounts. `program_filter` takes these from whatever the warden starts, so that a program sees what it would see under the
default.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Final

from execworld.confinement.seccomp import Rule, assemble_for_all
from execworld.confinement.syscalls import ARCHITECTURES
from execworld.providers.docker.seccomp_calls import ALWAYS, ALWAYS_ON, OPENED_BY, TRACING

_EPERM, _ENOSYS = 1, 38
_AF_ALG, _AF_VSOCK = 38, 40
_MS_PRIVATE_ALL: Final = 1 << 18 | 0x4000  # MS_PRIVATE | MS_REC
_NEW_FILES_SHARE: Final = 0x400  # CLONE_FILES
_NEW_MOUNT, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = (
    0x20000,
    0x0800_0000,
    0x1000_0000,
    0x2000_0000,
    0x4000_0000,
)
_ALL_NAMESPACES: Final = 0x7E02_0000  # CLONE_NEW*, but for time, which clone(2) cannot make
_WORD: Final = 0xFFFF_FFFF
_PERSONALITIES: Final = (0x0, 0x8, 0x2_0000, 0x2_0008, _WORD)  # Linux, 32 bits, UNAME26, both; asking
_ADMINISTRATOR: Final = "CAP_SYS_ADMIN"

_FOR_CELLS: Final = ("fsconfig", "fsmount", "fsopen", "mount_setattr", "move_mount", "open_tree")
_FOR_CELLS_IN_PART: Final = ("mount", "unshare")
CELL_CALLS: Final = (*_FOR_CELLS, *_FOR_CELLS_IN_PART)
"""What a cell needs and the engine's default denies: `fsopen` and its like whole, `mount` to make mounts private, and
`unshare` for the namespaces that cells have."""


@cache
def profile_json() -> str:
    """The profile as the value of the security option ``seccomp``. The engine itself chooses by architecture,
    kernel and the container's capabilities which of its rules hold.

    To be used with ``no-new-privileges``: the filter that takes from programs what only cells need brings that with it.
    """
    document = {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _EPERM,
        "archMap": [
            _architecture("X86_64", "X86", "X32"),
            _architecture("AARCH64", "ARM"),
        ],
        "syscalls": [
            _allow(*sorted(name for names in ALWAYS.values() for name in names)),
            *(_allow(*names, includes={"arches": [arch]}) for arch, names in ALWAYS_ON.items()),
            *(_allow(*names, includes={"caps": [capability]}) for capability, names in OPENED_BY.items()),
            _allow(*TRACING, includes={"minKernel": "4.8"}),
            *_sockets(),
            *(_allow("personality", args=[_argument(0, value, "EQ")]) for value in _PERSONALITIES),
            *_processes(),
            *_cells(),
        ],
    }
    return json.dumps(document, separators=(",", ":"))


def program_filter(arch: str, *, administrator: bool) -> bytes:
    """What takes from programs what `profile_json` allows for cells alone; nothing to take, nothing returned.

    Args:
        arch: As the warden names it.
        administrator: The container has CAP_SYS_ADMIN, to which the engine's default allows all of it.
    """
    if administrator:
        return b""
    return assemble_for_all([Rule(name, _EPERM) for name in CELL_CALLS], arch)


def has_profile(arch: str) -> bool:
    """Whether there is a filter for programs of this architecture. Elsewhere the engine's default is to be used."""
    return arch in ARCHITECTURES


def _sockets() -> list[dict[str, object]]:
    """All families but AF_ALG, whose code is a way to attack the kernel, and AF_VSOCK, which leads out of a machine."""
    return [
        _allow("socket", args=[_argument(0, _AF_ALG, "LT")]),
        _allow("socket", args=[_argument(0, _AF_ALG + 1, "EQ")]),
        _allow("socket", args=[_argument(0, _AF_VSOCK, "GT")]),
    ]


def _processes() -> list[dict[str, object]]:
    """Without new namespaces. The flags of clone3(2) lie in memory; C libraries use clone(2) when there is none."""
    no_administrator = {"caps": [_ADMINISTRATOR]}
    return [
        _allow("clone", args=[_argument(0, _ALL_NAMESPACES, "MASKED_EQ", 0)], excludes=no_administrator),
        {
            "names": ["clone3"],
            "action": "SCMP_ACT_ERRNO",
            "errnoRet": _ENOSYS,
            "args": [],
            "excludes": no_administrator,
        },
    ]


def _cells() -> list[dict[str, object]]:
    no_administrator = {"caps": [_ADMINISTRATOR]}
    namespaces = _NEW_MOUNT | _NEW_IPC | _NEW_USER | _NEW_PID | _NEW_NET | _NEW_FILES_SHARE
    return [
        _allow(*_FOR_CELLS, excludes=no_administrator),
        _allow("mount", args=[_argument(3, _MS_PRIVATE_ALL, "EQ")], excludes=no_administrator),
        _allow(
            "unshare",
            args=[_argument(0, _WORD & ~namespaces, "MASKED_EQ", 0)],
            excludes=no_administrator,
        ),
    ]


def _architecture(name: str, *others: str) -> dict[str, object]:
    return {
        "architecture": f"SCMP_ARCH_{name}",
        "subArchitectures": [f"SCMP_ARCH_{other}" for other in others],
    }


def _allow(
    *names: str,
    args: list[dict[str, object]] | None = None,
    includes: Mapping[str, object] | None = None,
    excludes: Mapping[str, object] | None = None,
) -> dict[str, object]:
    rule: dict[str, object] = {"names": list(names), "action": "SCMP_ACT_ALLOW", "args": args or []}
    if includes:
        rule["includes"] = includes
    if excludes:
        rule["excludes"] = excludes
    return rule


def _argument(index: int, value: int, comparison: str, wanted: int = 0) -> dict[str, object]:
    """With MASKED_EQ *value* is the mask and *wanted* what is left of the argument."""
    return {"index": index, "value": value, "valueTwo": wanted, "op": f"SCMP_CMP_{comparison}"}
