"""Groups of errors, which task groups make."""

from __future__ import annotations

from typing import cast


def leaf_errors(error: BaseException) -> list[BaseException]:
    """The errors in a group, in order; an error that is no group is its own only leaf."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for part in group.exceptions for leaf in leaf_errors(part)]


def take_notes(leaf: BaseException, error: BaseException) -> None:
    """Give *leaf* the notes of the groups around it: who wrote them had only the group in hand."""
    if not isinstance(error, BaseExceptionGroup):
        return
    group = cast("BaseExceptionGroup[BaseException]", error)
    for note in getattr(group, "__notes__", ()):
        if note not in getattr(leaf, "__notes__", ()):
            leaf.add_note(note)
    for inner in group.exceptions:
        take_notes(leaf, inner)
