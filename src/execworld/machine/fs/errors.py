"""From the status of a failed step to an error of the file family. Total: every number has an answer."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import Final

from execworld.machine.values import CheckStatus, KindMask
from execworld.seams.errors import (
    AccessDenied,
    DirectoryNotEmpty,
    FileAlreadyExists,
    FileError,
    FileMissing,
    HardLinked,
    InvalidPath,
    NoSpace,
    NotDirectory,
    NotRegularFile,
    StaleVersion,
    TooLarge,
)

_CLASSES: Final[Mapping[int, type[FileError]]] = {
    errno.ENOENT: FileMissing,
    errno.EEXIST: FileAlreadyExists,
    errno.ENOTDIR: NotDirectory,
    errno.EISDIR: NotRegularFile,
    errno.ENXIO: NotRegularFile,  # a socket, or a FIFO without a reader
    errno.ENODEV: NotRegularFile,
    errno.ENOTEMPTY: DirectoryNotEmpty,
    errno.EACCES: AccessDenied,
    errno.EPERM: AccessDenied,
    errno.EROFS: AccessDenied,
    errno.ENOSPC: NoSpace,
    errno.EDQUOT: NoSpace,
    errno.EFBIG: TooLarge,
    errno.EOVERFLOW: TooLarge,
    errno.ENAMETOOLONG: InvalidPath,
    errno.EILSEQ: InvalidPath,
    CheckStatus.KIND: NotRegularFile,
    CheckStatus.VERSION: StaleVersion,
    CheckStatus.LINKS: HardLinked,
    CheckStatus.SIZE: TooLarge,
}

_OWN: Final = frozenset(int(status) for status in CheckStatus)

_TEXTS: Final[Mapping[int, str]] = {
    errno.ENOENT: "there is no such file or directory",
    errno.EEXIST: "something of that name exists",
    errno.ENOTDIR: "something on the way, or the last component, is not a directory",
    errno.EISDIR: "it is a directory",
    errno.ENXIO: "it is a socket, a device or a FIFO",
    errno.ENODEV: "it is a device",
    errno.ENOTEMPTY: "the directory is not empty",
    errno.EACCES: "permission denied",
    errno.EPERM: "the operation is not permitted",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is exceeded",
    errno.EFBIG: "the file would be larger than the world allows",
    errno.ENAMETOOLONG: "the path or a name in it is too long",
    errno.EILSEQ: "the file system does not accept this name",
    errno.ELOOP: "symbolic links lead in a circle",
    errno.EXDEV: "source and target lie on different file systems",
    errno.EBUSY: "it is in use, for example as a mount point",
    CheckStatus.KIND: "it is not a regular file",
    CheckStatus.VERSION: "it is not in the expected version any more",
    CheckStatus.LINKS: "it has further names (hard links)",
    CheckStatus.SIZE: "it is larger than the limit",
}

_HINTS: Final[Mapping[int, str]] = {
    errno.EISDIR: "list the directory instead",
    errno.ENOTEMPTY: "ask for its removal with everything in it",
    errno.EXDEV: "copy it and remove the source",
    errno.ENOSPC: "free some space or write elsewhere",
    errno.EDQUOT: "free some space or write elsewhere",
    errno.EMFILE: "close some files first",
    CheckStatus.VERSION: "read it again and repeat the change",
    CheckStatus.LINKS: "ask for its hard links to be broken, to replace this name only",
    CheckStatus.SIZE: "read a range or stream it",
}

MOVED_HINT: Final = "it may have been moved or removed: look for it before another is written in its place"
"""For a file that was to be changed and is not there: writing a new one under the old name would make a twin."""

# A repetition may well succeed, and does no harm.
_TRANSIENT: Final = frozenset(
    {
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.ETXTBSY,
        errno.ESTALE,
    }
)

_KIND_WORDS: Final[Mapping[KindMask, str]] = {
    KindMask.FILE: "a regular file",
    KindMask.DIRECTORY: "a directory",
    KindMask.SYMLINK: "a symbolic link",
    KindMask.FIFO: "a FIFO",
    KindMask.SOCKET: "a socket",
    KindMask.CHARACTER_DEVICE: "a character device",
    KindMask.BLOCK_DEVICE: "a block device",
    KindMask.OTHER: "of an unknown type",
}


def error_class(status: int) -> type[FileError]:
    return _CLASSES.get(status, FileError)


def error_text(status: int) -> str:
    return _TEXTS.get(status) or os.strerror(status)


def error_hint(status: int) -> str:
    return _HINTS.get(status, "")


def error_number(status: int) -> int | None:
    """The error number of a status, None where the refusal was ours."""
    return None if status in _OWN else status


def is_transient(status: int) -> bool:
    return status in _TRANSIENT


def kind_words(kind: KindMask) -> str:
    return _KIND_WORDS.get(kind, "of an unknown type")
