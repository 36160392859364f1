"""UNIX sockets of processes outside."""

from __future__ import annotations

import array
import os
import socket
import stat

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


@probe(46, "ipc.unix", Judge.SAID, _PATH)
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
