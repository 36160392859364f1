"""What must work in every view that may write its workspace: a view in which nothing works denies everything."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile

from .table import Judge, Targets, Void, control


@control(writes=True)
def write_in_workspace(t: Targets) -> None:
    """Create, write, rename and remove a file in the workspace."""
    path = t.beneath("new")
    with open(path, "w") as file:
        file.write("text")
    os.truncate(path, 2)
    os.rename(path, t.beneath("renamed"))
    os.unlink(t.beneath("renamed"))


@control(writes=True)
def rename_across_directories(t: Targets) -> None:
    """Rename and link from one directory of the workspace to another."""
    os.mkdir(t.beneath("a"))
    os.mkdir(t.beneath("b"))
    with open(t.beneath("a/file"), "w") as file:
        file.write("text")
    os.rename(t.beneath("a/file"), t.beneath("b/file"))
    os.link(t.beneath("b/file"), t.beneath("a/link"))


@control()
def read_outside(t: Targets) -> None:
    """Read a file outside, where the others look: what cannot be seen cannot be changed, and would prove nothing."""
    with open(t.file) as file:
        assert file.read() == "before\n"


@control(writes=True)
def change_metadata_in_workspace(t: Targets) -> None:
    """Change mode and times of a file in the workspace."""
    os.chmod(t.beneath("file"), 0o700)
    os.utime(t.beneath("file"), (1, 1))


@control(writes=True)
def use_temporary_directory(t: Targets) -> None:
    """Make a temporary file where the environment says."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"text")


@control()
def run_child(t: Targets) -> None:
    """Run a program, and end one."""
    subprocess.run(["/bin/true"], check=True)
    child = subprocess.Popen(["/bin/sleep", "100"])
    child.send_signal(signal.SIGTERM)
    assert child.wait() == -signal.SIGTERM


@control()
def use_devices(t: Targets) -> None:
    """Write to /dev/null, read from /dev/urandom."""
    with open("/dev/null", "wb") as null, open("/dev/urandom", "rb") as random:
        null.write(random.read(16))


@control(Judge.RECEIVED)
def connect_to_allowed_port(t: Targets) -> None:
    """Connect to a port that the policy allows."""
    if not t.servers.get("allowed"):
        raise Void("the policy allows none")
    with socket.create_connection(("127.0.0.1", t.servers["allowed"]), 3) as connection:
        connection.sendall(t.token.encode())


@control()
def use_socket_pair(t: Targets) -> None:
    """Talk to a child over a pair of UNIX sockets."""
    ours, theirs = socket.socketpair()
    theirs.sendall(b"text")
    assert ours.recv(4) == b"text"
