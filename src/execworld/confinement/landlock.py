"""Landlock: which rights each version knows, and rulesets made of pins and ports.

Source: landlock(7), Documentation/userspace-api/landlock.rst. A version newer than the newest known here is treated as
that one: rights that it adds stay unhandled, which the report cannot claim.
"""

from __future__ import annotations

from enum import IntFlag
from typing import Final

NEWEST_KNOWN_ABI: Final = 11


class FsRight(IntFlag):
    EXECUTE = 1 << 0
    WRITE_FILE = 1 << 1
    READ_FILE = 1 << 2
    READ_DIR = 1 << 3
    REMOVE_DIR = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHAR = 1 << 6
    MAKE_DIR = 1 << 7
    MAKE_REG = 1 << 8
    MAKE_SOCK = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK = 1 << 11
    MAKE_SYM = 1 << 12
    REFER = 1 << 13
    TRUNCATE = 1 << 14
    IOCTL_DEV = 1 << 15
    RESOLVE_UNIX = 1 << 16


class NetRight(IntFlag):
    NONE = 0
    BIND_TCP = 1
    CONNECT_TCP = 2


class Scope(IntFlag):
    NONE = 0
    ABSTRACT_UNIX = 1
    SIGNAL = 2


_SINCE: Final = {
    FsRight.REFER: 2,
    FsRight.TRUNCATE: 3,
    FsRight.IOCTL_DEV: 5,
    FsRight.RESOLVE_UNIX: 9,
}
REFER_ABI: Final = 2
TRUNCATE_ABI: Final = 3
TCP_ABI: Final = 4
SCOPE_ABI: Final = 6
RESOLVE_UNIX_ABI: Final = 9

READ: Final = FsRight.EXECUTE | FsRight.READ_FILE | FsRight.READ_DIR
ON_FILES: Final = (
    FsRight.EXECUTE
    | FsRight.WRITE_FILE
    | FsRight.READ_FILE
    | FsRight.TRUNCATE
    | FsRight.IOCTL_DEV
    | FsRight.RESOLVE_UNIX
)
"""A rule on anything but a directory may carry no other right (EINVAL)."""

DEVICE: Final = FsRight.READ_FILE | FsRight.WRITE_FILE | FsRight.TRUNCATE
TERMINAL: Final = FsRight.READ_FILE | FsRight.WRITE_FILE | FsRight.IOCTL_DEV
TERMINALS: Final = TERMINAL | FsRight.READ_DIR


def known(abi: int) -> int:
    """The version that the tables here speak of."""
    return min(abi, NEWEST_KNOWN_ABI)


def fs_rights(abi: int) -> FsRight:
    """All rights of version *abi*."""
    rights = FsRight(0)
    for right in FsRight:
        if _SINCE.get(right, 1) <= abi:
            rights |= right
    return rights


WRITE_ROOT: Final = fs_rights(NEWEST_KNOWN_ABI) & ~(
    FsRight.MAKE_CHAR | FsRight.MAKE_BLOCK | FsRight.IOCTL_DEV | FsRight.RESOLVE_UNIX
)
"""Sockets that the view itself made can be reached without RESOLVE_UNIX; one that somebody else put there cannot."""


def scopes(abi: int) -> Scope:
    return Scope.ABSTRACT_UNIX | Scope.SIGNAL if abi >= SCOPE_ABI else Scope.NONE
