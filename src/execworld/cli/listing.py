"""How entries of a directory are written."""

from __future__ import annotations

import stat
import time
from collections.abc import Iterable
from typing import Final

from execworld.cli.documents import encode_document
from execworld.seams import DirectoryEntry, FileKind, encode_path, printable_path

_TYPE_BITS: Final = {
    FileKind.FILE: stat.S_IFREG,
    FileKind.DIRECTORY: stat.S_IFDIR,
    FileKind.SYMLINK: stat.S_IFLNK,
    FileKind.FIFO: stat.S_IFIFO,
    FileKind.SOCKET: stat.S_IFSOCK,
    FileKind.CHARACTER_DEVICE: stat.S_IFCHR,
    FileKind.BLOCK_DEVICE: stat.S_IFBLK,
    FileKind.OTHER: 0,
}


def format_names(entries: Iterable[DirectoryEntry], *, terminal: bool, end: bytes, long: bool) -> bytes:
    """One entry a line: on a terminal so that it cannot move the cursor, elsewhere with exactly its bytes."""
    return b"".join(
        (_details(entry) if long else b"")
        + (printable_path(entry.name).encode("utf-8", "replace") if terminal else encode_path(entry.name))
        + end
        for entry in entries
    )


def format_json(entries: Iterable[DirectoryEntry]) -> bytes:
    """A list of objects; a name that is not UTF-8 is given as bytes too (see `encode_document`)."""
    return encode_document([_as_dict(entry) for entry in entries], indent=2)


def _details(entry: DirectoryEntry) -> bytes:
    info = entry.info
    mode = stat.filemode(_TYPE_BITS[entry.kind] | info.mode)
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(info.modified_ns // 1_000_000_000))
    return f"{mode} {info.uid:>5} {info.gid:>5} {info.size_bytes:>12} {moment} ".encode("ascii")


def _as_dict(entry: DirectoryEntry) -> dict[str, object]:
    info = entry.info
    return {
        "name": entry.name,
        "path": entry.path,
        "kind": str(entry.kind),
        "target_kind": None if entry.target_kind is None else str(entry.target_kind),
        "size_bytes": info.size_bytes,
        "mode": f"{info.mode:04o}",
        "uid": info.uid,
        "gid": info.gid,
        "links": info.links,
        "modified_ns": info.modified_ns,
        "version": str(info.version),
    }
