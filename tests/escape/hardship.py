"""Kernels and surroundings in which a layer cannot be set up: what the host side of a session does to itself."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from .plans import Plan
from .probes.calls import CLONE_NEWNS, number, syscall
from .probes.handles import PathBeneath, RulesetAttributes

NO_PROC, FULL_MOUNTS = "no-proc", "full-mounts"
LAYERS = "layers-"
_REFER = 1 << 13
_MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x1000, 0x4000, 0x40000, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


@contextmanager
def hardship(plan: Plan, base: Path) -> Generator[None]:
    """What *plan* wants to be hard, for this process and all that it starts. System calls stay so for good."""
    if plan.setting in (NO_PROC, FULL_MOUNTS):
        syscall("unshare", CLONE_NEWNS)
        syscall("mount", None, "/", None, _MS_REC | _MS_PRIVATE, None)
    if plan.setting == NO_PROC:
        syscall("mount", "nothing", "/proc", "tmpfs", 0, None)
    elif plan.setting == FULL_MOUNTS:
        fill_mount_table(base)
    elif plan.setting.startswith(LAYERS):
        add_layers(int(plan.setting.removeprefix(LAYERS)))
    if plan.answers:
        answer(dict(plan.answers))
    try:
        yield
    finally:
        if plan.setting == NO_PROC:
            syscall("umount2", "/proc", _MNT_DETACH)
        elif plan.setting == FULL_MOUNTS:
            syscall("umount2", str(base / "mounts"), _MNT_DETACH)


def answer(errors: dict[str, int]) -> None:
    """Let system calls give an errno instead of being run, as an old kernel or a filter of a container does."""
    instructions = struct.pack("=HBBI", _LOAD, 0, 0, 0)
    for name, error in errors.items():
        instructions += struct.pack("=HBBI", _JUMP_IF_EQUAL, 0, 1, number(name))
        instructions += struct.pack("=HBBI", _RETURN, 0, 0, _ERRNO | error)
    instructions += struct.pack("=HBBI", _RETURN, 0, 0, _ALLOW)
    if os.getuid():
        syscall("prctl", 38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    program = _Program(len(instructions) // 8, instructions)
    syscall("seccomp", 1, 1, program)  # SECCOMP_SET_MODE_FILTER, with TSYNC


def add_layers(count: int) -> None:
    """Use up Landlock layers. Each allows all that it governs: renames, which would be denied if it did not."""
    if os.getuid():
        syscall("prctl", 38, 1, 0, 0, 0)
    attributes = RulesetAttributes(_REFER, 0, 0)
    ruleset = syscall("landlock_create_ruleset", attributes, ctypes.sizeof(attributes), 0)
    root = os.open("/", os.O_PATH)
    syscall("landlock_add_rule", ruleset, 1, PathBeneath(_REFER, root), 0)
    os.close(root)
    for _ in range(count):
        syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def fill_mount_table(base: Path) -> None:
    """Mount in this namespace until it takes no more (fs.mount-max)."""
    top = base / "mounts"
    top.mkdir()
    syscall("mount", "mounts", str(top), "tmpfs", 0, None)
    copies: list[Path] = []  # each holds as many mounts as all before it together
    while _copy_mounts(top, top / str(len(copies))):
        copies.append(top / str(len(copies)))
    for number_of_copy in reversed(range(len(copies))):
        while _copy_mounts(copies[number_of_copy], top / f"{number_of_copy}-{len(os.listdir(top))}"):
            pass


def _copy_mounts(source: Path, target: Path) -> bool:
    """Whether there was room for a copy of all mounts at and below *source*."""
    target.mkdir()
    try:
        syscall("mount", str(source), str(target), None, _MS_BIND | _MS_REC, None)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False
    return True
