"""Metadata as the waist states it, from what os.stat returns."""

from __future__ import annotations

import os
import stat
from typing import Final

from execworld.machine.values import FileStat, KindMask

_KINDS: Final = {
    stat.S_IFREG: KindMask.FILE,
    stat.S_IFDIR: KindMask.DIRECTORY,
    stat.S_IFLNK: KindMask.SYMLINK,
    stat.S_IFIFO: KindMask.FIFO,
    stat.S_IFSOCK: KindMask.SOCKET,
    stat.S_IFCHR: KindMask.CHARACTER_DEVICE,
    stat.S_IFBLK: KindMask.BLOCK_DEVICE,
}


def kind_of_mode(mode: int) -> KindMask:
    return _KINDS.get(stat.S_IFMT(mode), KindMask.OTHER)


def file_stat(result: os.stat_result) -> FileStat:
    return FileStat(
        kind_of_mode(result.st_mode),
        result.st_mode & 0o7777,
        result.st_uid,
        result.st_gid,
        result.st_nlink,
        result.st_size,
        result.st_dev,
        result.st_ino,
        result.st_atime_ns,
        result.st_mtime_ns,
        result.st_ctime_ns,
    )


def target_kind(directory: int, name: str | bytes) -> KindMask:
    """What a link leads to; ABSENT for whatever cannot be reached."""
    try:
        return kind_of_mode(os.stat(name, dir_fd=directory).st_mode)
    except OSError:
        return KindMask.ABSENT
