"""Devices, settings of the kernel, and files that stand for something else."""

from __future__ import annotations

import os
import stat

from .calls import syscall
from .table import Judge, Targets, Twin, Void, probe

_DISK = "a machine may keep its disk from everyone"


@probe(22, None, Judge.SAID, "Landlock without MAKE_BLOCK; no CAP_MKNOD", privileged=True)
def make_block_device(t: Targets) -> None:
    """Make a block device in the workspace for the file system that it lies on."""
    os.mknod(t.beneath("disk"), stat.S_IFBLK | 0o600, os.stat(t.workspace).st_dev)


@probe(22, None, Judge.SAID, "Landlock without MAKE_CHAR; no CAP_MKNOD", privileged=True)
def make_character_device(t: Targets) -> None:
    """Make a character device in the workspace (the memory of the machine)."""
    os.mknod(t.beneath("memory"), stat.S_IFCHR | 0o600, os.makedev(1, 1))


@probe(
    22,
    "fs.read",
    Judge.SAID,
    "Landlock without read rights; no-device mounts",
    privileged=True,
    unprovable=_DISK,
)
def read_block_device(t: Targets) -> None:
    """Read the disk that the workspace lies on as a device."""
    number = os.stat(t.workspace).st_dev
    for name in sorted(os.listdir("/dev")):
        path = os.path.join("/dev", name)
        try:
            found = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISBLK(found.st_mode) and found.st_rdev == number:
            break
    else:
        if os.getuid() == 0 and os.major(number) == 0:
            raise Void("the workspace lies on no block device")
        raise FileNotFoundError(2, "no device")
    descriptor = os.open(path, os.O_RDONLY)
    if len(os.read(descriptor, 4096)) != 4096:
        raise Void("the device is empty")


@probe(
    22,
    "fs.write",
    Judge.SAID,
    "Landlock; read-only mounts; no-device mounts",
    privileged=True,
    unprovable=_DISK,
)
def open_block_device_for_writing(t: Targets) -> None:
    """Open the disk that the workspace lies on for writing, and write nothing."""
    number = os.stat(t.workspace).st_dev
    for name in sorted(os.listdir("/dev")):
        path = os.path.join("/dev", name)
        try:
            found = os.lstat(path)
        except OSError:
            continue
        if stat.S_ISBLK(found.st_mode) and found.st_rdev == number:
            os.close(os.open(path, os.O_WRONLY))
            return
    if os.major(number) == 0:
        raise Void("the workspace lies on no block device")
    raise FileNotFoundError(2, "no device")


@probe(23, "fs.write", Judge.SAID, "Landlock; read-only mounts", twin=Twin.NAMESPACE, privileged=True)
def write_kernel_setting(t: Targets) -> None:
    """Write a setting below /proc/sys; the value that it has."""
    path = "/proc/sys/kernel/hostname"
    with open(path) as file:
        value = file.read()
    with open(path, "w") as file:
        file.write(value)


@probe(23, "fs.write", Judge.SAID, "Landlock; read-only mounts", privileged=True)
def leave_control_group(t: Targets) -> None:
    """Move itself to the root of the control groups."""
    with open("/proc/self/mountinfo") as file:
        lines = [line.split() for line in file]
    roots = [line[4] for line in lines if " - cgroup2 " in " ".join(line)]
    if not roots:
        raise Void("there are no control groups of version 2")
    with open(os.path.join(roots[-1], "cgroup.procs"), "w") as file:
        file.write("0")


@probe(41, None, Judge.SAID, "no CAP_SYS_ADMIN; seccomp", twin=Twin.NAMESPACE, privileged=True)
def set_host_name(t: Targets) -> None:
    """Set the host name; to what it is."""
    name = os.uname().nodename
    syscall("sethostname", name, len(name))


@probe(23, "fs.write", Judge.SAID, "Landlock; read-only mounts", privileged=True)
def write_kernel_log(t: Targets) -> None:
    """Open the log of the kernel for writing, and write nothing."""
    if not os.path.exists("/dev/kmsg") and os.getuid() == 0:
        raise Void("there is no kernel log")
    os.close(os.open("/dev/kmsg", os.O_WRONLY))
