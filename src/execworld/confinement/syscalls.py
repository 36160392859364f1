"""Numbers of system calls that the filters name, for each architecture (asm/unistd.h)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from execworld.seams.values import record


@record
class Architecture:
    """Attributes:
    audit: AUDIT_ARCH_* (linux/audit.h).
    foreign_bit: Set in the numbers of a second interface under the same architecture (x32); 0 for none.
    """

    audit: int
    numbers: Mapping[str, int]
    foreign_bit: int = 0


# Since 5.1 a new system call has the same number everywhere.
_COMMON: Final = {
    "clone3": 435,
    "fsconfig": 431,
    "fsmount": 432,
    "fsopen": 430,
    "fspick": 433,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "io_uring_setup": 425,
    "mount_setattr": 442,
    "move_mount": 429,
    "open_tree": 428,
    "open_tree_attr": 467,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "quotactl_fd": 443,
}

ARCHITECTURES: Final[Mapping[str, Architecture]] = {
    "x86_64": Architecture(
        audit=0xC000_003E,
        foreign_bit=0x4000_0000,
        numbers=_COMMON
        | {
            "acct": 163,
            "add_key": 248,
            "adjtimex": 159,
            "bpf": 321,
            "chroot": 161,
            "clock_adjtime": 305,
            "clock_settime": 227,
            "clone": 56,
            "delete_module": 176,
            "finit_module": 313,
            "init_module": 175,
            "ioctl": 16,
            "iopl": 172,
            "ioperm": 173,
            "kcmp": 312,
            "kexec_file_load": 320,
            "kexec_load": 246,
            "keyctl": 250,
            "listen": 50,
            "mount": 165,
            "open_by_handle_at": 304,
            "perf_event_open": 298,
            "pivot_root": 155,
            "prlimit64": 302,
            "process_vm_readv": 310,
            "process_vm_writev": 311,
            "ptrace": 101,
            "quotactl": 179,
            "reboot": 169,
            "request_key": 249,
            "sendmmsg": 307,
            "sendmsg": 46,
            "sendto": 44,
            "setdomainname": 171,
            "sethostname": 170,
            "setns": 308,
            "setsockopt": 54,
            "settimeofday": 164,
            "socket": 41,
            "socketpair": 53,
            "swapoff": 168,
            "swapon": 167,
            "umount2": 166,
            "unshare": 272,
            "userfaultfd": 323,
        },
    ),
    "aarch64": Architecture(
        audit=0xC000_00B7,
        numbers=_COMMON
        | {
            "acct": 89,
            "add_key": 217,
            "adjtimex": 171,
            "bpf": 280,
            "chroot": 51,
            "clock_adjtime": 266,
            "clock_settime": 112,
            "clone": 220,
            "delete_module": 106,
            "finit_module": 273,
            "init_module": 105,
            "ioctl": 29,
            "kcmp": 272,
            "kexec_file_load": 294,
            "kexec_load": 104,
            "keyctl": 219,
            "listen": 201,
            "mount": 40,
            "open_by_handle_at": 265,
            "perf_event_open": 241,
            "pivot_root": 41,
            "prlimit64": 261,
            "process_vm_readv": 270,
            "process_vm_writev": 271,
            "ptrace": 117,
            "quotactl": 60,
            "reboot": 142,
            "request_key": 218,
            "sendmmsg": 269,
            "sendmsg": 211,
            "sendto": 206,
            "setdomainname": 162,
            "sethostname": 161,
            "setns": 268,
            "setsockopt": 208,
            "settimeofday": 170,
            "socket": 198,
            "socketpair": 199,
            "swapoff": 225,
            "swapon": 224,
            "umount2": 39,
            "unshare": 97,
            "userfaultfd": 282,
        },
    ),
}

COMPATIBLE: Final[Mapping[str, tuple[Architecture, ...]]] = {
    "x86_64": (Architecture(audit=0x4000_0003, numbers=_COMMON | {"mount": 21, "unshare": 310}),),
    "aarch64": (Architecture(audit=0x4000_0028, numbers=_COMMON | {"mount": 21, "unshare": 337}),),
}
"""What else the kernel runs programs of: i386, and 32-bit ARM. Only what the filters for all of them name."""

ONLY_ON_X86: Final = frozenset({"iopl", "ioperm"})
