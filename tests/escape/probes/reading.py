"""Content that a policy hides, and what is known of it without reading."""

from __future__ import annotations

import os

from .calls import syscall
from .table import Judge, Targets, probe

_BY = "mount namespace; Landlock read roots"
_NAMES = "hidden is the content; that a name exists is not"


def _read(path: str) -> str:
    with open(path) as file:
        return file.read()


@probe(29, "fs.read", Judge.TOLD, _BY)
def read_secret(t: Targets) -> str:
    """Read a hidden file."""
    return _read(t.secret)


@probe(29, "fs.read", Judge.TOLD, _BY)
def read_secret_through_victim_root(t: Targets) -> str:
    """Read it through the root directory of a process outside."""
    return _read(f"/proc/{t.victim['pid']}/root{t.secret}")


@probe(29, "fs.read", Judge.TOLD, _BY)
def read_secret_through_symlink(t: Targets) -> str:
    """Read it through a symbolic link in the workspace."""
    link = t.beneath("link")
    os.symlink(t.secret, link)
    return _read(link)


@probe(29, "fs.read", Judge.TOLD, _BY)
def link_secret_in(t: Targets) -> str:
    """Make a hard link to it in the workspace, and read that."""
    os.link(t.secret, t.beneath("linked"))
    return _read(t.beneath("linked"))


@probe(29, "fs.read", Judge.TOLD, _BY)
def move_secret_in(t: Targets) -> str:
    """Rename its directory into the workspace, and read there."""
    os.rename(t.hidden, t.beneath("moved"))
    return _read(os.path.join(t.beneath("moved"), "secret"))


@probe(29, "fs.read", Judge.TOLD, _BY)
def copy_secret_by_kernel(t: Targets) -> str:
    """Have the kernel copy it (sendfile)."""
    source = os.open(t.secret, os.O_RDONLY)
    reading, writing = os.pipe()
    os.sendfile(writing, source, 0, 4096)
    return os.read(reading, 4096).decode()


@probe(29, "fs.read", Judge.TOLD, _BY)
def execute_secret(t: Targets) -> str:
    """Name it to a program that prints what it cannot understand."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.dup2(writing, 1)
        os.dup2(writing, 2)
        os.execv("/bin/sh", ["sh", "-c", 'while read -r line; do echo "$line"; done < "$0"', t.secret])
    os.close(writing)
    os.wait()
    text = os.read(reading, 4096).decode("utf-8", "replace")
    if t.secret in text:
        raise PermissionError(13, text)
    return text


@probe(30, None, Judge.SAID, allowed=_NAMES)
def stat_secret(t: Targets) -> None:
    """Ask for its size and times."""
    os.stat(t.secret)


@probe(30, None, Judge.SAID, allowed=_NAMES)
def access_secret(t: Targets) -> None:
    """Ask whether it could be read."""
    if not os.access(t.secret, os.F_OK):
        raise PermissionError(13, "no")


@probe(30, None, Judge.SAID, allowed=_NAMES)
def list_attributes_of_secret(t: Targets) -> None:
    """List its extended attributes."""
    os.listxattr(t.secret)


@probe(30, None, Judge.SAID, allowed=_NAMES)
def watch_secret(t: Targets) -> None:
    """Watch its directory for changes."""
    syscall("inotify_add_watch", syscall("inotify_init1", 0), t.hidden, 2)
