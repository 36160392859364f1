"""Names that are moved or linked over the edge of the workspace."""

from __future__ import annotations

import os

from .calls import AT_FDCWD, syscall
from .table import Judge, Targets, probe

_BY = "Landlock; read-only mounts"
RENAME_EXCHANGE, RENAME_WHITEOUT = 2, 4


@probe(3, "fs.write", Judge.CHANGED, _BY)
def rename_out(t: Targets) -> None:
    """Rename a file of the workspace to a name outside."""
    os.rename(t.beneath("file"), os.path.join(t.own, "new"))


@probe(3, "fs.write", Judge.CHANGED, _BY)
def rename_over(t: Targets) -> None:
    """Rename a file of the workspace over a file outside."""
    os.rename(t.beneath("file"), t.file)


@probe(3, "fs.write", Judge.CHANGED, _BY)
def rename_in(t: Targets) -> None:
    """Rename a file outside into the workspace."""
    os.rename(t.file, t.beneath("new"))


@probe(3, "fs.write", Judge.CHANGED, _BY)
def rename_directory_in(t: Targets) -> None:
    """Rename a directory outside into the workspace."""
    os.rename(os.path.join(t.own, "directory"), t.beneath("new"))


@probe(3, "fs.write", Judge.CHANGED, _BY)
def rename_exchange(t: Targets) -> None:
    """Exchange a file of the workspace for one outside."""
    syscall("renameat2", AT_FDCWD, t.beneath("file"), AT_FDCWD, t.file, RENAME_EXCHANGE)


@probe(3, "fs.write", Judge.CHANGED, _BY)
def rename_outside(t: Targets) -> None:
    """Rename one file outside to another."""
    os.rename(t.file, os.path.join(t.own, "other"))


@probe(4, "fs.write", Judge.CHANGED, _BY)
def link_in_and_write(t: Targets) -> None:
    """Make a hard link in the workspace to a file outside, and write through it."""
    os.link(t.file, t.beneath("linked"))
    with open(t.beneath("linked"), "w") as file:
        file.write(t.token)


@probe(5, "fs.write", Judge.CHANGED, _BY)
def link_out(t: Targets) -> None:
    """Make a hard link outside to a file of the workspace."""
    os.link(t.beneath("file"), os.path.join(t.own, "new"))


@probe(13, "fs.write", Judge.CHANGED, _BY)
def rename_writable_root(t: Targets) -> None:
    """Rename a root that may be written itself."""
    os.rename(os.path.join(t.own, "root"), os.path.join(t.own, "moved"))


@probe(13, "fs.write", Judge.CHANGED, _BY)
def remove_writable_root(t: Targets) -> None:
    """Remove a root that may be written itself."""
    os.rmdir(os.path.join(t.own, "root"))


@probe(25, None, Judge.SAID, allowed="a whiteout in the workspace is a name in the workspace")
def rename_whiteout(t: Targets) -> None:
    """Leave a whiteout in the workspace."""
    syscall("renameat2", AT_FDCWD, t.beneath("file"), AT_FDCWD, t.beneath("new"), RENAME_WHITEOUT)
