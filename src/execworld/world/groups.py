"""Groups of errors, which task groups make."""

from __future__ import annotations

from typing import cast


def leaf_errors(error: BaseException) -> list[BaseException]:
    """The errors in a group, in order; an error that is no group is its own only leaf."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for part in group.exceptions for leaf in leaf_errors(part)]
