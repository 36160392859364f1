"""Contents and names outside of what may be written."""

from __future__ import annotations

import os
import resource
import signal
import socket
import stat

from .calls import AT_FDCWD, syscall
from .table import Judge, Targets, Void, probe

_BY = "Landlock; read-only mounts"
_TRUNCATION = "Landlock from ABI 3; read-only mounts"


@probe(1, "fs.write", Judge.CHANGED, _BY)
def open_for_writing(t: Targets) -> None:
    """Open a file for writing, and write."""
    descriptor = os.open(t.file, os.O_WRONLY)
    os.write(descriptor, t.token.encode())


@probe(1, "fs.write", Judge.CHANGED, _BY)
def create_file(t: Targets) -> None:
    """Create a file."""
    os.close(os.open(os.path.join(t.own, "new"), os.O_WRONLY | os.O_CREAT | os.O_EXCL))


@probe(1, "fs.write", Judge.CHANGED, _BY)
def unlink(t: Targets) -> None:
    """Remove a file."""
    os.unlink(t.file)


@probe(1, "fs.write", Judge.CHANGED, _BY)
def mkdir(t: Targets) -> None:
    """Make a directory."""
    os.mkdir(os.path.join(t.own, "new"))


@probe(1, "fs.write", Judge.CHANGED, _BY)
def rmdir(t: Targets) -> None:
    """Remove a directory."""
    os.rmdir(os.path.join(t.own, "directory"))


@probe(1, "fs.write", Judge.CHANGED, _BY)
def symlink(t: Targets) -> None:
    """Make a symbolic link."""
    os.symlink("/etc", os.path.join(t.own, "new"))


@probe(1, "fs.write", Judge.CHANGED, _BY)
def mkfifo(t: Targets) -> None:
    """Make a FIFO."""
    os.mkfifo(os.path.join(t.own, "new"))


@probe(1, "fs.write", Judge.CHANGED, _BY)
def bind_socket_path(t: Targets) -> None:
    """Bind a UNIX socket to a path."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.join(t.own, "new"))


@probe(2, "fs.write", Judge.CHANGED, _TRUNCATION)
def truncate_path(t: Targets) -> None:
    """Empty a file with truncate(2)."""
    syscall("truncate", t.file, 0)


@probe(2, "fs.write", Judge.CHANGED, _TRUNCATION)
def truncate_by_open(t: Targets) -> None:
    """Empty a file by opening it for reading with O_TRUNC."""
    os.close(os.open(t.file, os.O_RDONLY | os.O_TRUNC))


@probe(12, "fs.write", Judge.CHANGED, _BY)
def link_nameless_file_out(t: Targets) -> None:
    """Make a nameless file in the workspace and link it to a name outside."""
    try:
        descriptor = os.open(t.inside, os.O_TMPFILE | os.O_RDWR, 0o600)
    except OSError as error:
        if error.errno == 95:
            raise Void("the file system has no nameless files") from None
        raise
    new = os.path.join(t.own, "new")
    syscall("linkat", AT_FDCWD, f"/proc/self/fd/{descriptor}", AT_FDCWD, new, 0x400)


@probe(24, "fs.write", Judge.CHANGED, _BY)
def dump_core(t: Targets) -> None:
    """Die with a core dump in a directory outside."""
    with open("/proc/sys/kernel/core_pattern") as file:
        pattern = file.read().strip()
    if pattern.startswith(("|", "/")) or not pattern:
        raise Void(f"core dumps go elsewhere: {pattern!r}")
    child = os.fork()
    if child == 0:
        os.chdir(t.own)
        most = resource.getrlimit(resource.RLIMIT_CORE)[1]
        resource.setrlimit(resource.RLIMIT_CORE, (most, most))
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()
    _, status = os.waitpid(child, 0)
    if not os.WCOREDUMP(status):
        raise PermissionError(13, "no core was written")


@probe(40, "fs.write", Judge.CHANGED, _BY)
def write_as_daemon(t: Targets) -> None:
    """Leave the session, fork twice, and write."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            code = 0
            try:
                open_for_writing(t)
            except OSError as error:
                code = error.errno or 5
            os.write(writing, bytes([code]))
        os._exit(0)
    os.close(writing)
    answer = os.read(reading, 1)
    if answer != b"\0":
        raise OSError(answer[0] if answer else 5, "in the daemon")


@probe(23, "fs.write", Judge.CHANGED, _BY + "; a private shm")
def write_shared_memory_file(t: Targets) -> None:
    """Write a file in the shared memory file system of another process."""
    path = str(t.victim.get("shm_file", ""))
    if not path:
        raise Void("there is no shared memory file system")
    os.close(os.open(path, os.O_WRONLY | os.O_TRUNC))


@probe(1, "fs.write", Judge.CHANGED, "Landlock; read-only mounts; no CAP_MKNOD")
def make_socket_node(t: Targets) -> None:
    """Make a socket with mknodat(2)."""
    syscall("mknodat", AT_FDCWD, os.path.join(t.own, "new"), stat.S_IFSOCK | 0o666, 0)
