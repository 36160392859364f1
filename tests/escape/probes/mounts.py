"""Mounts, roots and namespaces."""

from __future__ import annotations

import ctypes
import os

from .calls import AT_FDCWD, CLONE_NEWNS, CLONE_NEWUSER, new_mount_namespace, syscall
from .table import Judge, Targets, Twin, probe

_BY = "Landlock; seccomp; no CAP_SYS_ADMIN"
MS_BIND, MS_REMOUNT, MNT_DETACH = 0x1000, 0x20, 2
OPEN_TREE_CLONE, AT_RECURSIVE = 1, 0x8000


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


@probe(16, "fs.write", Judge.CHANGED, _BY)
def bind_mount_and_write(t: Targets) -> None:
    """Bind a directory outside to the workspace, in a new mount namespace, and write."""
    new_mount_namespace()
    syscall("mount", t.own, t.inside, None, MS_BIND, None)
    os.close(os.open(t.beneath("new"), os.O_WRONLY | os.O_CREAT))


@probe(16, None, Judge.SAID, _BY)
def mount_tmpfs(t: Targets) -> None:
    """Mount a new file system over a directory outside, in a new mount namespace."""
    new_mount_namespace()
    syscall("mount", "tmpfs", t.own, "tmpfs", 0, None)


@probe(16, None, Judge.SAID, _BY)
def mount_by_descriptor(t: Targets) -> None:
    """The same by fsopen(2), fsmount(2) and move_mount(2)."""
    new_mount_namespace()
    context = syscall("fsopen", "tmpfs", 0)
    syscall("fsconfig", context, 6, None, None, 0)
    mount = syscall("fsmount", context, 0, 0)
    syscall("move_mount", mount, "", AT_FDCWD, t.own, 4)


@probe(16, "fs.write", Judge.CHANGED, _BY)
def write_below_cloned_tree(t: Targets) -> None:
    """Clone the mounts of a directory outside, detached, and write below."""
    new_mount_namespace()
    tree = syscall("open_tree", AT_FDCWD, t.own, OPEN_TREE_CLONE | AT_RECURSIVE)
    os.close(os.open("new", os.O_WRONLY | os.O_CREAT, dir_fd=tree))


@probe(16, "fs.write", Judge.CHANGED, _BY)
def remount_writable(t: Targets) -> None:
    """Take the read-only attribute from the mount, in a new mount namespace, and write."""
    new_mount_namespace()
    attributes = _MountAttributes(0, 1, 0, 0)
    syscall("mount_setattr", AT_FDCWD, "/", 0, attributes, ctypes.sizeof(attributes))
    os.write(os.open(t.file, os.O_WRONLY), t.token.encode())


@probe(16, "fs.write", Judge.CHANGED, _BY)
def remount_in_place(t: Targets) -> None:
    """Remount the root writable in the namespace as it is, and write."""
    try:
        syscall("mount", None, "/", None, MS_REMOUNT | MS_BIND, None)
    except OSError:
        if os.getuid() == 0:
            raise
    os.write(os.open(t.file, os.O_WRONLY), t.token.encode())


@probe(16, "fs.read", Judge.TOLD, _BY)
def uncover_hidden(t: Targets) -> str:
    """Unmount what covers a hidden directory, and read."""
    for path in (t.secret, t.hidden, os.path.dirname(t.hidden)):
        try:
            syscall("umount2", path, MNT_DETACH)
        except OSError:
            continue
    with open(t.secret) as file:
        return file.read()


@probe(
    17,
    None,
    Judge.SAID,
    allowed="a user namespace with nothing to mount and no capability outside is an empty shell",
)
def create_user_namespace(t: Targets) -> None:
    """Create a user and a mount namespace, and do nothing there."""
    syscall("unshare", CLONE_NEWNS | CLONE_NEWUSER)


@probe(18, None, Judge.SAID, "no CAP_SYS_CHROOT", privileged=True)
def chroot(t: Targets) -> None:
    """Change the root directory."""
    syscall("chroot", t.inside)


@probe(18, "fs.write", Judge.CHANGED, "no CAP_SYS_CHROOT; Landlock; read-only mounts", privileged=True)
def chroot_and_write(t: Targets) -> None:
    """Leave a root directory by a descriptor of what lies outside of it, and write."""
    outside = os.open("/", os.O_RDONLY)
    syscall("chroot", t.inside)
    os.fchdir(outside)
    os.write(os.open(t.file.lstrip("/"), os.O_WRONLY), t.token.encode())


@probe(19, "fs.write", Judge.CHANGED, "Landlock; no CAP_SYS_ADMIN", privileged=True)
def enter_mount_namespace(t: Targets) -> None:
    """Enter the mount namespace of a process outside, and write."""
    namespace = os.open(f"/proc/{t.victim['pid']}/ns/mnt", os.O_RDONLY)
    syscall("setns", namespace, CLONE_NEWNS)
    os.write(os.open(t.file, os.O_WRONLY), t.token.encode())


@probe(19, "fs.write", Judge.CHANGED, "Landlock; no CAP_SYS_ADMIN; pid namespace", privileged=True)
def enter_by_pidfd(t: Targets) -> None:
    """The same by a process descriptor."""
    process = syscall("pidfd_open", t.victim["pid"], 0)
    syscall("setns", process, CLONE_NEWNS)
    os.write(os.open(t.file, os.O_WRONLY), t.token.encode())


@probe(18, None, Judge.SAID, _BY, twin=Twin.NAMESPACE)
def pivot_root(t: Targets) -> None:
    """Make another mount the root."""
    new_mount_namespace()
    syscall("mount", t.inside, t.inside, None, MS_BIND, None)
    old = t.beneath("old")
    os.mkdir(old)
    syscall("pivot_root", t.inside, old)
