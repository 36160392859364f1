"""Values that the primitive operations take and return."""

from __future__ import annotations

import time
from dataclasses import field
from enum import IntEnum, IntFlag
from typing import Final, TypeAlias

from execworld.seams.values import record

MAX_TRANSFER_BYTES: Final = 1024 * 1024
"""Largest amount of data that one read or write step may carry."""

MAX_LIST_ENTRIES: Final = 1024
"""Largest number of entries that one listing or walking step may return."""


@record
class HandleRef:
    """The handle that an earlier step of the same batch opened."""

    step: int


class PathPart(IntEnum):
    WHOLE = 0
    PARENT = 1
    NAME = 2


@record
class PathRef:
    """The path, or its parent directory, or its last component, that an earlier step of the same batch returned.

    The parent of ``/`` is ``/`` and its name is ``.``.
    """

    step: int
    part: PathPart = PathPart.WHOLE


Handle: TypeAlias = "int | HandleRef"

RawPath: TypeAlias = "bytes | PathRef"


class OpenFlag(IntFlag):
    """How to open. Close-on-exec, no controlling terminal and non-blocking are always set (open(2), openat2(2))."""

    READ = 1
    WRITE = 2
    CREATE = 4
    EXCLUSIVE = 8
    TRUNCATE = 16
    APPEND = 32
    DIRECTORY = 64
    NO_FOLLOW = 128
    PATH_ONLY = 256
    BENEATH = 512
    NO_SYMLINKS = 1024


class KindMask(IntFlag):
    """Sets of file types, and of "nothing there"."""

    ABSENT = 1
    FILE = 2
    DIRECTORY = 4
    SYMLINK = 8
    FIFO = 16
    SOCKET = 32
    CHARACTER_DEVICE = 64
    BLOCK_DEVICE = 128
    OTHER = 256


class RenameMode(IntEnum):
    """renameat2(2). ``NO_REPLACE`` fails with EEXIST; ``EXCHANGE`` needs both names to exist."""

    REPLACE = 0
    NO_REPLACE = 1
    EXCHANGE = 2


class CheckStatus(IntEnum):
    """Status numbers of a failed `Check`; above every error number of a kernel."""

    KIND = 4097
    VERSION = 4098
    LINKS = 4099
    SIZE = 4100


@record
class FileStat:
    """stat(2), times in nanoseconds. ``kind`` has exactly one bit set."""

    kind: KindMask
    mode: int
    uid: int
    gid: int
    links: int
    size: int
    device: int
    inode: int
    accessed_ns: int
    modified_ns: int
    changed_ns: int


@record
class ListedEntry:
    """One entry of a listing or walk.

    Attributes:
        path: Name in a listing; path relative to the start in a walk.
        stat: The entry itself, links not followed.
        target_kind: What a link leads to, `KindMask.ABSENT` for a dangling one; the own kind for everything else.
    """

    path: bytes
    stat: FileStat
    target_kind: KindMask


@record
class DirectoryPage:
    entries: tuple[ListedEntry, ...]
    end: bool


@record
class WalkPage:
    """Entries, and directories that could not be read with the error number."""

    entries: tuple[ListedEntry, ...]
    errors: tuple[tuple[bytes, int], ...]
    end: bool


@record
class FileSystemStat:
    total_bytes: int
    available_bytes: int


@record
class Spawned:
    """A process that was started.

    Attributes:
        asked_s: When it was asked for, by `time.monotonic` of this process: a busy host hears of the start late.
    """

    handle: int
    pid: int
    asked_s: float = field(default_factory=time.monotonic, compare=False)


class LockMode(IntEnum):
    UNLOCK = 0
    SHARED = 1
    EXCLUSIVE = 2


class Redirect(IntEnum):
    """What a standard stream of a child is. ``MERGE`` (stderr only) duplicates stdout."""

    NULL = 0
    PIPE = 1
    MERGE = 2


@record
class ResourceLimit:
    """setrlimit(2) by the number of the kernel's generic ABI; both values in the unit of the resource."""

    resource: int
    soft: int
    hard: int


class SpawnStage(IntEnum):
    """Where a spawn failed: before exec (fork, pipes, ids, limits), entering the directory, or in execve(2).

    With ``UNKNOWN`` the program may have run: what supervises it was ended before it told.
    """

    SETUP = 0
    DIRECTORY = 1
    EXEC = 2
    UNKNOWN = 3


class AddressKind(IntEnum):
    TCP = 0
    UNIX = 1
