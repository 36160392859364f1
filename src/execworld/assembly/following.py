"""Documents of the user that change while a composition runs: read again, and taken only if nothing is lost."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectSendStream

from execworld.config import Composition, Locations, losses
from execworld.kernel import Event
from execworld.seams import FileMissing, FileSystem, FloorViolated, WatchEvent
from execworld.seams.values import value_class
from execworld.world.host_files import open_host_files

if TYPE_CHECKING:
    from execworld.assembly.running import RunningComposition


@value_class
class Reloaded:
    """The documents were read again.

    Attributes:
        composition: What runs now.
        error: Why that is what ran before, and not what the documents say; None when it is.
    """

    composition: Composition
    error: Exception | None = None


RELOADED: Final = Event[Reloaded, None]("reloaded")


class DocumentFollower:
    """Reads the documents of a user again whenever they change.

    A document that is wrong, a composition that cannot be started and one that guarantees less than what runs leave all
    as it is, and the next edit that is right is taken. To take a guarantee back, start again: whoever may write a file
    cannot talk what runs out of it. Each change and each new refusal is told by `RELOADED`.

    Args:
        running: What is to be changed.
        load: Reads all layers; called in a thread.
        locations: Where documents may appear; the directories need not be there yet.
    """

    def __init__(
        self, running: RunningComposition, load: Callable[[], Composition], locations: Locations
    ) -> None:
        self._running = running
        self._load = load
        self._locations = locations
        self._last_refusal = ""

    async def run(self) -> None:
        """Follow until cancelled.

        Raises:
            Unsupported: this host cannot watch files.
        """
        async with open_host_files() as here:
            while True:
                try:
                    await self._follow(here)
                except FileMissing:
                    pass  # a directory went before it was watched

    async def _follow(self, fs: FileSystem) -> None:
        """Until other directories are to be watched."""
        watched = _directories(self._locations)
        send, receive = anyio.create_memory_object_stream[None](1)
        async with AsyncExitStack() as stack:
            stack.enter_context(send)
            stack.enter_context(receive)
            watches = [await stack.enter_async_context(fs.watch(path, recursive=False)) for path in watched]
            async with anyio.create_task_group() as group:
                for watch in watches:
                    group.start_soon(_pass_on, watch, send)
                # What changed before these watches were there is seen now, all else is an event.
                while _directories(self._locations) == watched:
                    await self._reload()
                    await receive.receive()
                group.cancel_scope.cancel()

    async def _reload(self) -> None:
        before = self._running.composition
        try:
            composition = await anyio.to_thread.run_sync(self._load)
            if lost := losses(before, composition):
                raise FloorViolated(
                    "the documents guarantee less than what runs\n" + "\n".join(map(str, lost)),
                    op="config.reload",
                    hint="start again to take that back",
                )
            changed = await self._running.change_to(composition)
        except Exception as error:  # noqa: BLE001 - whatever it is, what runs goes on
            if str(error) != self._last_refusal:
                self._last_refusal = str(error)
                self._running.context.emit(RELOADED, Reloaded(before, error))
            return
        if changed or self._last_refusal:
            self._last_refusal = ""
            self._running.context.emit(RELOADED, Reloaded(composition))


def _directories(locations: Locations) -> dict[str, tuple[int, int]]:
    """What has to be watched, with what tells it from another directory of that name: those that may hold documents,
    and the nearest above, in which they may appear and disappear."""
    wanted = [os.path.dirname(locations.directory), locations.directory, locations.profiles]
    found: dict[str, tuple[int, int]] = {}
    for path in wanted:
        nearest, status = _nearest(path)
        found[nearest] = (status.st_dev, status.st_ino)
    return found


def _nearest(path: str) -> tuple[str, os.stat_result]:
    try:
        return path, os.stat(path)
    except OSError:
        return _nearest(os.path.dirname(path))


async def _pass_on(events: AsyncIterator[WatchEvent], send: MemoryObjectSendStream[None]) -> None:
    async for _ in events:
        try:
            send.send_nowait(None)
        except anyio.WouldBlock:
            pass  # it will be read again anyway
