"""Read before write: which version of each file an agent has seen."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final
from weakref import WeakKeyDictionary

from execworld.kernel import Context, Key, plugin
from execworld.seams import (
    Expectation,
    FileError,
    FileMissing,
    FileTarget,
    FileVersion,
    NotObserved,
    StaleVersion,
    World,
)
from execworld.tools.session import ToolSession
from execworld.tools.shown_paths import shown_path


class Observations:
    """What each session has seen of each file, until the session is gone.

    A file is known by its identity in its world, so another spelling or a link makes no difference, and nothing that
    was seen in one world counts in another.
    """

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[ToolSession, dict[tuple[str, str], FileVersion]] = WeakKeyDictionary()

    def record(self, session: ToolSession, target: FileTarget, version: FileVersion) -> None:
        """Note that the session knows the file in this version: it has read it, or has written it itself."""
        self._seen.setdefault(session, {})[target.world_id, target.key] = version

    def forget(self, session: ToolSession, target: FileTarget) -> None:
        """Note that the file is not there."""
        self._seen.get(session, {}).pop((target.world_id, target.key), None)

    async def expectation(self, session: ToolSession, world: World, target: FileTarget) -> Expectation:
        """What a write may demand: the version that was seen, or that there is no file.

        The write itself holds it, at the moment of publication; nothing that is asked here decides.

        Raises:
            NotObserved: there is a file, and the session has not read it.
        """
        seen = self._seen.get(session, {}).get((target.world_id, target.key))
        if seen is not None:
            return seen
        if await world.fs.stat(target) is None:
            return "absent"
        raise NotObserved(
            f"{shown_path(target.display_path)} was not read before, so nobody knows what would be lost",
            op="tools.observations",
            world=world.world_id,
            hint=_READ_FIRST,
        )


OBSERVATIONS: Final = Key[Observations]("observations")
_READ_FIRST: Final = "read the file, then retry"
_READ_AGAIN: Final = "read the file again, then retry"


@plugin(provides=(OBSERVATIONS,))
def observe_files(ctx: Context) -> None:
    """Let an agent write and edit only what it has read, and only as long as nobody else changes it."""
    ctx.provide(OBSERVATIONS, Observations())


@contextmanager
def remedies() -> Generator[None]:
    """Say what helps where a file is not as it was seen."""
    try:
        yield
    except StaleVersion as error:
        error.hint = _READ_AGAIN
        raise
    except NotObserved as error:
        error.hint = error.hint or _READ_FIRST
        raise


async def version_of(world: World, target: FileTarget) -> FileVersion:
    """The version before a file is read. If it changes meanwhile, a write finds it stale.

    Raises:
        FileMissing
    """
    info = await world.fs.stat(target)
    if info is None:
        raise FileMissing(
            f"{shown_path(target.display_path)} does not exist", op="tools.read", world=world.world_id
        )
    return info.version


__all__ = ["OBSERVATIONS", "FileError", "Observations", "observe_files", "remedies", "version_of"]
