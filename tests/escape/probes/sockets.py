"""UNIX sockets of processes outside."""

from __future__ import annotations

import array
import ctypes
import mmap
import os
import platform
import socket
import stat

from .calls import number, raw_syscall
from .table import Judge, Targets, Void, probe

_PATH = "mount namespace that hides them; Landlock from ABI 9; seccomp without AF_UNIX"
_ABSTRACT = "Landlock from ABI 6; network namespace; seccomp without AF_UNIX"
ENGINE_SOCKETS = (
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
)


def _send(address: str, token: str, kind: int) -> None:
    with socket.socket(socket.AF_UNIX, kind) as connection:
        connection.settimeout(3)
        connection.connect(address)
        connection.sendall(token.encode())


@probe(44, "ipc.unix", Judge.RECEIVED, _ABSTRACT)
def connect_abstract(t: Targets) -> None:
    """Connect to an abstract socket."""
    _send("\0" + t.servers["abstract_stream"], t.token, socket.SOCK_STREAM)


@probe(44, "ipc.unix", Judge.RECEIVED, _ABSTRACT)
def send_to_abstract(t: Targets) -> None:
    """Send a datagram to an abstract socket."""
    _send("\0" + t.servers["abstract_datagram"], t.token, socket.SOCK_DGRAM)


@probe(45, "ipc.unix", Judge.RECEIVED, _PATH)
def connect_path(t: Targets) -> None:
    """Connect to a socket with a path."""
    _send(t.servers["unix_stream"], t.token, socket.SOCK_STREAM)


@probe(45, "ipc.unix", Judge.RECEIVED, _PATH)
def connect_path_through_symlink(t: Targets) -> None:
    """Connect to it through a symbolic link in the workspace."""
    link = t.beneath("s")
    os.symlink(t.servers["unix_stream"], link)
    os.chdir(t.inside)
    _send("s", t.token, socket.SOCK_STREAM)


@probe(45, "ipc.unix", Judge.RECEIVED, _PATH)
def send_to_path(t: Targets) -> None:
    """Send a datagram to a socket with a path."""
    _send(t.servers["unix_datagram"], t.token, socket.SOCK_DGRAM)


@probe(45, "ipc.unix", Judge.CHANGED, _PATH)
def receive_descriptor(t: Targets) -> None:
    """Be given a file outside that is open for writing, through a socket with a path, and write."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(3)
        connection.connect(t.servers["descriptor_giver"])
        connection.sendall(t.file.encode() + b"\0")
        _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
        if not ancillary:
            raise Void("no descriptor came")
        descriptors = array.array("i")
        descriptors.frombytes(ancillary[0][2][:4])
        os.write(descriptors[0], t.token.encode())


@probe(46, "ipc.unix", Judge.SAID, _PATH, unprovable="an engine may listen for root and its group alone")
def ask_container_engine(t: Targets) -> None:
    """Ask the container engine of the host for its version."""
    for path in ENGINE_SOCKETS:
        try:
            if not stat.S_ISSOCK(os.stat(path).st_mode):
                continue
        except OSError:
            continue
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(3)
            connection.connect(path)
            connection.sendall(b"GET /version HTTP/1.0\r\n\r\n")
            if connection.recv(4096):
                return
    if t.servers.get("engine"):
        raise PermissionError(13, "no answer")
    raise Void("no container engine listens on this machine")


@probe(45, "ipc.unix", Judge.RECEIVED, f"{_PATH}; a filter that ends what calls as another architecture")
def connect_path_by_32_bit_call(t: Targets) -> None:
    """Make the socket by a system call of 32-bit programs."""
    if platform.machine() != "x86_64":
        raise Void("of x86-64 alone")
    _finish(_socket_by_interrupt(359), t)


@probe(
    45,
    "ipc.unix",
    Judge.RECEIVED,
    f"{_PATH}; a filter that ends what calls as another architecture",
    unprovable="a kernel may have no x32 calls",
)
def connect_path_by_x32_call(t: Targets) -> None:
    """Make the socket by a system call of programs with 32-bit pointers."""
    if platform.machine() != "x86_64":
        raise Void("of x86-64 alone")
    _finish(raw_syscall(0x4000_0000 | 41, socket.AF_UNIX, socket.SOCK_STREAM, 0), t)


@probe(45, "ipc.unix", Judge.RECEIVED, f"{_PATH}; a filter that looks at what the kernel looks at")
def connect_path_with_high_bits(t: Targets) -> None:
    """Make the socket with bits set that the kernel ignores."""
    _finish(raw_syscall(number("socket"), (1 << 32) | socket.AF_UNIX, socket.SOCK_STREAM, 0), t)


@probe(45, "ipc.unix", Judge.RECEIVED, _PATH)
def send_from_socket_pair(t: Targets) -> None:
    """Send a datagram to a socket with a path from one end of a pair."""
    ours, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.sendto(t.token.encode(), t.servers["unix_datagram"])


def _finish(descriptor: int, t: Targets) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, 0, descriptor) as connection:
        connection.settimeout(3)
        connection.connect(t.servers["unix_stream"])
        connection.sendall(t.token.encode())


def _socket_by_interrupt(system_call: int) -> int:
    """socket(2) through the gate of 32-bit programs."""
    code = bytes.fromhex("53 89f8 89f3 87ca cd80 5b c3")  # eax, ebx, ecx, edx from edi, esi, edx, ecx
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    result = int(kind(address)(system_call, socket.AF_UNIX, socket.SOCK_STREAM, 0))
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return result
