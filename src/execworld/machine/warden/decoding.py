"""Replies to batches: sections 6 and 7 of the protocol."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from execworld.machine.batch import Batch, BatchFailed, Results, StepError
from execworld.machine.operations import (
    AddWatch,
    Connect,
    CopyRange,
    FindExecutable,
    ListDirectory,
    Open,
    OpenWalk,
    OpenWatch,
    Operation,
    Read,
    ReadAt,
    ReadLink,
    ReadWalk,
    RealPath,
    Seek,
    Spawn,
    Stat,
    StatFileSystem,
    StatHandle,
)
from execworld.machine.values import (
    MAX_LIST_ENTRIES,
    CheckStatus,
    DirectoryPage,
    FileStat,
    FileSystemStat,
    KindMask,
    ListedEntry,
    Spawned,
    SpawnStage,
    WalkPage,
)
from execworld.machine.warden.numbers import ERRNO_BY_NAME, MAX_ERRNO, host_errno
from execworld.machine.warden.wire import Cursor, Malformed

_NO_STEP: Final = 0xFFFF
_REFUSALS: Final = frozenset(ERRNO_BY_NAME[name] for name in ("EPROTO", "ENOENT", "ECANCELED", "ENOBUFS"))
_STAGES: Final = frozenset(int(stage) for stage in SpawnStage)
_CHECK_STATUSES: Final = frozenset(int(status) for status in CheckStatus)
_KINDS: Final = {int(kind): kind for kind in KindMask}
_MODE_BITS: Final = 0o7777  # the type travels in the mode too, and is in the kind
_STAT: Final = struct.Struct("<HIIIQQQQqqq")
_HEAD: Final = struct.Struct("<HIHH")


def decode_status(number: int) -> int:
    """A status other than 0 in numbers of this host.

    Raises:
        Malformed: it is none.
    """
    if 1 <= number <= MAX_ERRNO:
        return host_errno(number)
    if number in _CHECK_STATUSES:
        return number
    raise Malformed(f"status {number}")


def decode_batch_reply(batch: Batch, body: bytes) -> Results | BatchFailed:
    """What became of *batch*. A failure is returned, not raised.

    Raises:
        Malformed: the reply does not fit the batch.
    """
    cursor = Cursor(body)
    status, detail, failed, count = cursor.take(_HEAD)
    if status == 0:
        fits = failed == _NO_STEP and count == len(batch.steps) and not detail
    elif failed == _NO_STEP:
        fits = count == 0 and not detail and status in _REFUSALS
    else:
        fits = failed < len(batch.steps) and count == failed
    if not fits:
        raise Malformed("the reply to a batch does not fit its steps")
    values = tuple(_decode_result(step.operation, step.tolerate, cursor) for step in batch.steps[:count])
    cursor.end()
    if status == 0:
        return Results(values)
    if failed == _NO_STEP:
        return BatchFailed(0, StepError(host_errno(status)), Results(()))
    step = batch.steps[failed]
    error = _decode_error(step.operation, status, detail)
    if error.status in step.tolerate:
        raise Malformed("a batch stopped at a failure that was tolerated")
    return BatchFailed(failed, error, Results(values))


def _decode_error(operation: Operation[Any], status: int, detail: int) -> StepError:
    if detail and not (isinstance(operation, Spawn) and detail in _STAGES):
        raise Malformed(f"detail {detail} of a failed step")
    return StepError(decode_status(status), detail)


def _decode_result(operation: Operation[Any], tolerate: frozenset[int], cursor: Cursor) -> object:
    status = cursor.u16()
    if status:
        error = _decode_error(operation, status, cursor.u32())
        if error.status not in tolerate:
            raise Malformed(f"step failed with {status}, which is not tolerated, and the batch went on")
        return error
    decoder = _DECODERS.get(type(operation))
    return None if decoder is None else decoder(operation, cursor)


def decode_stat(cursor: Cursor) -> FileStat:
    kind, mode, *others = cursor.take(_STAT)
    return FileStat(_kind(kind), mode & _MODE_BITS, *others)


def _kind(number: int) -> KindMask:
    kind = _KINDS.get(number)
    if kind is None:
        raise Malformed(f"kind of file {number}")
    return kind


def _entries(limit: int, cursor: Cursor) -> tuple[ListedEntry, ...]:
    count = cursor.u32()
    if count > min(limit, MAX_LIST_ENTRIES):
        raise Malformed(f"a page of {count} entries")
    return tuple(_entry(cursor) for _ in range(count))


def _entry(cursor: Cursor) -> ListedEntry:
    path = cursor.byte_string()
    return ListedEntry(_entry_path(path), decode_stat(cursor), _kind(cursor.u16()))


def _entry_path(path: bytes) -> bytes:
    # A name that leads out of the directory would send the operations built on it elsewhere.
    if not path or b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise Malformed("a name in a listing is no name")
    return path


def _directory_page(operation: ListDirectory, cursor: Cursor) -> DirectoryPage:
    end = cursor.flag()
    entries = _entries(operation.limit, cursor)
    if any(b"/" in entry.path for entry in entries):
        raise Malformed("a name in a listing holds a slash")
    return DirectoryPage(entries, end)


def _walk_page(operation: ReadWalk, cursor: Cursor) -> WalkPage:
    end = cursor.flag()
    entries = _entries(operation.limit, cursor)
    errors = tuple(_walk_error(cursor) for _ in range(cursor.u32()))
    return WalkPage(entries, errors, end)


def _walk_error(cursor: Cursor) -> tuple[bytes, int]:
    path, status = cursor.byte_string(), cursor.u16()
    # The start itself may have become unreadable; its path relative to itself is empty.
    return _entry_path(path) if path not in (b"", b".") else path, decode_status(status)


def _data(operation: Read | ReadAt, cursor: Cursor) -> bytes:
    data = cursor.byte_string()
    if len(data) > operation.size:
        raise Malformed("more data than was asked for")
    return data


def _path(operation: Operation[Any], cursor: Cursor) -> bytes:
    path = cursor.byte_string()
    if not path or b"\0" in path:
        raise Malformed("a path is empty or holds a NUL")
    return path


def _absolute_path(operation: Operation[Any], cursor: Cursor) -> bytes:
    path = _path(operation, cursor)
    if not path.startswith(b"/"):
        raise Malformed("a path is not absolute")
    return path


def _handle(operation: Operation[Any], cursor: Cursor) -> int:
    return _checked_handle(cursor.u64())


def _checked_handle(handle: int) -> int:
    if handle == 0:
        raise Malformed("handle 0")
    return handle


def _spawned(operation: Spawn, cursor: Cursor) -> Spawned:
    return Spawned(_checked_handle(cursor.u64()), cursor.i32())


def _position(operation: Seek, cursor: Cursor) -> int:
    return cursor.i64()


def _copied(operation: CopyRange, cursor: Cursor) -> int:
    copied = cursor.u64()
    if copied > operation.size:
        raise Malformed("more was copied than was asked for")
    return copied


def _watch(operation: AddWatch, cursor: Cursor) -> int:
    return cursor.i32()


def _stat(operation: Stat | StatHandle, cursor: Cursor) -> FileStat:
    return decode_stat(cursor)


def _file_system(operation: StatFileSystem, cursor: Cursor) -> FileSystemStat:
    return FileSystemStat(cursor.u64(), cursor.u64())


_DECODERS: Final[dict[type[Operation[Any]], Callable[[Any, Cursor], object]]] = {
    Open: _handle,
    Read: _data,
    ReadAt: _data,
    Seek: _position,
    Stat: _stat,
    StatHandle: _stat,
    RealPath: _absolute_path,
    ReadLink: _path,
    ListDirectory: _directory_page,
    OpenWalk: _handle,
    ReadWalk: _walk_page,
    CopyRange: _copied,
    StatFileSystem: _file_system,
    OpenWatch: _handle,
    AddWatch: _watch,
    FindExecutable: _path,
    Spawn: _spawned,
    Connect: _handle,
}
