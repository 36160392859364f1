"""Other ways to the same place."""

from __future__ import annotations

import os
import time

from .table import Judge, Targets, probe

_BY = "Landlock; read-only mounts"
RACE_S = 0.4


def _append(path: str, token: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    os.write(descriptor, token.encode())
    os.close(descriptor)


@probe(6, "fs.write", Judge.CHANGED, _BY)
def through_proc_root(t: Targets) -> None:
    """Write through /proc/self/root."""
    _append(f"/proc/self/root{t.file}", t.token)


@probe(6, "fs.write", Judge.CHANGED, _BY)
def through_proc_cwd(t: Targets) -> None:
    """Write through /proc/self/cwd and as many `..` as it takes."""
    os.chdir(t.inside)
    _append("/proc/self/cwd/" + "../" * t.inside.count("/") + t.file, t.token)


@probe(6, "fs.write", Judge.CHANGED, _BY)
def through_symlink(t: Targets) -> None:
    """Write through a symbolic link in the workspace."""
    link = t.beneath("link")
    os.symlink(t.file, link)
    _append(link, t.token)


@probe(6, "fs.write", Judge.CHANGED, _BY)
def through_directory_symlink(t: Targets) -> None:
    """Create a file below a symbolic link of the workspace."""
    link = t.beneath("link")
    os.symlink(t.own, link)
    os.close(os.open(os.path.join(link, "new"), os.O_WRONLY | os.O_CREAT))


@probe(6, "fs.write", Judge.CHANGED, _BY)
def through_victim_root(t: Targets) -> None:
    """Write through the root directory of a process outside."""
    _append(f"/proc/{t.victim['pid']}/root{t.file}", t.token)


@probe(7, "fs.write", Judge.CHANGED, _BY)
def through_swapped_symlink(t: Targets) -> str:
    """Write below a name that turns from a directory into a link to the outside and back, for 0.4 s."""
    name, directory, link = t.beneath("swap"), t.beneath("as-directory"), t.beneath("as-link")
    os.mkdir(directory)
    os.symlink(t.own, link)
    os.rename(directory, name)
    swapper = os.fork()
    if swapper == 0:
        while True:
            os.rename(name, directory)
            os.rename(link, name)
            os.rename(name, link)
            os.rename(directory, name)
    end, attempts, denied = time.monotonic() + RACE_S, 0, 0
    try:
        while time.monotonic() < end:
            attempts += 1
            try:
                os.close(os.open(os.path.join(name, "hit"), os.O_WRONLY | os.O_CREAT, 0o600))
            except FileNotFoundError:
                pass
            except PermissionError:
                denied += 1
            except OSError as error:
                if error.errno != 30:
                    raise
                denied += 1
    finally:
        os.kill(swapper, 9)
        os.waitpid(swapper, 0)
    hits = os.path.lexists(os.path.join(t.own, "hit"))
    if denied and not hits:
        raise PermissionError(13, f"{denied} of {attempts}")
    return f"{attempts} attempts"


@probe(8, "fs.write", Judge.CHANGED, _BY)
def reopen_path_descriptor(t: Targets) -> None:
    """Open a path without rights (O_PATH) and open it again through /proc/self/fd."""
    descriptor = os.open(t.file, os.O_PATH)
    _append(f"/proc/self/fd/{descriptor}", t.token)


@probe(8, "fs.write", Judge.CHANGED, _BY)
def reopen_read_descriptor(t: Targets) -> None:
    """Open a file for reading and open it again for writing through /proc/self/fd."""
    descriptor = os.open(t.file, os.O_RDONLY)
    _append(f"/proc/self/fd/{descriptor}", t.token)
