"""Views of a world: one cell a policy, made on demand and kept until the world closes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
from anyio.abc import TaskGroup

from execworld.machine.base import Machine
from execworld.machine.confining import Cell, Confiner, resolve_policy
from execworld.machine.denials import PolicyRules, rules_of
from execworld.machine.directories import WorldDirectories
from execworld.seams.errors import CleanupIncomplete, ExecworldError
from execworld.seams.policy import SandboxPolicy
from execworld.seams.world import World


class View(World):
    """What is kept of a view."""

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether its cell is gone without having been closed."""

    @property
    @abstractmethod
    def close_error(self) -> CleanupIncomplete | None:
        """What could not be proven gone when it closed."""

    @abstractmethod
    async def wait_closed(self) -> None:
        """Wait until somebody has closed it."""

    @abstractmethod
    async def close_view(self) -> None:
        """End what runs in it. Idempotent; what could not be proven gone is remembered and not raised."""


ViewMaker: TypeAlias = "Callable[[Cell, SandboxPolicy, PolicyRules, int, TaskGroup], Awaitable[View]]"
"""Makes a view over a cell: the policy as it was given, its rules, which view of that policy it is, and the group of
its tasks."""


class _Kept:
    """A view, from when it is asked for until its cell is gone."""

    def __init__(self, policy: SandboxPolicy, number: int) -> None:
        self.policy = policy
        self.number = number
        self.view: View | None = None
        self.error: Exception | None = None
        self.ready = anyio.Event()
        self.done = anyio.Event()

    @property
    def usable(self) -> bool:
        """Whether whoever asks for this policy gets this one."""
        return self.view is None or not (self.view.closed or self.view.lost)


class Views:
    """The views of one world.

    Each is kept by a task of the world, since what opens a cell must be left by the task that entered it. That task
    ends when it is told to and not by being cancelled, so that what a view runs is ended in order.
    """

    def __init__(
        self, machine: Machine, confiner: Confiner, tasks: TaskGroup, world_id: str, make: ViewMaker
    ) -> None:
        self._machine = machine
        self._confiner = confiner
        self._tasks = tasks
        self._world_id = world_id
        self._make = make
        self._directories = WorldDirectories(machine)
        self._kept: list[_Kept] = []
        self.survivors: list[int] = []

    async def get(self, policy: SandboxPolicy) -> View:
        """The view for *policy*: the one that there is, or a new one, made once however many ask for it.

        After a view was lost or closed its handles stay void; whoever asks again gets another one, with another id.
        """
        kept = next((one for one in self._kept if one.policy.digest == policy.digest and one.usable), None)
        if kept is None:
            number = 1 + sum(one.policy.digest == policy.digest for one in self._kept)
            kept = _Kept(policy, number)
            self._kept.append(kept)
            self._tasks.start_soon(self._keep, kept)
        await kept.ready.wait()
        if kept.error is not None:
            raise kept.error
        assert kept.view is not None
        return kept.view

    async def aclose(self) -> list[str]:
        """Close all of them, and remove their directories. Returns what could not be removed."""
        async with anyio.create_task_group() as closing:
            for kept in self._kept:
                closing.start_soon(self._end, kept)
        leftovers: list[str] = []
        for kept in self._kept:
            error = None if kept.view is None else kept.view.close_error
            if error is not None:
                self.survivors += error.survivors
                leftovers += error.leftovers or ([] if error.survivors else [error.message])
        return leftovers + await self._directories.aclose()

    async def _end(self, kept: _Kept) -> None:
        await kept.ready.wait()
        if kept.view is not None:
            await kept.view.close_view()
        await kept.done.wait()

    async def _keep(self, kept: _Kept) -> None:
        with anyio.CancelScope(shield=True):
            try:
                await self._open(kept)
            except Exception as error:  # goes to those who asked, not to the world
                if kept.ready.is_set():
                    raise
                kept.error = error
                self._kept.remove(kept)
            finally:
                kept.ready.set()
                kept.done.set()

    async def _open(self, kept: _Kept) -> None:
        policy = await resolve_policy(self._machine, kept.policy, self._world_id)
        writable = rules_of(policy, None).writable or ()
        try:
            directories = await self._directories.make(writable)
            cell_context = self._confiner.open_cell(self._machine, policy, directories)
            async with cell_context as cell:
                await self._serve(kept, cell, rules_of(policy, directories, cell))
        except ExecworldError as error:
            error.world = error.world or self._world_id
            error.op = error.op or "sandbox.confine"
            raise

    async def _serve(self, kept: _Kept, cell: Cell, rules: PolicyRules) -> None:
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            try:
                view = kept.view = await self._make(cell, kept.policy, rules, kept.number, tasks)
                kept.ready.set()
                await view.wait_closed()
            except Exception as error:  # noqa: BLE001 - raised again below, where no group wraps it
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure
