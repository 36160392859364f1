"""Which capabilities are left (capabilities(7))."""

from __future__ import annotations

from typing import Final

from execworld.confinement.layers import Layer
from execworld.seams.policy import SandboxMode, SandboxPolicy

CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, KILL, SETGID, SETUID, SETPCAP = 0, 1, 2, 3, 5, 6, 7, 8
_NET_ADMIN, _NET_RAW, _SYS_MODULE, _SYS_RAWIO, _SYS_PTRACE, _SYS_ADMIN, _SYS_BOOT = 12, 13, 16, 17, 19, 21, 22
_SYS_RESOURCE, _SYS_TIME, _MAC_OVERRIDE, _MAC_ADMIN, _SYSLOG, _PERFMON, _BPF = 24, 25, 32, 33, 34, 38, 39
_LAST: Final = 40  # CAP_CHECKPOINT_RESTORE


def mask(*capabilities: int) -> int:
    return sum(1 << number for number in set(capabilities))


FILE_OWNER: Final = mask(CHOWN, DAC_OVERRIDE, FOWNER)
"""What root needs to write a workspace that belongs to somebody else."""

CELL: Final = mask(SETUID, SETGID, KILL, SETPCAP)
"""What the cell needs beside: to signal what runs under another id, and to take capabilities from its programs. That it
has more than any program also keeps these from tracing it where Landlock does not."""

UNDOING: Final = mask(
    DAC_READ_SEARCH,
    SETPCAP,
    _NET_ADMIN,
    _NET_RAW,
    _SYS_MODULE,
    _SYS_RAWIO,
    _SYS_PTRACE,
    _SYS_ADMIN,
    _SYS_BOOT,
    _SYS_RESOURCE,
    _SYS_TIME,
    _MAC_OVERRIDE,
    _MAC_ADMIN,
    _SYSLOG,
    _PERFMON,
    _BPF,
    _LAST,
)
"""With any of these a program could leave what it was put into."""


def of_programs(policy: SandboxPolicy, uid: int) -> int:
    if uid != 0:
        return 0
    if policy.mode is SandboxMode.FULL_ACCESS:
        return mask(*range(_LAST + 1)) & ~UNDOING
    return FILE_OWNER


def of_cell(policy: SandboxPolicy, uid: int, layers: frozenset[Layer]) -> int:
    """An ordinary user has capabilities only in a user namespace; there the cell keeps what it has over programs."""
    if uid != 0:
        return mask(KILL, SETPCAP) if Layer.USER_NAMESPACE in layers else 0
    return of_programs(policy, uid) | CELL
