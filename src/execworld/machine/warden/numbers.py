"""Error and signal numbers of Linux, and the same on this host."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Iterable
from typing import Final

# asm-generic/errno-base.h and errno.h; x86 and arm64 use these numbers. One word a number, from 1 on.
_ERRNO_NAMES: Final = """
EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK
EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE
EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP - ENOMSG EIDRM
ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC EBADSLT
- EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP
EDOTDOT EBADMSG EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ
ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT
ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL ENETDOWN ENETUNREACH
ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT
ECONNREFUSED EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EUCLEAN ENOTNAM ENAVAIL EISNAM
EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED
EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON
"""

# signal(7), the numbers of x86 and arm64. One word a number, from 1 on.
_SIGNAL_NAMES: Final = """
SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE
SIGALRM SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ
SIGVTALRM SIGPROF SIGWINCH SIGIO SIGPWR SIGSYS
"""

MAX_ERRNO: Final = 4095
"""Largest error number of a Linux kernel (include/linux/err.h)."""

ERRNO_BY_NAME: Final = {name: number for number, name in enumerate(_ERRNO_NAMES.split(), 1) if name != "-"}
SIGNAL_BY_NAME: Final = {name: number for number, name in enumerate(_SIGNAL_NAMES.split(), 1)}
_SIGNAL_NAME: Final = {number: name for name, number in SIGNAL_BY_NAME.items()}

_IS_LINUX: Final = sys.platform == "linux"


class ErrnoMap:
    """Translates error numbers of Linux to those of one host, and back.

    A number that the host has no name for becomes EIO: a number that means something else there would be a lie.
    """

    def __init__(self, host: dict[str, int]) -> None:
        self._to_host = {number: host.get(name, host["EIO"]) for name, number in ERRNO_BY_NAME.items()}
        self._other = host["EIO"]
        self._from_host: dict[int, list[int]] = {}
        for number in range(1, MAX_ERRNO + 1):
            self._from_host.setdefault(self.to_host(number), []).append(number)

    def to_host(self, number: int) -> int:
        return self._to_host.get(number, self._other)

    def from_host(self, number: int) -> list[int]:
        """Every number of Linux that becomes *number* here."""
        return self._from_host.get(number, [])


def _host_errnos() -> dict[str, int]:
    return {name: number for number, name in errno.errorcode.items()} | {
        name: number for name in ERRNO_BY_NAME if isinstance(number := getattr(errno, name, None), int)
    }


_HOST_ERRNOS: Final = None if _IS_LINUX else ErrnoMap(_host_errnos())


def host_errno(number: int) -> int:
    """The number of this host's `errno` module for an error number of Linux."""
    return number if _HOST_ERRNOS is None else _HOST_ERRNOS.to_host(number)


def linux_errnos(numbers: Iterable[int]) -> list[int]:
    """The error numbers of Linux that *numbers* of this host stand for, in order; others are dropped."""
    if _HOST_ERRNOS is None:
        return sorted(number for number in numbers if 1 <= number <= MAX_ERRNO)
    return sorted({linux for number in numbers for linux in _HOST_ERRNOS.from_host(number)})


def linux_signal(number: int) -> int:
    """The number in Linux of a signal of this host; 0 and what has no name here stay as they are."""
    if _IS_LINUX:
        return number
    try:
        return SIGNAL_BY_NAME.get(signal.Signals(number).name, number)
    except ValueError:
        return number


def host_wait_status(raw: int) -> int:
    """A wait status of Linux with the signal number that this host gives to that signal."""
    number = raw & 0x7F
    name = _SIGNAL_NAME.get(number)
    if _IS_LINUX or name is None:
        return raw
    here = getattr(signal, name, None)
    return raw if here is None else (raw & ~0x7F) | int(here)
