"""What stands in the way of a layer or a dimension: a sentence for people, and the kind of it for programs."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from execworld.seams.errors import SandboxReason

_OF_ERRORS: Final = {
    errno.EPERM: SandboxReason.BLOCKED,
    errno.EACCES: SandboxReason.BLOCKED,
    errno.EOPNOTSUPP: SandboxReason.FEATURE_DISABLED,
    errno.ENOSYS: SandboxReason.KERNEL_LACKS_FEATURE,
    errno.EINVAL: SandboxReason.KERNEL_LACKS_FEATURE,
}
_FOREMOST: Final = (
    SandboxReason.BLOCKED,
    SandboxReason.FEATURE_DISABLED,
    SandboxReason.KERNEL_LACKS_FEATURE,
)
"""What somebody here can change comes first."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Attributes:
    text: For people. Nothing is ever decided by it: it may hold paths, which anybody can name as they like.
    reason: Its kind; None when it has none but that something is missing.
    """

    text: str
    reason: SandboxReason | None = None

    def __str__(self) -> str:
        return self.text


def reason_of_error(number: int) -> SandboxReason | None:
    """What a failed system call says of the place."""
    return _OF_ERRORS.get(number)


def common_reason(obstacles: Iterable[Obstacle]) -> SandboxReason | None:
    """What they come down to together; None when they have nothing in common that is worth a name."""
    reasons = {obstacle.reason for obstacle in obstacles}
    for reason in _FOREMOST:
        if reason in reasons:
            return reason
    return reasons.pop() if len(reasons) == 1 else None


def joined(*obstacles: Obstacle) -> Obstacle:
    """All of them as one; there is at least one."""
    return Obstacle("; ".join(dict.fromkeys(map(str, obstacles))), common_reason(obstacles))
