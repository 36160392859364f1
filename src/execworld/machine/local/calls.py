"""System calls that the standard library does not offer."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from typing import Any, Final

from execworld.machine.values import RenameMode

AT_FDCWD: Final = -100 if sys.platform == "linux" else -2

RESOLVE_NO_MAGICLINKS: Final = 0x02
RESOLVE_NO_SYMLINKS: Final = 0x04
RESOLVE_BENEATH: Final = 0x08

_SYS_OPENAT2: Final = 437  # the same number on every architecture
_SYS_RENAMEAT2: Final = {
    "x86_64": 316,
    "aarch64": 276,
    "riscv64": 276,
    "loongarch64": 276,
    "armv7l": 382,
    "i686": 353,
    "ppc64le": 357,
    "s390x": 347,
}
_BENEATH_ATTEMPTS: Final = 64

_library = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class _TimeSpec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _function(name: str, *argument_types: Any) -> Callable[..., int] | None:
    function = getattr(_library, name, None)
    if function is None:
        return None
    function.argtypes = argument_types
    function.restype = ctypes.c_int

    def call(*arguments: object) -> int:
        result: int = function(*arguments)
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result

    return call


def _check_text(*paths: bytes) -> None:
    # ctypes passes the address of the buffer, so the kernel would silently take what lies before the NUL.
    if any(b"\0" in path for path in paths):
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def open_resolving(path: bytes, flags: int, mode: int, directory: int, resolve: int) -> int:
    """openat2(2). ENOSYS where the kernel has no such call: there is no equivalent to fall back to."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    _check_text(path)
    how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, resolve)
    result, number = -1, errno.EAGAIN
    for _ in range(_BENEATH_ATTEMPTS):
        result = _library.syscall(
            ctypes.c_long(_SYS_OPENAT2),
            ctypes.c_long(directory),
            ctypes.c_char_p(path),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        number = ctypes.get_errno()
        # EAGAIN: some rename elsewhere made the kernel unsure whether ".." escaped; openat2(2) says to try
        # again.
        if result >= 0 or number not in (errno.EAGAIN, errno.EINTR):
            break
    if result < 0:
        raise OSError(number, os.strerror(number))
    return result


_PATH_PAIR: Final = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
_renameat2 = _function("renameat2", *_PATH_PAIR)
_renameatx_np = _function("renameatx_np", *_PATH_PAIR)


def rename_with_mode(
    source: bytes, target: bytes, how: RenameMode, source_directory: int | None, target_directory: int | None
) -> None:
    """renameat2(2) with NOREPLACE or EXCHANGE. EINVAL where the file system cannot do it, ENOSYS where the
    kernel cannot."""
    _check_text(source, target)
    source_base = AT_FDCWD if source_directory is None else source_directory
    target_base = AT_FDCWD if target_directory is None else target_directory
    if sys.platform == "darwin":
        if _renameatx_np is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        flag = {RenameMode.NO_REPLACE: 4, RenameMode.EXCHANGE: 2}[how]
        _renameatx_np(source_base, source, target_base, target, flag)
        return
    flag = {RenameMode.NO_REPLACE: 1, RenameMode.EXCHANGE: 2}[how]
    if _renameat2 is not None:
        _renameat2(source_base, source, target_base, target, flag)
        return
    call = _SYS_RENAMEAT2.get(platform.machine())  # a C library without the wrapper
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    result: int = _library.syscall(
        ctypes.c_long(call),
        ctypes.c_long(source_base),
        ctypes.c_char_p(source),
        ctypes.c_long(target_base),
        ctypes.c_char_p(target),
        ctypes.c_ulong(flag),
    )
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


_futimens = _function("futimens", ctypes.c_int, ctypes.POINTER(_TimeSpec * 2))
_UTIME_OMIT: Final = (1 << 30) - 2 if sys.platform == "linux" else -2


def set_times(descriptor: int, accessed_ns: int | None, modified_ns: int | None) -> None:
    """futimens(2); None leaves a time as it is."""
    if accessed_ns is not None and modified_ns is not None:
        os.utime(descriptor, ns=(accessed_ns, modified_ns))
        return
    if _futimens is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    times = (_TimeSpec * 2)()
    for entry, value in zip(times, (accessed_ns, modified_ns), strict=True):
        if value is None:
            entry.nanoseconds = _UTIME_OMIT
        else:
            entry.seconds, entry.nanoseconds = divmod(value, 1_000_000_000)
    _futimens(descriptor, ctypes.byref(times))


_inotify_init1 = _function("inotify_init1", ctypes.c_int)
_inotify_add_watch = _function("inotify_add_watch", ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_inotify_rm_watch = _function("inotify_rm_watch", ctypes.c_int, ctypes.c_int)


def inotify_open() -> int:
    if sys.platform != "linux" or _inotify_init1 is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return _inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)


def inotify_add(descriptor: int, path: bytes, mask: int) -> int:
    assert _inotify_add_watch is not None
    _check_text(path)
    return _inotify_add_watch(descriptor, path, mask)


def inotify_remove(descriptor: int, watch: int) -> None:
    assert _inotify_rm_watch is not None
    _inotify_rm_watch(descriptor, watch)


def _umask_at_import() -> int:
    # Another thread that creates a file between the two calls would get this mask; at import that is least
    # likely.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


_fallback_umask: int | None = None if sys.platform == "linux" else _umask_at_import()


def read_umask() -> int:
    """The umask of this process, without changing it where the kernel tells it (proc_pid_status(5))."""
    global _late_umask
    if _fallback_umask is not None:
        return _fallback_umask
    try:
        with open("/proc/self/status", "rb") as status:
            for line in status:
                if line.startswith(b"Umask:"):
                    return int(line[6:], 8)
    except OSError:
        pass  # no /proc here
    if _late_umask is None:
        _late_umask = _umask_at_import()
    return _late_umask


_late_umask: int | None = None
