"""What each file operation of the waist is on this host. Only descriptors and byte paths; no semantics."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from typing import Final

from execworld.machine.batch import StepError
from execworld.machine.local.batch import BatchRun, Executors, StepFailed
from execworld.machine.local.calls import (
    AT_FDCWD,
    RESOLVE_BENEATH,
    RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS,
    open_resolving,
    read_umask,
    rename_with_mode,
    set_times,
)
from execworld.machine.local.canonical import real_path
from execworld.machine.local.executables import find_executable
from execworld.machine.local.handles import FileHandle
from execworld.machine.local.stats import file_stat
from execworld.machine.local.walking import WalkHandle
from execworld.machine.local.watching import WatchHandle
from execworld.machine.operations import (
    AddWatch,
    Check,
    Close,
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
    Stat,
    StatFileSystem,
    StatHandle,
    Sync,
    Truncate,
    Unlink,
    Write,
)
from execworld.machine.values import (
    MAX_TRANSFER_BYTES,
    CheckStatus,
    DirectoryPage,
    FileStat,
    FileSystemStat,
    Handle,
    KindMask,
    LockMode,
    OpenFlag,
    RenameMode,
    WalkPage,
)

_ALWAYS: Final = os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
if sys.platform == "linux":
    _PATH_ONLY: Final = os.O_PATH
else:
    _PATH_ONLY: Final = os.O_RDONLY
_FIRST_READ_BYTES: Final = 64 * 1024  # small enough that the allocator need not map memory for it
_PROBE_BYTES: Final = 4096
_MAX_COPY_BYTES: Final = 16 * 1024 * 1024  # bounds the time in one system call

_PATH_ONLY_BIT: Final = int(OpenFlag.PATH_ONLY)

_open_flags: dict[int, tuple[int, int]] = {}


def _translate(flags: OpenFlag) -> tuple[int, int]:
    """Flags of open(2) and of the resolution of openat2(2)."""
    result = 0
    if flags & OpenFlag.PATH_ONLY:
        result = _PATH_ONLY | os.O_CLOEXEC  # openat2(2) refuses all but three flags beside O_PATH
    else:
        result = _ALWAYS
        if flags & OpenFlag.WRITE:
            result |= os.O_RDWR if flags & OpenFlag.READ else os.O_WRONLY
        for flag, value in (
            (OpenFlag.CREATE, os.O_CREAT),
            (OpenFlag.EXCLUSIVE, os.O_EXCL),
            (OpenFlag.TRUNCATE, os.O_TRUNC),
            (OpenFlag.APPEND, os.O_APPEND),
        ):
            if flags & flag:
                result |= value
    if flags & OpenFlag.DIRECTORY:
        result |= os.O_DIRECTORY
    if flags & OpenFlag.NO_FOLLOW:
        result |= os.O_NOFOLLOW
    resolve = 0
    if flags & OpenFlag.BENEATH:
        resolve |= RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
    if flags & OpenFlag.NO_SYMLINKS:
        resolve |= RESOLVE_NO_SYMLINKS
    return result, resolve


def _open(run: BatchRun, step: Open) -> int:
    number = int(step.flags)
    translated = _open_flags.get(number)
    if translated is None:
        translated = _open_flags[number] = _translate(step.flags)
    flags, resolve = translated
    path = run.path(step.path)
    directory = run.directory(step.base)
    if resolve:
        base = AT_FDCWD if directory is None else directory
        descriptor = open_resolving(path, flags, step.mode, base, resolve)
    else:
        descriptor = os.open(path, flags, step.mode, dir_fd=directory)
    return run.opened(FileHandle(descriptor, path_only=bool(number & _PATH_ONLY_BIT)))


def _close(run: BatchRun, step: Close) -> None:
    run.close(step.handle)


def _check_transfer(size: int) -> None:
    if not 0 <= size <= MAX_TRANSFER_BYTES:
        raise StepFailed(errno.EINVAL)


def _read(run: BatchRun, step: Read) -> bytes:
    _check_transfer(step.size)
    descriptor = run.file(step.handle).descriptor
    parts: list[bytes] = []
    missing = step.size
    chunk = missing if missing <= _FIRST_READ_BYTES else _expected_bytes(descriptor)
    while missing:
        data = os.read(descriptor, min(missing, chunk))
        if not data:
            break
        parts.append(data)
        missing -= len(data)
        # After a short read there is most likely nothing left, and a large buffer would be for nothing.
        chunk = MAX_TRANSFER_BYTES if len(data) == chunk else _PROBE_BYTES
    result = b"".join(parts)
    if step.close_at_end and missing:
        run.close(step.handle)
    return result


def _expected_bytes(descriptor: int) -> int:
    """A good size for the first buffer: neither much larger than what is left, nor filled in many small
    parts.
    """
    try:
        left = os.fstat(descriptor).st_size - os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return _FIRST_READ_BYTES  # it cannot be positioned
    return min(max(left, _PROBE_BYTES), MAX_TRANSFER_BYTES)


def _read_at(run: BatchRun, step: ReadAt) -> bytes:
    _check_transfer(step.size)
    descriptor = run.file(step.handle).descriptor
    parts: list[bytes] = []
    offset, missing = step.offset, step.size
    while missing:
        data = os.pread(descriptor, missing, offset)
        if not data:
            break
        parts.append(data)
        offset += len(data)
        missing -= len(data)
    return b"".join(parts)


def _write(run: BatchRun, step: Write) -> None:
    _check_transfer(len(step.data))
    descriptor = run.file(step.handle).descriptor
    written = os.write(descriptor, step.data) if step.data else 0
    if written < len(step.data):
        rest = memoryview(step.data)[written:]
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _seek(run: BatchRun, step: Seek) -> int:
    return os.lseek(run.file(step.handle).descriptor, step.offset, step.whence)


def _sync(run: BatchRun, step: Sync) -> None:
    os.fsync(run.file(step.handle).descriptor)


def _truncate(run: BatchRun, step: Truncate) -> None:
    os.ftruncate(run.file(step.handle).descriptor, step.size)


def _stat(run: BatchRun, step: Stat) -> FileStat:
    return file_stat(
        os.stat(run.path(step.path), dir_fd=run.directory(step.base), follow_symlinks=step.follow)
    )


def _stat_handle(run: BatchRun, step: StatHandle) -> FileStat:
    return file_stat(os.fstat(run.file(step.handle).descriptor))


def _check(run: BatchRun, step: Check) -> None:
    value = run.value(step.step)
    if isinstance(value, StepError):
        if value.status not in (errno.ENOENT, errno.ENOTDIR):
            raise StepFailed(value.status, value.detail)
        if not step.kinds & KindMask.ABSENT:
            raise StepFailed(CheckStatus.KIND)
        return
    if not isinstance(value, FileStat):
        raise StepFailed(errno.EINVAL)
    if not int(step.kinds) & int(value.kind):  # an enum's own operator costs ten times as much
        raise StepFailed(CheckStatus.KIND)
    if step.version is not None:
        device, inode, size, modified_ns, changed_ns = step.version
        if (
            (value.device, value.inode, value.size, value.modified_ns) != (device, inode, size, modified_ns)
        ) or changed_ns not in (None, value.changed_ns):
            raise StepFailed(CheckStatus.VERSION)
    if step.max_links and value.links > step.max_links and value.kind is not KindMask.DIRECTORY:
        raise StepFailed(CheckStatus.LINKS)
    if step.max_size is not None and value.size > step.max_size:
        raise StepFailed(CheckStatus.SIZE)


def _real_path(run: BatchRun, step: RealPath) -> bytes:
    return real_path(run.path(step.path), step.missing_ok)


def _read_link(run: BatchRun, step: ReadLink) -> bytes:
    return os.readlink(run.path(step.path), dir_fd=run.directory(step.base))


def _make_symlink(run: BatchRun, step: MakeSymlink) -> None:
    os.symlink(step.target, run.path(step.path), dir_fd=run.directory(step.base))


def _link(run: BatchRun, step: Link) -> None:
    os.link(
        run.path(step.source),
        run.path(step.target),
        src_dir_fd=run.directory(step.source_base),
        dst_dir_fd=run.directory(step.target_base),
        follow_symlinks=False,
    )


def _rename(run: BatchRun, step: Rename) -> None:
    source, target = run.path(step.source), run.path(step.target)
    source_base, target_base = run.directory(step.source_base), run.directory(step.target_base)
    if step.how is RenameMode.REPLACE:
        os.rename(source, target, src_dir_fd=source_base, dst_dir_fd=target_base)
    else:
        rename_with_mode(source, target, step.how, source_base, target_base)


def _unlink(run: BatchRun, step: Unlink) -> None:
    os.unlink(run.path(step.path), dir_fd=run.directory(step.base))


def _make_directory(run: BatchRun, step: MakeDirectory) -> None:
    os.mkdir(run.path(step.path), step.mode, dir_fd=run.directory(step.base))


def _remove_directory(run: BatchRun, step: RemoveDirectory) -> None:
    os.rmdir(run.path(step.path), dir_fd=run.directory(step.base))


def _set_mode(run: BatchRun, step: SetMode) -> None:
    mode = step.mode & ~read_umask() if step.apply_umask else step.mode
    if step.mode_of is not None:
        source = run.value(step.mode_of)
        if isinstance(source, FileStat):
            mode = source.mode & 0o777
    handle = run.file(step.handle)
    if handle.path_only and sys.platform == "linux":
        # fchmod(2) refuses such a descriptor; its link in /proc names the same inode, whatever happened to
        # the path.
        os.chmod(b"/proc/self/fd/%d" % handle.descriptor, mode)
    else:
        os.fchmod(handle.descriptor, mode)


def _set_times(run: BatchRun, step: SetTimes) -> None:
    set_times(run.file(step.handle).descriptor, step.accessed_ns, step.modified_ns)


def _set_owner(run: BatchRun, step: SetOwner) -> None:
    uid, gid = step.uid, step.gid
    if step.owner_of is not None:
        source = run.value(step.owner_of)
        if not isinstance(source, FileStat):
            return
        uid, gid = source.uid, source.gid
    os.fchown(run.file(step.handle).descriptor, uid, gid)


def _list_directory(run: BatchRun, step: ListDirectory) -> DirectoryPage:
    return run.file(step.handle).list(step.limit)


def _open_walk(run: BatchRun, step: OpenWalk) -> int:
    return run.opened(WalkHandle(run.path(step.path), run.directory(step.base), step.prune, step.max_depth))


def _read_walk(run: BatchRun, step: ReadWalk) -> WalkPage:
    handle = run.handle(step.handle)
    if not isinstance(handle, WalkHandle):
        raise StepFailed(errno.EBADF)
    return handle.read(step.limit)


_LOCK_FLAGS: Final = {
    LockMode.UNLOCK: fcntl.LOCK_UN,
    LockMode.SHARED: fcntl.LOCK_SH | fcntl.LOCK_NB,
    LockMode.EXCLUSIVE: fcntl.LOCK_EX | fcntl.LOCK_NB,
}


def _lock(run: BatchRun, step: Lock) -> None:
    fcntl.flock(run.file(step.handle).descriptor, _LOCK_FLAGS[step.mode])


_NO_KERNEL_COPY: Final = frozenset(
    {
        errno.EXDEV,
        errno.EINVAL,
        errno.ENOSYS,
        errno.EOPNOTSUPP,
        errno.ENOTSUP,
        errno.EPERM,
        errno.EBADF,
        errno.ETXTBSY,
    }
)


def _copy_range(run: BatchRun, step: CopyRange) -> int:
    if step.size < 0:
        raise StepFailed(errno.EINVAL)
    source, target = run.file(step.source).descriptor, run.file(step.target).descriptor
    if sys.platform == "linux":
        try:
            copied = os.copy_file_range(source, target, min(step.size, _MAX_COPY_BYTES))
        except OSError as error:
            if error.errno not in _NO_KERNEL_COPY:
                raise
        else:
            if copied:
                return copied
    # Also after a copy of nothing: files that the kernel makes up while they are read state no size.
    data = memoryview(os.read(source, min(step.size, MAX_TRANSFER_BYTES)))
    size = len(data)
    while data:
        data = data[os.write(target, data) :]
    return size


def _stat_file_system(run: BatchRun, step: StatFileSystem) -> FileSystemStat:
    descriptor = os.open(run.path(step.path), _PATH_ONLY | os.O_CLOEXEC, dir_fd=run.directory(step.base))
    try:
        result = os.fstatvfs(descriptor)
    finally:
        os.close(descriptor)
    return FileSystemStat(result.f_blocks * result.f_frsize, result.f_bavail * result.f_frsize)


def _watch(run: BatchRun, handle: Handle) -> WatchHandle:
    found = run.handle(handle)
    if not isinstance(found, WatchHandle):
        raise StepFailed(errno.EBADF)
    return found


def _open_watch(run: BatchRun, step: OpenWatch) -> int:
    return run.opened(WatchHandle())


def _add_watch(run: BatchRun, step: AddWatch) -> int:
    return _watch(run, step.handle).add(run.path(step.path), run.directory(step.base))


def _remove_watch(run: BatchRun, step: RemoveWatch) -> None:
    _watch(run, step.handle).remove(step.watch)


def _find_executable(run: BatchRun, step: FindExecutable) -> bytes:
    return find_executable(step.name, step.directories)


FILE_EXECUTORS: Final[Executors] = {
    Open: _open,
    Close: _close,
    Read: _read,
    ReadAt: _read_at,
    Write: _write,
    Seek: _seek,
    Sync: _sync,
    Truncate: _truncate,
    Stat: _stat,
    StatHandle: _stat_handle,
    Check: _check,
    RealPath: _real_path,
    ReadLink: _read_link,
    MakeSymlink: _make_symlink,
    Link: _link,
    Rename: _rename,
    Unlink: _unlink,
    MakeDirectory: _make_directory,
    RemoveDirectory: _remove_directory,
    SetMode: _set_mode,
    SetTimes: _set_times,
    SetOwner: _set_owner,
    ListDirectory: _list_directory,
    OpenWalk: _open_walk,
    ReadWalk: _read_walk,
    Lock: _lock,
    CopyRange: _copy_range,
    StatFileSystem: _stat_file_system,
    OpenWatch: _open_watch,
    AddWatch: _add_watch,
    RemoveWatch: _remove_watch,
    FindExecutable: _find_executable,
}
