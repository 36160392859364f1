"""Mode, owner, times, attributes and locks of what lies outside."""

from __future__ import annotations

import fcntl
import os
import struct

from .calls import syscall
from .table import Judge, Targets, Void, probe

_BY = "read-only mounts"
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, NODUMP = 0x80086601, 0x40086602, 0x40


@probe(26, "fs.metadata", Judge.CHANGED, _BY)
def chmod(t: Targets) -> None:
    """Change the mode of a file."""
    os.chmod(t.file, 0o604)


@probe(26, "fs.metadata", Judge.CHANGED, _BY)
def chmod_by_read_descriptor(t: Targets) -> None:
    """Change the mode of a file that is open for reading."""
    os.fchmod(os.open(t.file, os.O_RDONLY), 0o604)


@probe(26, "fs.metadata", Judge.CHANGED, _BY)
def chmod_by_path_descriptor(t: Targets) -> None:
    """Change the mode through a descriptor without rights (fchmodat2 with AT_EMPTY_PATH)."""
    descriptor = os.open(t.file, os.O_PATH)
    try:
        syscall("fchmodat2", descriptor, "", 0o604, 0x1000)
    except OSError as error:
        if error.errno != 38:
            raise
        os.chmod(f"/proc/self/fd/{descriptor}", 0o604)


@probe(26, "fs.metadata", Judge.CHANGED, _BY, privileged=True)
def chown(t: Targets) -> None:
    """Change the owner of a file."""
    os.chown(t.file, 12345, 12345)


@probe(26, "fs.metadata", Judge.CHANGED, _BY)
def set_times(t: Targets) -> None:
    """Change the times of a file."""
    os.utime(t.file, (1, 1))


@probe(26, "fs.metadata", Judge.CHANGED, _BY)
def set_attribute(t: Targets) -> None:
    """Set an extended attribute of a file."""
    try:
        os.setxattr(t.file, "user.execworld", t.token.encode())
    except OSError as error:
        if error.errno == 95:
            raise Void("the file system has no extended attributes") from None
        raise


@probe(27, "fs.metadata", Judge.CHANGED, _BY)
def set_flags(t: Targets) -> None:
    """Set flags (chattr) of a file that is open for reading."""
    descriptor = os.open(t.file, os.O_RDONLY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(descriptor, FS_IOC_GETFLAGS, bytes(8)))
    except OSError as error:
        if error.errno in (25, 95):
            raise Void("the file system has no flags") from None
        raise
    fcntl.ioctl(descriptor, FS_IOC_SETFLAGS, struct.pack("l", flags | NODUMP))


@probe(28, None, Judge.SAID, allowed="a lock is advice, and whoever may read a file may ask for one")
def lock_file(t: Targets) -> None:
    """Take a lock of a file."""
    fcntl.flock(os.open(t.file, os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)


@probe(26, "fs.metadata", Judge.CHANGED, _BY)
def chmod_directory(t: Targets) -> None:
    """Change the mode of a directory."""
    os.chmod(os.path.join(t.own, "directory"), 0o700)
