"""From the metadata of the waist to that of the seam."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from execworld.machine.values import FileStat, KindMask, ListedEntry
from execworld.seams.files import DirectoryEntry, FileInfo, FileKind, FileVersion
from execworld.seams.paths import decode_path

_KINDS: Final[Mapping[KindMask, FileKind]] = {
    KindMask.FILE: FileKind.FILE,
    KindMask.DIRECTORY: FileKind.DIRECTORY,
    KindMask.SYMLINK: FileKind.SYMLINK,
    KindMask.FIFO: FileKind.FIFO,
    KindMask.SOCKET: FileKind.SOCKET,
    KindMask.CHARACTER_DEVICE: FileKind.CHARACTER_DEVICE,
    KindMask.BLOCK_DEVICE: FileKind.BLOCK_DEVICE,
}


def file_kind(kind: KindMask) -> FileKind:
    return _KINDS.get(kind, FileKind.OTHER)


def file_version(stat: FileStat) -> FileVersion:
    return FileVersion(stat.device, stat.inode, stat.size, stat.modified_ns, stat.changed_ns)


def version_demand(version: FileVersion, *, renamed: bool = False) -> tuple[int, int, int, int, int | None]:
    """What a `Check` compares. A file that was renamed meanwhile has another change time."""
    changed_ns = None if renamed else version.changed_ns
    return (version.device, version.inode, version.size_bytes, version.modified_ns, changed_ns)


def file_info(path: str, stat: FileStat) -> FileInfo:
    return FileInfo(
        path,
        file_kind(stat.kind),
        stat.size,
        stat.mode,
        stat.uid,
        stat.gid,
        stat.links,
        stat.modified_ns,
        file_version(stat),
    )


def directory_entry(directory: str, entry: ListedEntry) -> DirectoryEntry:
    """*directory* is the display path of the start of the listing or walk, without a slash at its end."""
    relative = decode_path(entry.path)
    path = f"{directory}/{relative}"
    target = None if entry.target_kind is KindMask.ABSENT else file_kind(entry.target_kind)
    return DirectoryEntry(
        relative.rpartition("/")[2], path, file_kind(entry.stat.kind), target, file_info(path, entry.stat)
    )
