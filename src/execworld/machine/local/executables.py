"""Look up a program as execvp(3) would, by the effective ids of this process."""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

_EFFECTIVE_IDS: Final = os.access in os.supports_effective_ids


def find_executable(name: bytes, directories: tuple[bytes, ...]) -> bytes:
    """See `FindExecutable`."""
    if b"\0" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    found = errno.ENOENT
    named = b"/" in name
    candidates = (name,) if named else tuple(directory + b"/" + name for directory in directories if name)
    for path in candidates:
        try:
            mode = os.stat(path).st_mode
        except PermissionError:
            # What lies in a directory that cannot be searched is not there for anybody here; one named by its path is.
            found = errno.EACCES if named else found
            continue
        except (OSError, ValueError):
            continue  # nothing there, or no path at all; the next directory may have it
        if stat.S_ISREG(mode) and os.access(path, os.X_OK, effective_ids=_EFFECTIVE_IDS):
            return path
        found = errno.EACCES
    raise OSError(found, os.strerror(found))
