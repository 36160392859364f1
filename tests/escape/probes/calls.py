"""System calls by number, past whatever the C library would make of them."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
from typing import Any

from .table import Void

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

_X86_64 = {
    "mknodat": 259, "truncate": 76, "renameat2": 316, "linkat": 265, "mount": 165, "umount2": 166, "unshare": 272,
    "setns": 308, "chroot": 161, "name_to_handle_at": 303, "open_by_handle_at": 304, "process_vm_readv": 310,
    "process_vm_writev": 311, "ptrace": 101, "prlimit64": 302, "setpriority": 141, "ioprio_set": 251,
    "sethostname": 170, "bpf": 321, "fanotify_init": 300, "shmget": 29, "shmat": 30, "setxattr": 188, "tgkill": 234,
    "rt_sigqueueinfo": 129, "init_module": 175, "kexec_load": 246, "reboot": 169, "perf_event_open": 298,
    "userfaultfd": 323, "pivot_root": 155, "swapon": 167, "acct": 163, "adjtimex": 159, "sendto": 44, "prctl": 157,
    "inotify_init1": 294, "inotify_add_watch": 254, "sched_setaffinity": 203, "sched_setscheduler": 144, "msgget": 68,
    "seccomp": 317, "settimeofday": 164, "add_key": 248, "mq_open": 240, "kcmp": 312, "creat": 85,
    "socket": 41,
}  # fmt: skip
_AARCH64 = {
    "mknodat": 33, "truncate": 45, "renameat2": 276, "linkat": 37, "mount": 40, "umount2": 39, "unshare": 97,
    "setns": 268, "chroot": 51, "name_to_handle_at": 264, "open_by_handle_at": 265, "process_vm_readv": 270,
    "process_vm_writev": 271, "ptrace": 117, "prlimit64": 261, "setpriority": 140, "ioprio_set": 30,
    "sethostname": 161, "bpf": 280, "fanotify_init": 262, "shmget": 194, "shmat": 196, "setxattr": 5, "tgkill": 131,
    "rt_sigqueueinfo": 138, "init_module": 105, "kexec_load": 104, "reboot": 142, "perf_event_open": 241,
    "userfaultfd": 282, "pivot_root": 41, "swapon": 224, "acct": 89, "adjtimex": 171, "sendto": 206, "prctl": 167,
    "inotify_init1": 26, "inotify_add_watch": 27, "sched_setaffinity": 122, "sched_setscheduler": 119, "msgget": 186,
    "seccomp": 277, "settimeofday": 170, "add_key": 217, "mq_open": 180, "kcmp": 272, "socket": 198,
}  # fmt: skip
_BOTH = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "pidfd_open": 434, "openat2": 437,
    "pidfd_getfd": 438, "mount_setattr": 442, "landlock_create_ruleset": 444, "landlock_add_rule": 445,
    "landlock_restrict_self": 446, "fchmodat2": 452,
}  # fmt: skip
_NUMBERS = {**(_AARCH64 if platform.machine() == "aarch64" else _X86_64), **_BOTH}

AT_FDCWD = -100
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000


def number(name: str) -> int:
    """Of a system call on this architecture."""
    if name not in _NUMBERS:
        raise Void(f"no {name} on this architecture")
    return _NUMBERS[name]


def syscall(name: str, *arguments: Any) -> int:
    """The result of a system call. ENOSYS is as much a denial as any other."""
    converted: list[Any] = []
    for argument in arguments:
        if argument is None:
            converted.append(ctypes.c_void_p(None))
        elif isinstance(argument, int):
            converted.append(ctypes.c_long(argument))
        elif isinstance(argument, str):
            converted.append(ctypes.c_char_p(os.fsencode(argument)))
        elif isinstance(argument, bytes):
            converted.append(ctypes.c_char_p(argument))
        else:
            converted.append(ctypes.byref(argument))
    return raw_syscall(number(name), *converted)


def raw_syscall(system_call: int, *arguments: Any) -> int:
    """The result of a system call by its number; whole numbers are 64 bits wide."""
    converted = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    result = int(_LIBC.syscall(ctypes.c_long(system_call), *converted))
    if result == -1:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def shared_memory(identifier: int) -> int:
    """Address at which a System V segment is attached, read only."""
    _LIBC.shmat.restype = ctypes.c_void_p
    address = _LIBC.shmat(identifier, None, 0o10000)
    if address is None or address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(address)


def new_mount_namespace() -> None:
    """A mount namespace in which the caller may mount, as root or in a user namespace of its own."""
    uid, gid = os.getuid(), os.getgid()
    if uid == 0:
        try:
            syscall("unshare", CLONE_NEWNS)
        except PermissionError:
            pass
        else:
            syscall("mount", None, "/", None, 0x4000 | 0x40000, None)  # MS_REC | MS_PRIVATE
            return
    syscall("unshare", CLONE_NEWNS | CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def right_without_effect(name: str, *arguments: Any, harmless: tuple[int, ...]) -> None:
    """Make a call that no right can make succeed, with which the kernel complains of the right before all else.

    Raises:
        OSError: the right is missing.
    """
    try:
        syscall(name, *arguments)
    except OSError as error:
        if error.errno not in harmless:
            raise


def in_child(action: Any) -> None:
    """Run *action* in a child; what it raises as an OSError is raised here."""
    child = os.fork()
    if child == 0:
        code = 0
        try:
            action()
        except OSError as error:
            code = error.errno or errno.EIO
        except BaseException:  # noqa: BLE001 - the child must end here whatever happens
            code = 255
        os._exit(code)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code:
        raise OSError(code if code > 0 else errno.EINTR, "in a child")
