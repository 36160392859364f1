"""Descriptors and file handles that were made elsewhere."""

from __future__ import annotations

import ctypes
import os

from .calls import AT_FDCWD, syscall
from .table import Judge, Targets, Twin, Void, probe

_CLOSED = "descriptors are closed before a cell is made"


class _Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]


class PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr."""

    _pack_ = 1
    _fields_ = [("access", ctypes.c_uint64), ("parent", ctypes.c_int32)]


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr as of ABI 6; a kernel that knows less accepts zeros."""

    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


def file_handle(path: str) -> tuple[str, int]:
    """Handle of *path* in hexadecimal digits, and its type.

    Raises:
        OSError: the file system has none.
    """
    handle, mount = _Handle(128), ctypes.c_int()
    syscall("name_to_handle_at", AT_FDCWD, path, handle, mount, 0)
    return bytes(handle.data)[: handle.size].hex(), handle.kind


def _open_handle(t: Targets, flags: int) -> int:
    if not t.handle:
        raise Void("the file system has no file handles")
    data = bytes.fromhex(t.handle)
    handle = _Handle(len(data), t.handle_type, (ctypes.c_ubyte * 128)(*data))
    mount = os.open(t.workspace, os.O_RDONLY)
    return syscall("open_by_handle_at", mount, handle, flags)


@probe(9, "fs.write", Judge.CHANGED, _CLOSED, twin=Twin.DIRECT, inherits="write")
def write_inherited_descriptor(t: Targets) -> None:
    """Write to a descriptor that the maker of the view had open."""
    os.write(t.descriptor, t.token.encode())


@probe(10, "fs.write", Judge.CHANGED, f"{_CLOSED}; Landlock", twin=Twin.DIRECT, inherits="directory")
def create_below_inherited_directory(t: Targets) -> None:
    """Create a file below a directory that the maker of the view had open."""
    os.close(os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=t.descriptor))


@probe(10, "fs.write", Judge.CHANGED, f"{_CLOSED}; Landlock", twin=Twin.DIRECT, inherits="directory")
def change_through_inherited_directory(t: Targets) -> None:
    """Open a file for writing below an inherited directory, and through /proc/self/fd."""
    os.write(os.open(f"/proc/self/fd/{t.descriptor}/file", os.O_WRONLY), t.token.encode())


@probe(10, "fs.write", Judge.CHANGED, f"{_CLOSED}; Landlock", twin=Twin.DIRECT, inherits="read")
def reopen_inherited_descriptor(t: Targets) -> None:
    """Open an inherited descriptor again for writing."""
    os.write(os.open(f"/proc/self/fd/{t.descriptor}", os.O_WRONLY), t.token.encode())


@probe(
    11, "fs.write", Judge.CHANGED, f"{_CLOSED}; Landlock", twin=Twin.DIRECT, inherits="read", privileged=True
)
def link_inherited_descriptor(t: Targets) -> None:
    """Link an inherited descriptor into the workspace (AT_EMPTY_PATH) and write."""
    syscall("linkat", t.descriptor, "", AT_FDCWD, t.beneath("linked"), 0x1000)
    with open(t.beneath("linked"), "w") as file:
        file.write(t.token)


@probe(15, None, Judge.SAID, _CLOSED, twin=Twin.DIRECT, inherits="ruleset")
def widen_inherited_ruleset(t: Targets) -> None:
    """Add a rule to a Landlock ruleset that the maker of the view had open, or that the view left open."""
    parent = os.open(t.inside, os.O_PATH)
    rule = PathBeneath(2, parent)
    last: OSError | None = None
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            syscall("landlock_add_rule", int(name), 1, rule, 0)
        except OSError as error:
            last = error
        else:
            return
    raise last or OSError(9, "no descriptor")


@probe(20, "fs.write", Judge.CHANGED, "no CAP_DAC_READ_SEARCH; seccomp; Landlock", privileged=True)
def write_by_handle(t: Targets) -> None:
    """Open a file outside for writing by its file handle."""
    os.write(_open_handle(t, os.O_WRONLY), t.token.encode())


@probe(20, "fs.read", Judge.TOLD, "no CAP_DAC_READ_SEARCH; seccomp", privileged=True)
def read_secret_by_handle(t: Targets) -> str:
    """Open a hidden file by its file handle."""
    return os.read(_open_handle(t, os.O_RDONLY), 4096).decode()
