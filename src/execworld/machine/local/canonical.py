"""Canonical paths, component by component: no system call also answers for what is missing."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_MAX_LINKS: Final = 40  # as the kernel's own path resolution


def real_path(path: bytes, missing_ok: bool) -> bytes:
    """See `RealPath`."""
    if not path:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    if b"\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    if not path.startswith(b"/"):
        path = os.getcwdb() + b"/" + path
    rest = path.split(b"/")[::-1]
    done: list[bytes] = []
    missing = 0  # how many of the components in `done` are known not to exist
    links = 0
    while rest:
        component = rest.pop()
        if not component or component == b".":
            continue
        if component == b"..":
            if done:
                done.pop()
                missing = max(missing - 1, 0)
            continue
        done.append(component)
        if missing:
            missing += 1
            continue
        current = b"/" + b"/".join(done)
        try:
            mode = os.lstat(current).st_mode
            target = os.readlink(current) if stat.S_ISLNK(mode) else None
        except FileNotFoundError:
            if not missing_ok:
                raise
            missing = 1
            continue
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            done.pop()  # a link no more: it was replaced between the two calls
            rest.append(component)
            continue
        if target is None:
            if rest and not stat.S_ISDIR(mode):
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.startswith(b"/"):
            done.clear()
        else:
            done.pop()
        rest.extend(target.split(b"/")[::-1])
    return b"/" + b"/".join(done)
