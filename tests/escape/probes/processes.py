"""Memory, environment and other belongings of a process outside."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable

from .calls import shared_memory, syscall
from .table import Judge, Targets, Void, probe

_BY = "Landlock; pid namespace"
_ROOT_TOO = "Landlock and no capabilities; pid namespace"


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_uint64), ("length", ctypes.c_uint64)]


def _proc(t: Targets, name: str) -> str:
    with open(f"/proc/{t.victim['pid']}/{name}", "rb") as file:
        return file.read().decode("utf-8", "replace")


@probe(31, "ipc.trace", Judge.TOLD, _ROOT_TOO)
def read_environment(t: Targets) -> str:
    """Read the environment of a process outside."""
    return _proc(t, "environ")


@probe(31, "ipc.trace", Judge.TOLD, _ROOT_TOO)
def read_memory_map(t: Targets) -> str:
    """Read which files a process outside has mapped."""
    return _proc(t, "maps")


@probe(31, "ipc.trace", Judge.TOLD, _ROOT_TOO)
def list_descriptors(t: Targets) -> str:
    """List the open files of a process outside."""
    directory = f"/proc/{t.victim['pid']}/fd"
    return " ".join(os.readlink(os.path.join(directory, name)) for name in os.listdir(directory))


@probe(31, "ipc.trace", Judge.TOLD, _BY)
def read_open_file(t: Targets) -> str:
    """Read a file that a process outside has open, and that has no name any more."""
    return _proc(t, f"fd/{t.victim['descriptor']}")


@probe(32, "proc.visibility", Judge.TOLD, "pid namespace with a /proc of its own")
def read_command_line(t: Targets) -> str:
    """Read the command line of a process outside."""
    return _proc(t, "cmdline")


@probe(32, "proc.visibility", Judge.TOLD, "pid namespace with a /proc of its own")
def read_status(t: Targets) -> str:
    """Read the status of a process outside."""
    return _proc(t, "status")


@probe(32, "proc.visibility", Judge.TOLD, "pid namespace with a /proc of its own")
def list_processes(t: Targets) -> str:
    """List the names of all processes."""
    names = ""
    for number in os.listdir("/proc"):
        if number.isdigit():
            try:
                with open(f"/proc/{number}/comm") as file:
                    names += file.read()
            except OSError:
                continue
    return names


@probe(35, "ipc.trace", Judge.SAID, _BY, sleeper=True)
def attach_tracer(t: Targets) -> None:
    """Attach to a process outside with ptrace(2)."""
    syscall("ptrace", 0x4206, t.sleeper, 0, 0)  # PTRACE_SEIZE


@probe(35, "ipc.trace", Judge.TOLD, _BY)
def read_memory(t: Targets) -> str:
    """Read memory of a process outside with process_vm_readv(2)."""
    length = int(t.victim["length"])
    buffer = ctypes.create_string_buffer(length)
    ours, theirs = _Vector(ctypes.addressof(buffer), length), _Vector(int(t.victim["secret_address"]), length)
    syscall("process_vm_readv", t.victim["pid"], ours, 1, theirs, 1, 0)
    return buffer.raw.decode("utf-8", "replace")


@probe(35, "ipc.trace", Judge.MEMORY, _BY)
def write_memory(t: Targets) -> None:
    """Write memory of a process outside with process_vm_writev(2)."""
    data = ctypes.create_string_buffer(t.token.encode())
    ours = _Vector(ctypes.addressof(data), len(t.token))
    theirs = _Vector(int(t.victim["slots"][t.token]), len(t.token))
    syscall("process_vm_writev", t.victim["pid"], ours, 1, theirs, 1, 0)


@probe(23, "ipc.trace", Judge.MEMORY, _BY)
def write_memory_file(t: Targets) -> None:
    """Write memory of a process outside through /proc/PID/mem."""
    descriptor = os.open(f"/proc/{t.victim['pid']}/mem", os.O_RDWR)
    os.pwrite(descriptor, t.token.encode(), int(t.victim["slots"][t.token]))


@probe(35, "ipc.trace", Judge.TOLD, _BY)
def take_descriptor(t: Targets) -> str:
    """Take an open file from a process outside with pidfd_getfd(2)."""
    process = syscall("pidfd_open", t.victim["pid"], 0)
    descriptor = syscall("pidfd_getfd", process, int(t.victim["descriptor"]), 0)
    return os.pread(descriptor, 4096, 0).decode()


@probe(
    42,
    None,
    Judge.TOLD,
    allowed="System V IPC is no dimension of a policy; where an ipc namespace can be had, it is not shared",
)
def read_shared_memory_segment(t: Targets) -> str:
    """Read a shared memory segment (System V) of a process outside."""
    if "segment_key" not in t.victim:
        raise Void("the kernel has no System V IPC")
    identifier = syscall("shmget", int(t.victim["segment_key"]), 4096, 0)
    return ctypes.string_at(shared_memory(identifier), 256).split(b"\0")[0].decode()


def _ancestors() -> list[int]:
    """Its parent, and that one's, as far as they can be seen: in a view the last ones are the cell itself."""
    found: list[int] = []
    number = os.getppid()
    while number > 0 and len(found) < 16:
        found.append(number)
        with open(f"/proc/{number}/stat") as file:
            number = int(file.read().rpartition(")")[2].split()[1])
    return [number for number in found if number != os.getppid()]


def _each_ancestor(action: Callable[[int], object]) -> None:
    """Try *action* on each; one is enough.

    Raises:
        OSError: none could be had.
    """
    last: OSError = ProcessLookupError(3, "no ancestors are to be seen")
    for number in _ancestors():
        try:
            action(number)
        except OSError as error:
            last = error
        else:
            return
    raise last


@probe(
    55, "ipc.trace", Judge.SAID, "Landlock (a further layer for programs) and what is not dumpable; seccomp"
)
def trace_cell(t: Targets) -> None:
    """Attach to the processes that run and supervise the programs of the view."""
    _each_ancestor(lambda number: syscall("ptrace", 0x4206, number, 0, 0))


@probe(
    55, "ipc.trace", Judge.SAID, "Landlock (a further layer for programs) and what is not dumpable; seccomp"
)
def take_descriptor_of_cell(t: Targets) -> None:
    """Take the stream over which the cell reports."""
    _each_ancestor(lambda number: syscall("pidfd_getfd", syscall("pidfd_open", number, 0), 0, 0))


@probe(55, "ipc.trace", Judge.SAID, "Landlock (a further layer for programs) and what is not dumpable")
def open_descriptors_of_cell(t: Targets) -> None:
    """List the open files of the processes that run and supervise the programs of the view."""
    _each_ancestor(lambda number: os.readlink(f"/proc/{number}/fd/0"))


@probe(
    55, "ipc.trace", Judge.SAID, "Landlock (a further layer for programs) and what is not dumpable; seccomp"
)
def open_memory_of_cell(t: Targets) -> None:
    """Open their memory."""
    _each_ancestor(lambda number: open(f"/proc/{number}/mem", "rb").close())
