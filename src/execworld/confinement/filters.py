"""What the two seccomp filters of a cell deny, and why.

The cell and its programs are both under the part that states the policy, so that nothing can be had by asking the cell.
Programs alone are under the rest, because the cell itself needs some of it (it clones into control groups).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from execworld.confinement.dimensions import Situation, refuses_unix_sockets
from execworld.confinement.layers import Layer
from execworld.confinement.seccomp import Rule, any_bit, different, equal, not_null
from execworld.seams.policy import NetworkMode, SandboxMode

_EPERM, _EACCES, _ENOSYS = 1, 13, 38
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_SOCK_STREAM, _SOCK_SEQPACKET, _SOCK_TYPE = 1, 5, 0xF
_IPPROTO_TCP: Final = 6
_NETLINK_ROUTE: Final = 0
_MSG_FASTOPEN: Final = 0x2000_0000
_TCP_FASTOPEN_CONNECT, _TCP_ULP = 30, 31
_CLONE_NEWUSER: Final = 0x1000_0000
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

_RING: Final = ("io_uring_setup", "io_uring_enter", "io_uring_register")
"""Makes sockets and connects without the system calls that a filter sees."""

_NEVER_NEEDED: Final = (
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "ioperm",
    "iopl",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "mount",
    "mount_setattr",
    "move_mount",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pivot_root",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "umount2",
    "userfaultfd",
)

_TRACING: Final = (
    "kcmp",
    "pidfd_getfd",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
)
"""Debuggers and leak checkers need it; denied only where no ruleset keeps a program from tracing the cell."""


def policy_rules(situation: Situation) -> tuple[Rule, ...]:
    """For the cell and its programs."""
    rules: list[Rule] = []
    network = situation.policy.network.mode
    unix = not refuses_unix_sockets(situation)
    if not unix or network is not NetworkMode.ALL:
        # The two ends of a pair of datagram sockets can be connected again, to a socket of somebody else.
        stream = (different(1, _SOCK_STREAM, _SOCK_TYPE), different(1, _SOCK_SEQPACKET, _SOCK_TYPE))
        if not unix:
            rules.append(Rule("socketpair", _EACCES, stream))
        if network is not NetworkMode.ALL:
            rules.append(Rule("socketpair", _EACCES, (different(0, _AF_UNIX),)))
        rules += [Rule(name, _EPERM) for name in _RING]
    local = [_AF_UNIX] if unix else []
    if network is NetworkMode.PORTS:
        rules += _tcp_only(local)
    elif network is NetworkMode.NONE and Layer.NETWORK_NAMESPACE in situation.layers:
        rules += _internet_families(local)
    elif network is NetworkMode.NONE:
        rules.append(_families(local))
    elif not unix:
        rules.append(Rule("socket", _EACCES, (equal(0, _AF_UNIX),)))
    return tuple(rules)


def program_rules(situation: Situation) -> tuple[Rule, ...]:
    """For programs alone, beside those of the policy. Never empty, because the filter also brings no_new_privs."""
    rules = [
        # A limit of CPU time set from outside kills, whatever keeps signals away.
        Rule("prlimit64", _EPERM, (different(0, 0), not_null(2))),
        Rule("ioctl", _EPERM, (equal(1, _TIOCSTI),)),
        Rule("ioctl", _EPERM, (equal(1, _TIOCLINUX),)),
    ]
    if situation.policy.mode is SandboxMode.FULL_ACCESS and not situation.policy.hidden:
        return tuple(rules)
    rules += [
        # A new user namespace gives its maker capabilities again, and with them most of the kernel to attack.
        Rule("unshare", _EPERM, (any_bit(0, _CLONE_NEWUSER),)),
        Rule("clone", _EPERM, (any_bit(0, _CLONE_NEWUSER),)),
        # Its flags lie in memory, which a filter cannot see; C libraries then use clone.
        Rule("clone3", _ENOSYS),
        *(Rule(name, _EPERM) for name in (*_NEVER_NEEDED, *_RING)),
    ]
    if Layer.INNER_LANDLOCK not in situation.layers:
        rules += [Rule(name, _EPERM) for name in _TRACING]
    return tuple(rules)


def _families(allowed: Sequence[int]) -> Rule:
    """Deny sockets of all other families."""
    return Rule("socket", _EACCES, tuple(different(0, family) for family in allowed))


def _internet_families(local: Sequence[int]) -> list[Rule]:
    """Programs list the network interfaces by NETLINK_ROUTE, and cannot change anything without a capability."""
    return [
        _families([*local, _AF_INET, _AF_INET6, _AF_NETLINK]),
        Rule("socket", _EACCES, (equal(0, _AF_NETLINK), different(2, _NETLINK_ROUTE))),
    ]


def _tcp_only(local: Sequence[int]) -> list[Rule]:
    """Landlock governs ports of TCP proper; everything that is not quite TCP goes past it."""
    rules = _internet_families(local)
    for family in (_AF_INET, _AF_INET6):
        rules += [
            Rule("socket", _EACCES, (equal(0, family), different(1, _SOCK_STREAM, _SOCK_TYPE))),
            Rule("socket", _EACCES, (equal(0, family), different(2, 0), different(2, _IPPROTO_TCP))),
        ]
    rules += [
        Rule("sendto", _EACCES, (any_bit(3, _MSG_FASTOPEN),)),
        Rule("sendmsg", _EACCES, (any_bit(2, _MSG_FASTOPEN),)),
        Rule("sendmmsg", _EACCES, (any_bit(3, _MSG_FASTOPEN),)),
        Rule("setsockopt", _EACCES, (equal(1, _IPPROTO_TCP), equal(2, _TCP_FASTOPEN_CONNECT))),
        # Turns a TCP socket into one of another protocol, which connects behind Landlock's back.
        Rule("setsockopt", _EACCES, (equal(1, _IPPROTO_TCP), equal(2, _TCP_ULP))),
        Rule("listen", _EACCES),  # binds a port by itself
    ]
    return rules
