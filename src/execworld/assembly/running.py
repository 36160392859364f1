"""A composition that runs, and how it changes while it does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import anyio

from execworld.assembly.rows import (
    WORLD_ROW,
    enabled_rows,
    guards_differ,
    is_guard,
    parts_with_rows,
    refuse_other_parts,
    same_row,
    same_world,
    startable,
)
from execworld.assembly.world_row import world_plugin
from execworld.config import Composition, Row, hold_floor
from execworld.kernel import (
    WORLD,
    WORLD_OPENED,
    Context,
    Fiber,
    FiberDescription,
    FiberState,
    OpenedWorld,
    Plugin,
)
from execworld.seams import OnProgress, PluginsFailed, ServiceUnavailable, World

Undo: TypeAlias = Callable[[], Awaitable[None]]


class RunningComposition:
    """What `open_composition` gives.

    Attributes:
        composition: What runs now.
        context: The root of the kernel, through which further plugins may be applied.
    """

    def __init__(
        self, root: Context, composition: Composition, *, on_progress: OnProgress | None = None
    ) -> None:
        self.composition = composition
        self.context = root
        self._on_progress = on_progress
        self._fibers: dict[str, Fiber] = {}
        self._opened: OpenedWorld | None = None
        self._changing = anyio.Lock()

    @property
    def world(self) -> World:
        """The world as it is now. After a change it is another one, and what was taken from the old one fails."""
        return self.context.get(WORLD)

    @property
    def fibers(self) -> Mapping[str, Fiber]:
        """The fiber of each row that is started."""
        return MappingProxyType(self._fibers)

    @property
    def waiting(self) -> tuple[FiberDescription, ...]:
        """Rows that are not started, for lack of a service."""
        described = self.context.describe().children
        return tuple(each for each in described if each.state is FiberState.PENDING)

    def describe(self) -> FiberDescription:
        """All rows: states, what provides what, and why one is PENDING."""
        return self.context.describe()

    async def start(self) -> None:
        """Start all rows, in the order that `open_composition` tells."""
        self.context.on(WORLD_OPENED, self._remember)
        rows = enabled_rows(self.composition)
        for name, row in rows.items():
            if is_guard(self.composition, row):
                await self._start_row(name, row)
        self._check_guards(self.composition)
        self._fibers[WORLD_ROW] = self.context.plugin(
            self._world_plugin(self.composition, None), name=WORLD_ROW
        )
        await self._fibers[WORLD_ROW]
        for name, row in rows.items():
            if not is_guard(self.composition, row):
                self._apply(name, row, self.composition)
        _raise(await self._failures())

    async def change_to(self, composition: Composition) -> bool:
        """Make what runs into *composition*: only rows that differ are touched.

        Another world is opened, compared with the floor and put before the guards before the old one goes. Then every
        consumer is moved at once, and what was taken from the old world fails with a code. If anything before that is
        refused or fails, all is as it was. What fails to start on the new world afterwards is FAILED and reported.

        Returns:
            Whether anything was to be changed.

        Raises:
            FloorViolated, SandboxUnavailable, WorldMismatch, Exception: nothing has changed.
        """
        hold_floor(composition)
        async with self._changing:
            undo: list[Undo] = []
            changed = not same_world(self.composition, composition) or guards_differ(
                self.composition, composition
            )
            try:
                await self._change_rows(composition, undo)
                if changed:
                    await self._replace_world(composition, None)
                changed = changed or bool(undo)
            except BaseException as error:
                if self.composition is not composition:
                    with anyio.CancelScope(shield=True):
                        await _undo_all(undo, error)
                raise
            self.composition = composition
        return changed

    async def open_world_again(self) -> None:
        """Open the world of the same row once more, for one that was lost or was idle, and move every consumer to it.

        It may not hold less than the one before; then nothing has changed.

        Raises:
            FloorViolated, SandboxUnavailable, WorldUnavailable: nothing has changed.
        """
        async with self._changing:
            await self._replace_world(self.composition, self._opened)

    async def _replace_world(self, composition: Composition, before: OpenedWorld | None) -> None:
        self._check_guards(composition)
        plugin = self._world_plugin(composition, before)
        remembered, old = self._opened, self._fibers[WORLD_ROW]
        ready: list[Fiber] = []

        async def note(ctx: Context) -> None:
            ready.append(ctx.fiber)

        try:
            await old.replace(plugin, name=WORLD_ROW, check=note)
        finally:
            # Who is cancelled while the old world closes has the new one already.
            if old.superseded:
                self._fibers[WORLD_ROW] = ready[0]
                self.composition = composition
            else:
                self._opened = remembered

    def _world_plugin(self, composition: Composition, before: OpenedWorld | None) -> Plugin:
        return world_plugin(
            composition,
            elsewhere=parts_with_rows(composition),
            before=before,
            on_progress=self._on_progress,
        )

    def _remember(self, opened: OpenedWorld) -> None:
        self._opened = opened

    async def _change_rows(self, composition: Composition, undo: list[Undo]) -> None:
        old, new = enabled_rows(self.composition), enabled_rows(composition)
        refuse_other_parts(self.composition, composition)
        failed_before = await self._failures()
        for name in sorted(new, key=lambda each: not is_guard(composition, new[each])):
            if name not in old:
                self._apply(name, new[name], composition)
                undo.append(partial(self._end, name))
                if is_guard(composition, new[name]):
                    await self._fibers[name]
            elif not same_row(old[name], new[name]):
                await self._replace_row(name, new[name], composition)
                undo.append(partial(self._replace_row, name, old[name], self.composition))
        _raise([error for error in await self._failures() if error not in failed_before])
        for name in [name for name in old if name not in new]:
            undo.append(partial(self._start_row, name, old[name]))
            await self._end(name)

    async def _replace_row(self, name: str, row: Row, composition: Composition) -> None:
        plugin, config = startable(name, row, composition)
        fiber = self._fibers[name]
        if fiber.state is FiberState.ACTIVE:
            self._fibers[name] = await fiber.replace(plugin, config, name=name)
            return
        before = self.composition.rows.get(name)
        await self._end(name)
        try:
            self._apply(name, row, composition)
        except Exception:
            if before is not None:
                self._apply(name, before, self.composition)
            raise

    async def _start_row(self, name: str, row: Row) -> None:
        self._apply(name, row, self.composition)
        await self._fibers[name]

    def _check_guards(self, composition: Composition) -> None:
        """Refuse to open a world that a guard of *composition* would not see."""
        for name, row in enabled_rows(composition).items():
            if is_guard(composition, row) and self._fibers[name].state is not FiberState.ACTIVE:
                message = f"no world is opened, because the guard `{name}` is {self._fibers[name].state}"
                hint = "`execworld graph` tells what it waits for"
                raise ServiceUnavailable(message, op="world.open", hint=hint)

    def _apply(self, name: str, row: Row, composition: Composition) -> None:
        plugin, config = startable(name, row, composition)
        self._fibers[name] = self.context.plugin(plugin, config, name=name)

    async def _end(self, name: str) -> None:
        await self._fibers.pop(name).dispose()

    async def _failures(self) -> tuple[Exception, ...]:
        """Why rows, or plugins inside of them, are FAILED now that all have got where they can get."""
        try:
            await self.context.settle()
        except PluginsFailed as failed:
            return failed.errors
        return ()


def _raise(errors: Sequence[Exception]) -> None:
    if len(errors) == 1:
        raise errors[0]
    if errors:
        listing = "; ".join(str(error) or type(error).__name__ for error in errors)
        raise PluginsFailed(f"rows failed to start: {listing}", errors=tuple(errors))


async def _undo_all(undo: list[Undo], error: BaseException) -> None:
    for step in reversed(undo):
        try:
            await step()
        except Exception as further:  # noqa: BLE001 - the other steps must still be undone
            error.add_note(f"and what was changed could not be changed back: {further!r}")
