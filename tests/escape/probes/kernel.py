"""Privileges and large parts of the kernel."""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import subprocess
import sys

from .calls import AT_FDCWD, right_without_effect, syscall
from .handles import PathBeneath, RulesetAttributes
from .table import Judge, Targets, Twin, Void, probe

_RIGHTS = "no capabilities; seccomp"
EPERM, EINVAL, EFAULT, ENOEXEC, ENOENT, ENOSYS = 1, 22, 14, 8, 2, 38


@probe(38, None, Judge.SAID, "no_new_privs; no-setuid mounts")
def run_setuid_program(t: Targets) -> None:
    """Become root through a program with the set-user-id bit."""
    if os.getuid() == 0:
        raise Void("root already")
    if not t.setuid_program:
        raise Void("no such program could be made")
    result = subprocess.run([t.setuid_program, "-u"], stdout=subprocess.PIPE, check=False)
    if result.stdout.strip() != b"0":
        raise PermissionError(EPERM, result.stdout.decode())


@probe(
    39, None, Judge.SAID, allowed="what may be read may be executed: EXECUTE is no boundary of this project"
)
def execute_memory(t: Targets) -> None:
    """Execute a program that is in memory only."""
    descriptor = os.memfd_create("program")
    with open("/bin/true", "rb") as source:
        os.write(descriptor, source.read())
    if subprocess.run([f"/proc/self/fd/{descriptor}"], pass_fds=[descriptor], check=False).returncode:
        raise PermissionError(EPERM, "it did not run")


@probe(39, None, Judge.SAID, allowed="building and running programs is what a workspace is for")
def execute_in_workspace(t: Targets) -> None:
    """Execute a program that was written to the workspace."""
    path = t.beneath("program")
    with open(path, "w") as file:
        file.write("#!/bin/sh\nexit 0\n")
    os.chmod(path, 0o755)
    subprocess.run([path], check=True)


@probe(41, None, Judge.SAID, _RIGHTS, twin=Twin.NAMESPACE, privileged=True)
def make_bpf_map(t: Targets) -> None:
    """Make a map for programs in the kernel."""
    attributes = ctypes.create_string_buffer(struct.pack("IIII", 2, 4, 8, 1), 128)
    syscall("bpf", 0, attributes, 128)


@probe(41, None, Judge.SAID, _RIGHTS, twin=Twin.NAMESPACE, privileged=True)
def watch_file_system(t: Targets) -> None:
    """Ask to be asked before files are opened (fanotify)."""
    syscall("fanotify_init", 4, os.O_RDONLY)


@probe(41, None, Judge.SAID, _RIGHTS, privileged=True, unprovable="a kernel may have no modules")
def load_module(t: Targets) -> None:
    """Load a module into the kernel; the call is made so that it cannot succeed."""
    right_without_effect("init_module", None, 1, None, harmless=(EFAULT, ENOEXEC, EINVAL))


@probe(41, None, Judge.SAID, _RIGHTS, privileged=True)
def reboot(t: Targets) -> None:
    """Restart the machine; the call is made so that it cannot succeed."""
    right_without_effect("reboot", 0, 0, 0, None, harmless=(EINVAL,))


@probe(41, None, Judge.SAID, _RIGHTS, privileged=True, unprovable="a kernel may have no swap")
def use_swap(t: Targets) -> None:
    """Swap to a file; the call is made so that it cannot succeed."""
    right_without_effect("swapon", t.beneath("missing"), 0, harmless=(ENOENT,))


@probe(41, None, Judge.SAID, _RIGHTS, privileged=True)
def set_clock(t: Targets) -> None:
    """Set the clock; to its present state."""
    state = ctypes.create_string_buffer(256)
    syscall("adjtimex", state)
    status = struct.unpack_from("i", state, 40)[0]
    change = ctypes.create_string_buffer(256)
    struct.pack_into("I", change, 0, 0x10)  # ADJ_STATUS
    struct.pack_into("i", change, 40, status)
    syscall("adjtimex", change)


@probe(
    43, None, Judge.SAID, allowed="a program may confine itself further; only its own tools run out of layers"
)
def add_layers(t: Targets) -> None:
    """Use up all the Landlock layers that are left, and still be confined."""
    attributes = RulesetAttributes(1 << 7, 0, 0)
    syscall("prctl", 38, 1, 0, 0, 0)
    ruleset = syscall("landlock_create_ruleset", attributes, 8, 0)
    for _ in range(12):
        syscall("landlock_restrict_self", ruleset, 0)


@probe(43, "fs.write", Judge.CHANGED, "Landlock; read-only mounts")
def write_under_own_layer(t: Targets) -> None:
    """Add a Landlock layer that allows everything, and write outside."""
    attributes = RulesetAttributes(2, 0, 0)
    syscall("prctl", 38, 1, 0, 0, 0)
    ruleset = syscall("landlock_create_ruleset", attributes, 8, 0)
    rule = PathBeneath(2, os.open("/", os.O_PATH))
    syscall("landlock_add_rule", ruleset, 1, rule, 0)
    syscall("landlock_restrict_self", ruleset, 0)
    os.write(os.open(t.file, os.O_WRONLY), t.token.encode())


class Ring:
    """A ring of io_uring(7), for one request at a time."""

    def __init__(self) -> None:
        parameters = (ctypes.c_uint32 * 30)()
        self.descriptor = syscall("io_uring_setup", 4, parameters)
        values = list(parameters)
        submission, completion = values[10:20], values[20:30]
        self._tail, self._mask, self._array = submission[1], submission[2], submission[6]
        self._head, self._completed_tail, self._entries = completion[0], completion[1], completion[5]
        self._rings = mmap.mmap(self.descriptor, max(self._array + 4 * 4, self._entries + 8 * 16), offset=0)
        self._requests = mmap.mmap(self.descriptor, 4 * 64, offset=0x10000000)

    def run(self, opcode: int, descriptor: int, offset: int, address: int, length: int, flags: int) -> int:
        """Result of one request.

        Raises:
            OSError: it failed.
        """
        (tail,) = struct.unpack_from("I", self._rings, self._tail)
        (mask,) = struct.unpack_from("I", self._rings, self._mask)
        index = tail & mask
        request = struct.pack("<BBHiQQII", opcode, 0, 0, descriptor, offset, address, length, flags)
        self._requests[index * 64 : index * 64 + 64] = request.ljust(64, b"\0")
        struct.pack_into("I", self._rings, self._array + 4 * index, index)
        struct.pack_into("I", self._rings, self._tail, tail + 1)
        syscall("io_uring_enter", self.descriptor, 1, 1, 1, None, 0)
        (head,) = struct.unpack_from("I", self._rings, self._head)
        (result,) = struct.unpack_from("i", self._rings, self._entries + 16 * (head & mask) + 8)
        struct.pack_into("I", self._rings, self._head, head + 1)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return int(result)


def ring() -> Ring:
    """A ring, or that the kernel of the machine has none at all."""
    try:
        with open("/proc/sys/kernel/io_uring_disabled") as file:
            disabled = file.read().strip() == "2"
    except OSError:
        disabled = False
    if disabled:
        raise Void("io_uring is disabled on this machine")
    if sys.byteorder != "little":
        raise Void("written for little-endian machines")
    return Ring()


@probe(21, "fs.write", Judge.CHANGED, "Landlock; read-only mounts; seccomp")
def create_file_by_ring(t: Targets) -> None:
    """Create a file with io_uring(7)."""
    path = ctypes.create_string_buffer(os.fsencode(os.path.join(t.own, "new")))
    ring().run(18, AT_FDCWD, 0, ctypes.addressof(path), 0o600, os.O_WRONLY | os.O_CREAT)
