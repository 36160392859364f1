"""Batches as bytes: sections 6 and 7 of the protocol."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final

from execworld.machine.batch import Batch, BatchFailed, Results, StepError
from execworld.machine.operations import (
    AddWatch,
    Check,
    Close,
    Connect,
    CopyRange,
    FindExecutable,
    Link,
    ListDirectory,
    Lock,
    MakeDirectory,
    MakeSymlink,
    Open,
    OpenWalk,
    OpenWatch,
    Operation,
    Read,
    ReadAt,
    ReadLink,
    ReadWalk,
    RealPath,
    RemoveDirectory,
    RemoveWatch,
    Rename,
    Seek,
    SetMode,
    SetOwner,
    SetTimes,
    Spawn,
    Stat,
    StatFileSystem,
    StatHandle,
    Sync,
    Truncate,
    Unlink,
    Write,
)
from execworld.machine.values import CheckStatus, Handle, HandleRef, PathRef, RawPath
from execworld.machine.warden.frames import MAX_MESSAGE_BYTES
from execworld.machine.warden.numbers import linux_errnos
from execworld.machine.warden.wire import byte_string

_NO_STEP: Final = 0xFFFF
_NO_ID: Final = 0xFFFFFFFF
_CHECK_STATUSES: Final = frozenset(int(status) for status in CheckStatus)

_HEAD: Final = struct.Struct("<HH")
_STEP: Final = struct.Struct("<BBH")
_CHECK: Final = struct.Struct("<HHBQQQqqQQ")
_HANDLE: Final = struct.Struct("<BQ")
_REFERENCE: Final = struct.Struct("<BH")
_SPAWN_NUMBERS: Final = struct.Struct("<BBBBHHIII")
_LIMIT: Final = struct.Struct("<IQQ")
_pack: Final = struct.pack


def encode_batch(batch: Batch, max_steps: int) -> bytes:
    """The body of a BATCH.

    Raises:
        BatchFailed: a value does not fit its field (EINVAL) or the batch does not fit a message (EMSGSIZE). Nothing
            was sent, so as after every failed batch nothing has happened.
    """
    if len(batch.steps) > max_steps:
        raise _refused(0, errno.EMSGSIZE)
    parts = [_HEAD.pack(0, len(batch.steps))]
    size = _HEAD.size
    for index, step in enumerate(batch.steps):
        try:
            encoded = _encode_step(step.operation, step.undo, step.tolerate)
        except (struct.error, OverflowError) as error:
            raise _refused(index, errno.EINVAL) from error
        size += len(encoded)
        if size > MAX_MESSAGE_BYTES:
            raise _refused(index, errno.EMSGSIZE)
        parts.append(encoded)
    return b"".join(parts)


def _refused(step: int, status: int) -> BatchFailed:
    return BatchFailed(step, StepError(status), Results(()))


def _encode_step(operation: Operation[Any], undo: Operation[Any] | None, tolerate: frozenset[int]) -> bytes:
    tolerated = _tolerated(tolerate)
    head = _STEP.pack(operation.opcode, undo is not None, len(tolerated) // 2) + tolerated
    fields = _ENCODERS[type(operation)](operation)
    if undo is None:
        return head + fields
    return head + fields + _pack("<B", undo.opcode) + _ENCODERS[type(undo)](undo)


@lru_cache(maxsize=64)
def _tolerated(numbers: frozenset[int]) -> bytes:
    every = [*linux_errnos(numbers), *(numbers & _CHECK_STATUSES)]
    return _pack(f"<{len(every)}H", *every)


def _handle(handle: Handle | None) -> bytes:
    if handle is None:
        return b"\0"
    if isinstance(handle, HandleRef):
        return _REFERENCE.pack(2, handle.step)
    return _HANDLE.pack(1, handle)


def _path(path: RawPath) -> bytes:
    if isinstance(path, PathRef):
        return _REFERENCE.pack(1 + path.part, path.step)
    return b"\0" + byte_string(path)


def _list(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return _pack("<I", len(encoded)) + b"".join(encoded)


def _step(index: int | None) -> int:
    return _NO_STEP if index is None else index


def _check(op: Check) -> bytes:
    device, inode, size, modified_ns, changed_ns = op.version or (0, 0, 0, 0, None)
    has = (op.version is not None) | (changed_ns is not None) << 1 | (op.max_size is not None) << 2
    return _CHECK.pack(
        op.step,
        op.kinds,
        has,
        device,
        inode,
        size,
        modified_ns,
        changed_ns or 0,
        op.max_links,
        op.max_size or 0,
    )


def _set_times(op: SetTimes) -> bytes:
    has = (op.accessed_ns is not None) | (op.modified_ns is not None) << 1
    return _handle(op.handle) + _pack("<Bqq", has, op.accessed_ns or 0, op.modified_ns or 0)


def _set_owner(op: SetOwner) -> bytes:
    uid = _NO_ID if op.uid == -1 else op.uid
    gid = _NO_ID if op.gid == -1 else op.gid
    return _handle(op.handle) + _pack("<IIH", uid, gid, _step(op.owner_of))


def _two_paths(source: RawPath, target: RawPath) -> bytes:
    return _path(source) + _path(target)


def _two_bases(source: Handle | None, target: Handle | None) -> bytes:
    return _handle(source) + _handle(target)


_last_environment: tuple[tuple[tuple[bytes, bytes], ...], bytes] = ((), _pack("<I", 0))


def _environment(pairs: tuple[tuple[bytes, bytes], ...]) -> bytes:
    # Most commands of a view have the very same one, and it is most of what they send.
    global _last_environment
    known, encoded = _last_environment
    if known is not pairs:
        encoded = _list(byte_string(name) + byte_string(value) for name, value in pairs)
        _last_environment = pairs, encoded
    return encoded


def _spawn(op: Spawn) -> bytes:
    # "With a uid and no groups, none": an empty list that counts, so that the warden's own groups are not kept.
    groups = () if op.groups is None and op.uid is not None else op.groups
    has = (
        (op.terminal is not None)
        | (op.uid is not None) << 1
        | (op.gid is not None) << 2
        | (groups is not None) << 3
        | (op.umask is not None) << 4
    )
    rows, columns = op.terminal or (0, 0)
    numbers = _SPAWN_NUMBERS.pack(
        op.stdin, op.stdout, op.stderr, has, rows, columns, op.uid or 0, op.gid or 0, op.umask or 0
    )
    return b"".join(
        (
            _path(op.path),
            _list(map(byte_string, op.argv)),
            _environment(op.environment),
            _path(op.cwd),
            numbers,
            _list(_pack("<I", group) for group in groups or ()),
            _list(_LIMIT.pack(limit.resource, limit.soft, limit.hard) for limit in op.limits),
        )
    )


def _open(op: Open) -> bytes:
    return _path(op.path) + _pack("<HI", op.flags, op.mode) + _handle(op.base)


def _close(op: Close | StatHandle | Sync) -> bytes:
    return _handle(op.handle)


def _read(op: Read) -> bytes:
    return _handle(op.handle) + _pack("<IB", op.size, op.close_at_end)


def _read_at(op: ReadAt) -> bytes:
    return _handle(op.handle) + _pack("<QI", op.offset, op.size)


def _write(op: Write) -> bytes:
    return _handle(op.handle) + byte_string(op.data)


def _seek(op: Seek) -> bytes:
    return _handle(op.handle) + _pack("<qB", op.offset, op.whence)


def _truncate(op: Truncate) -> bytes:
    return _handle(op.handle) + _pack("<Q", op.size)


def _stat(op: Stat) -> bytes:
    return _path(op.path) + _pack("<B", op.follow) + _handle(op.base)


def _real_path(op: RealPath) -> bytes:
    return _path(op.path) + _pack("<B", op.missing_ok)


def _path_and_base(op: ReadLink | Unlink | RemoveDirectory | StatFileSystem) -> bytes:
    return _path(op.path) + _handle(op.base)


def _make_symlink(op: MakeSymlink) -> bytes:
    return byte_string(op.target) + _path(op.path) + _handle(op.base)


def _link(op: Link) -> bytes:
    return _two_paths(op.source, op.target) + _two_bases(op.source_base, op.target_base)


def _rename(op: Rename) -> bytes:
    how = _pack("<B", op.how)
    return _two_paths(op.source, op.target) + how + _two_bases(op.source_base, op.target_base)


def _make_directory(op: MakeDirectory) -> bytes:
    return _path(op.path) + _pack("<I", op.mode) + _handle(op.base)


def _set_mode(op: SetMode) -> bytes:
    return _handle(op.handle) + _pack("<IHB", op.mode, _step(op.mode_of), op.apply_umask)


def _limited(op: ListDirectory | ReadWalk) -> bytes:
    return _handle(op.handle) + _pack("<I", op.limit)


def _open_walk(op: OpenWalk) -> bytes:
    prune = _list(map(byte_string, op.prune))
    return _path(op.path) + prune + _pack("<I", op.max_depth) + _handle(op.base)


def _lock(op: Lock) -> bytes:
    return _handle(op.handle) + _pack("<B", op.mode)


def _copy_range(op: CopyRange) -> bytes:
    return _handle(op.source) + _handle(op.target) + _pack("<Q", op.size)


def _nothing(op: OpenWatch) -> bytes:
    return b""


def _add_watch(op: AddWatch) -> bytes:
    return _handle(op.handle) + _path(op.path) + _handle(op.base)


def _remove_watch(op: RemoveWatch) -> bytes:
    return _handle(op.handle) + _pack("<i", op.watch)


def _find_executable(op: FindExecutable) -> bytes:
    return byte_string(op.name) + _list(map(byte_string, op.directories))


def _connect(op: Connect) -> bytes:
    return _pack("<B", op.kind) + byte_string(op.host) + _pack("<H", op.port)


_ENCODERS: Final[dict[type[Operation[Any]], Callable[[Any], bytes]]] = {
    Open: _open,
    Close: _close,
    Read: _read,
    ReadAt: _read_at,
    Write: _write,
    Seek: _seek,
    Sync: _close,
    Truncate: _truncate,
    Stat: _stat,
    StatHandle: _close,
    Check: _check,
    RealPath: _real_path,
    ReadLink: _path_and_base,
    MakeSymlink: _make_symlink,
    Link: _link,
    Rename: _rename,
    Unlink: _path_and_base,
    MakeDirectory: _make_directory,
    RemoveDirectory: _path_and_base,
    SetMode: _set_mode,
    SetTimes: _set_times,
    SetOwner: _set_owner,
    ListDirectory: _limited,
    OpenWalk: _open_walk,
    ReadWalk: _limited,
    Lock: _lock,
    CopyRange: _copy_range,
    StatFileSystem: _path_and_base,
    OpenWatch: _nothing,
    AddWatch: _add_watch,
    RemoveWatch: _remove_watch,
    FindExecutable: _find_executable,
    Spawn: _spawn,
    Connect: _connect,
}
