"""A file system that answers until it is told to fall silent, spoken over /dev/fuse (include/uapi/linux/fuse.h).

    python silent_fuse.py DIRECTORY

Mounts itself there, prints a line, and from the first line of its input on takes every request and answers none. Who
asks then waits in the kernel, and not even KILL ends that: as with a server that hangs. At its end all of them fail.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
from enum import IntEnum
from typing import Final


class Opcode(IntEnum):
    LOOKUP, FORGET, GETATTR = 1, 2, 3
    OPEN, READ, WRITE = 14, 15, 16
    RELEASE, FSYNC, FLUSH, INIT = 18, 20, 25, 26
    OPENDIR, READDIR, RELEASEDIR = 27, 28, 29
    INTERRUPT, BATCH_FORGET = 36, 42


_UNANSWERED: Final = frozenset({Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT})
_HEADER: Final = struct.Struct("<IIQQ")
_HEADER_BYTES: Final = 40
_ROOT, _FILE, _DIRECTORY = 1, 2, 3
_NAMES: Final = {b"file": _FILE, b"directory": _DIRECTORY}
_DIRECT_IO: Final = 1


def attributes(node: int) -> bytes:
    mode, size = (0o100666, 100) if node == _FILE else (0o40777, 0)
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, body: bytes) -> bytes | int:
    """The body of a reply, or an error number. Nothing may be cached, so that everything is asked again."""
    match opcode:
        case Opcode.INIT:
            return struct.pack("<IIIIHHIIHHIIIIII", 7, 31, 0, 0, 16, 12, 1 << 17, 1, 0, 0, 0, 0, 0, 0, 0, 0)
        case Opcode.GETATTR:
            return struct.pack("<QII", 0, 0, 0) + attributes(node)
        case Opcode.LOOKUP:
            found = _NAMES.get(body.rstrip(b"\0"))
            if found is None:
                return errno.ENOENT
            return struct.pack("<QQQQII", found, 0, 0, 0, 0, 0) + attributes(found)
        case Opcode.OPEN | Opcode.OPENDIR:
            return struct.pack("<QII", 1, _DIRECT_IO, 0)
        case Opcode.WRITE:
            return struct.pack("<II", struct.unpack_from("<QQI", body)[2], 0)
        case Opcode.READ | Opcode.READDIR | Opcode.RELEASE | Opcode.RELEASEDIR | Opcode.FSYNC | Opcode.FLUSH:
            return b""
        case _:
            return errno.ENOSYS


def serve(device: int) -> None:
    silent = False
    while True:
        ready, _, _ = select.select([device, *([] if silent else [0])], [], [])
        if 0 in ready:
            silent = True
            os.read(0, 100)
            os.write(1, b"silent\n")
            continue
        try:
            request = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                continue  # it was taken back
            return  # unmounted
        _, opcode, unique, node = _HEADER.unpack_from(request)
        if silent or opcode in _UNANSWERED:
            continue
        reply = answer(opcode, node, request[_HEADER_BYTES:])
        body, status = (b"", -reply) if isinstance(reply, int) else (reply, 0)
        os.write(device, struct.pack("<IiQ", 16 + len(body), status, unique) + body)


def main() -> None:
    directory = os.fsencode(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if libc.mount(b"silent", directory, b"fuse", 0, options):
        sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")
    os.write(1, b"mounted\n")
    serve(device)


if __name__ == "__main__":
    main()
