"""Control groups of wardens that were killed before anything of theirs could remove them.

A warden removes those that it finds when it starts (`cgroup.c`). This is the same for somebody who starts none, and who
wants to be told. The lock on a group (flock(2)) is held by its warden, or by a supervisor that still cleans up.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from execworld.seams.provider import Leftover, LeftoverState

# Number, start time and process namespace of the warden; a counter more for a group that holds the limits of one cell.
_NAME: Final = re.compile(r"execworld-\d+-\d+-\d+(-\d+)?")
_INNER: Final = re.compile(r"c\d+")


def sweep_groups(*, dry_run: bool) -> list[Leftover]:
    """Remove what can be removed, in every hierarchy where a warden of this process would make groups."""
    found: list[Leftover] = []
    for directory in dict.fromkeys(_places()):
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            continue  # what cannot be listed holds nothing that could be removed
        for name in names:
            if _NAME.fullmatch(name):
                found.append(_sweep(f"{directory}/{name}", dry_run=dry_run))
    return found


def _sweep(path: str, *, dry_run: bool) -> Leftover:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        return _leftover(path, LeftoverState.FAILED, _text(error))
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        busy = _processes(path)
        if busy:
            return _leftover(path, LeftoverState.KEPT, f"processes run in it: {', '.join(busy)}")
        if dry_run:
            return _leftover(path, LeftoverState.REMOVABLE, "its warden is gone")
        for name in os.listdir(path):
            if _INNER.fullmatch(name):
                os.rmdir(f"{path}/{name}")
        os.rmdir(path)
    except BlockingIOError:
        return _leftover(path, LeftoverState.KEPT, "its warden is still there")
    except OSError as error:
        return _leftover(path, LeftoverState.FAILED, _text(error))
    finally:
        os.close(descriptor)
    return _leftover(path, LeftoverState.REMOVED, "its warden is gone")


def _processes(path: str) -> list[str]:
    inner = [f"{path}/{name}" for name in os.listdir(path) if _INNER.fullmatch(name)]
    return [
        number
        for group in (path, *inner)
        for number in Path(group, "cgroup.procs").read_text("ascii").split()
    ]


def _places() -> Iterator[str]:
    """Directories of the groups that this process is in and, of version 2, of the one above, as far as mounted here."""
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        mounts = (
            Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        )
    except OSError:
        return
    own = {controllers: path for _, controllers, path in (line.split(":", 2) for line in lines)}
    for line in mounts:
        before, _, after = line.partition(" - ")
        root, mount = before.split(" ")[3:5]
        kind, _, options = after.split(" ", 2)
        if kind not in ("cgroup", "cgroup2"):
            continue
        names = set(options.rpartition(" ")[2].split(","))
        for controllers, path in own.items():
            fits = not controllers if kind == "cgroup2" else bool(names & set(controllers.split(",")))
            inside = path if root == "/" else path.removeprefix(root)
            if fits and (root == "/" or path == root or path.startswith(f"{root}/")):
                inside = inside.strip("/")
                yield f"{mount}/{inside}".rstrip("/")
                if inside and kind == "cgroup2":
                    yield f"{mount}/{inside.rpartition('/')[0]}".rstrip("/")


def _leftover(path: str, state: LeftoverState, reason: str) -> Leftover:
    return Leftover("control group", path, state, reason)


def _text(error: OSError) -> str:
    return error.strerror or errno.errorcode.get(error.errno or 0, str(error))
