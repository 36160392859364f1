"""What all publications of a file have in common: private names, and what a file system may be unable to do."""

from __future__ import annotations

import errno
import secrets
from typing import Final

TEMPORARY_PREFIX: Final = b".execworld-"

CANNOT_SYNC: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
CANNOT_OWN: Final = (errno.EPERM, errno.EINVAL, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP)
CANNOT_RENAME_SO: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTTY})
"""No exchange, or no rename without replacement, on this file system or kernel."""

AFTER_PUBLICATION: Final = (
    errno.EPERM,
    errno.ENOENT,
    errno.EINTR,
    errno.EIO,
    errno.EBADF,
    errno.EAGAIN,
    errno.ENOMEM,
    errno.EACCES,
    errno.EBUSY,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EINVAL,
    errno.ENFILE,
    errno.EMFILE,
    errno.ENOSPC,
    errno.EROFS,
    errno.ENOSYS,
    errno.ELOOP,
    errno.EOPNOTSUPP,
    errno.ESTALE,
    errno.EDQUOT,
)
"""What is tolerated once the new content has its name: nothing may turn success into failure any more."""


def temporary_name() -> bytes:
    """A name that nobody can guess, in the directory of the target."""
    return TEMPORARY_PREFIX + secrets.token_hex(16).encode()
