"""`World` over any machine: one identity, four seams, one check before every operation."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from anyio.abc import TaskGroup

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.confining import Cell, Confiner
from execworld.machine.denials import PolicyRules
from execworld.machine.environment import base_environment
from execworld.machine.operations import FindExecutable
from execworld.machine.process import ProcessScope
from execworld.machine.sandbox import MachineSandbox
from execworld.machine.shell import MachineShell
from execworld.machine.spill import SpillStore
from execworld.machine.subprocess import MachineSubprocess
from execworld.machine.views import View, Views
from execworld.seams.enforcement import Dimension, DimensionEnforcement, Enforcement, EnforcementState
from execworld.seams.errors import (
    CleanupIncomplete,
    ExecworldError,
    SandboxReason,
    SandboxUnavailable,
    WorldClosed,
)
from execworld.seams.filesystem import FileSystem
from execworld.seams.identity import Boundary, WorldFacts, WorldIdentity
from execworld.seams.paths import decode_path, encode_path
from execworld.seams.policy import SandboxMode, SandboxPolicy
from execworld.seams.sandbox import Sandbox
from execworld.seams.shell import Shell
from execworld.seams.subprocess import Subprocess
from execworld.seams.values import record
from execworld.seams.world import World

_SHELLS = (b"bash", b"sh")
_ANY_ERRNO = frozenset(range(1, 4096))
_HELD_HERE = {
    Dimension.LIMIT_WALL: "this side ends every tree in time",
    Dimension.LIMIT_OUTPUT: "this side counts and ends the tree",
}


@record
class WorldSettings:
    """What a provider knows about the world that it makes.

    Attributes:
        identity: Of this generation.
        policy: Policy of the root view.
        enforcement: What was proven to hold for it.
        boundary: What separates the world from this host, and *crossings* what crosses it.
        cwd: Working directory; None for the machine's own.
        confined_boundary: The same for confined views; None when a policy changes nothing about it.
        confined_crossings: What crosses it for a policy and what was proven to hold.
        environment: Names that pass from the machine's environment beside the allow-list.
        confiner: Makes cells for views; None where nothing can be confined.
    """

    identity: WorldIdentity
    policy: SandboxPolicy
    enforcement: Enforcement
    boundary: Boundary
    crossings: tuple[str, ...] = ()
    cwd: str | None = None
    environment: tuple[str, ...] = ()
    confiner: Confiner | None = None
    confined_boundary: Boundary | None = None
    confined_crossings: Callable[[SandboxPolicy, Enforcement], tuple[str, ...]] | None = None


@asynccontextmanager
async def open_machine_world(machine: Machine, settings: WorldSettings) -> AsyncGenerator[World]:
    """The world on *machine*, which is closed with it, as seen under the policy of *settings*.

    Raises:
        SandboxUnavailable: the policy asks for more than what is enforced; the machine was closed again.
        CleanupIncomplete: at the end, something could not be proven gone; only a note on an error that is under way.
    """
    async with anyio.create_task_group() as tasks:
        try:
            root = await MachineWorld.make_root(machine, settings, tasks)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await machine.aclose()
            raise
        try:
            yield (
                root
                if root.policy.digest == settings.policy.digest
                else await root.only_view(settings.policy)
            )
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                try:
                    await root.aclose()
                except CleanupIncomplete as incomplete:
                    error.add_note(
                        f"[{incomplete.code}] {incomplete.message}"
                    )  # must not hide what came first
            raise
        else:
            with anyio.CancelScope(shield=True):
                await root.aclose()
        finally:
            tasks.cancel_scope.cancel()


@record
class _Confinement:
    """What makes a view a confined one."""

    root: MachineWorld
    cell: Cell
    rules: PolicyRules
    number: int


class MachineWorld(View):
    """One view. Made by `open_machine_world`, and by the sandbox seam of the root view."""

    def __init__(
        self,
        machine: Machine,
        settings: WorldSettings,
        facts: WorldFacts,
        scope: ProcessScope,
        environment: Mapping[bytes, bytes],
        confinement: _Confinement | None = None,
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._facts = facts
        self._scope = scope
        self._confinement = confinement
        self._closing = False
        self._over = anyio.Event()
        self._close_error: CleanupIncomplete | None = None
        self._is_all_of_world = False
        self._fs: FileSystem | None = None
        self._subprocess = MachineSubprocess(
            scope, cwd=facts.cwd.encode("utf-8", "surrogateescape"), environment=environment, check=self.check
        )
        self._shell = MachineShell(self._subprocess, lambda: self.fs, path=facts.shell, cwd=facts.cwd)
        self._views: Views | None = None
        if confinement is None and settings.confiner is not None:
            self._views = Views(machine, settings.confiner, scope.tasks, self.world_id, self._make_view)
        self._sandbox = MachineSandbox(
            self,
            check=self.check,
            confine=None if self._views is None else self._views.get,
            is_root=confinement is None,
        )

    @classmethod
    async def make_root(cls, machine: Machine, settings: WorldSettings, tasks: TaskGroup) -> MachineWorld:
        """The root view, which is confined by nothing if the world can make views: then those are."""
        if settings.policy.confines and settings.confiner is not None:
            settings = replace(settings, policy=SandboxPolicy.full_access())
        _refuse_unenforced(settings, op="world.open")
        environment = base_environment(machine.facts.environment, settings.environment)
        scope = ProcessScope(
            machine=machine,
            tasks=tasks,
            spills=SpillStore(machine),
            world_id=settings.identity.world_id,
            view_id=_view_id(settings),
            enforcement=lambda: settings.enforcement,
            limits=settings.policy.limits,
        )
        return cls(machine, settings, await _facts(machine, settings, environment), scope, environment)

    async def only_view(self, policy: SandboxPolicy) -> World:
        """The view that stands for all of the world: closing it closes the world."""
        view = await self._sandbox.confine(policy)
        assert isinstance(view, MachineWorld)
        view._is_all_of_world = True
        return view

    async def _make_view(
        self, cell: Cell, policy: SandboxPolicy, rules: PolicyRules, number: int, tasks: TaskGroup
    ) -> MachineWorld:
        enforcement = _with_limits_held_here(cell.enforcement, policy)
        settings = replace(
            self._settings,
            policy=policy,
            enforcement=enforcement,
            environment=(*self._settings.environment, *policy.environment),
            confiner=None,
        )
        _refuse_unenforced(settings, op="sandbox.confine")
        environment = {
            **base_environment(self._machine.facts.environment, settings.environment),
            **{name.encode(): encode_path(value) for name, value in cell.environment.items()},
        }
        facts = await _facts(cell.machine, replace(settings, cwd=self._facts.cwd), environment)
        facts = replace(
            facts,
            temp_roots=_temp_roots(self._facts.temp_roots, rules, cell.environment.get("TMPDIR")),
            clock_offset_s=self._facts.clock_offset_s,
            enforceable=self._facts.enforceable,
            not_shared=cell.not_shared,
            boundary=settings.confined_boundary or settings.boundary,
            crossings=settings.crossings
            if settings.confined_crossings is None
            else settings.confined_crossings(policy, enforcement),
        )
        confinement = _Confinement(self, cell, rules, number)
        scope = ProcessScope(
            machine=cell.machine,
            tasks=tasks,
            # What the view may not write this side writes for it, to a place that no view may write. The temp of a view
            # that may write nothing else is in memory, and small.
            spills=SpillStore(cell.machine, encode_path(facts.temp_roots[0]))
            if facts.temp_roots and policy.mode is not SandboxMode.READ_ONLY
            else SpillStore(self._machine),
            world_id=self.world_id,
            view_id=_view_id(settings, number),
            enforcement=lambda: enforcement,
            limits=policy.limits,
        )
        return MachineWorld(cell.machine, settings, facts, scope, environment, confinement)

    @property
    def identity(self) -> WorldIdentity:
        return self._settings.identity

    @property
    def view_id(self) -> str:
        return _view_id(self._settings, 1 if self._confinement is None else self._confinement.number)

    @property
    def facts(self) -> WorldFacts:
        return self._facts

    @property
    def machine(self) -> Machine:
        """What lies below; no seam, and no part of what is the same for every world."""
        return self._machine

    @property
    def explanation(self) -> str:
        """How the view is confined, step by step; empty for one that is not."""
        return "" if self._confinement is None else self._confinement.cell.explain()

    @property
    def details(self) -> Mapping[str, object]:
        """The explanation as plain JSON values."""
        return {} if self._confinement is None else self._confinement.cell.describe()

    @property
    def root_sandbox(self) -> Sandbox | None:
        """That of the root view, where this stands for all of its world; None for one view of several."""
        if self._confinement is None:
            return self.sandbox
        return self._confinement.root.sandbox if self._is_all_of_world else None

    @property
    def close_error(self) -> CleanupIncomplete | None:
        return self._close_error

    @property
    def lost(self) -> bool:
        return self._machine.lost

    @property
    def policy(self) -> SandboxPolicy:
        return self._settings.policy

    @property
    def enforcement(self) -> Enforcement:
        return self._settings.enforcement

    @property
    def fs(self) -> FileSystem:
        if self._fs is None:
            # Half of all code above the waist is about files, and running a command needs none of it.
            from execworld.machine.fs import MachineFileSystem

            self._fs = MachineFileSystem(
                self._machine,
                world_id=self.world_id,
                view_id=self.view_id,
                cwd=self._facts.cwd,
                check=self.check,
                rules=None if self._confinement is None else self._confinement.rules,
            )
        return self._fs

    @property
    def subprocess(self) -> Subprocess:
        return self._subprocess

    @property
    def shell(self) -> Shell:
        return self._shell

    @property
    def sandbox(self) -> Sandbox:
        return self._sandbox

    @property
    def closed(self) -> bool:
        return self._closing

    def check(self, op: str) -> None:
        """Refuse an operation on a closed world, or under a policy that is not enforced. No plugin can switch it off.

        Raises:
            WorldClosed, SandboxUnavailable
        """
        if self._closing:
            raise WorldClosed("the world is closed", op=op, world=self.world_id)
        _refuse_unenforced(self._settings, op)

    async def aclose(self) -> None:
        if self._is_all_of_world and self._confinement is not None:
            await self._confinement.root.aclose()
            return
        await self.close_view()
        if self._close_error is not None:
            raise self._close_error

    async def close_view(self) -> None:
        if not self._closing:
            self._closing = True
            with anyio.CancelScope(shield=True):
                try:
                    await self._close()
                finally:
                    self._over.set()
        await self._over.wait()

    async def wait_closed(self) -> None:
        await self._over.wait()

    async def _close(self) -> None:
        leftovers: list[str] = []
        survivors: list[int] = []
        if self._views is not None:
            leftovers += await self._views.aclose()
            survivors += self._views.survivors
        async with anyio.create_task_group() as group:
            for process in list(self._scope.live):
                group.start_soon(process.aclose)
        try:
            leftovers += await self._scope.spills.aclose()
            report = await self._machine.aclose()
            survivors += report.survivors
        except ExecworldError as error:
            self._close_error = CleanupIncomplete(
                f"the world could not be closed cleanly: {error.message}",
                world=self.world_id,
                op="world.close",
            )
            return
        if not report.gone or leftovers or survivors:
            parts = [f"processes {', '.join(map(str, survivors))}" if survivors else "", *leftovers]
            if not any(parts):
                leftovers = parts = [f"what ran in {self.view_id}, which was out of reach"]
            self._close_error = CleanupIncomplete(
                f"not proven gone after closing the world: {', '.join(filter(None, parts))}",
                survivors=tuple(survivors),
                leftovers=tuple(leftovers),
                world=self.world_id,
                op="world.close",
            )


def _refuse_unenforced(settings: WorldSettings, op: str) -> None:
    required = settings.policy.required()
    enforced = {dimension for dimension, entry in settings.enforcement if entry.state == "enforced"}
    missing = tuple(str(dimension) for dimension in sorted(required - enforced, key=str))
    if missing:
        raise SandboxUnavailable(
            f"the policy requires what is not enforced here: {', '.join(missing)}",
            reason=SandboxReason.MISSING_DIMENSION,
            missing=missing,
            op=op,
            world=settings.identity.world_id,
        )


def _view_id(settings: WorldSettings, number: int = 1) -> str:
    view_id = f"{settings.identity.world_id}/{settings.policy.digest}"
    return view_id if number == 1 else f"{view_id}.{number}"


def _with_limits_held_here(enforcement: Enforcement, policy: SandboxPolicy) -> Enforcement:
    """The limits that are held by this side, command by command, whatever a cell can do."""
    asked, required = policy.asked(), policy.required()
    own = {
        dimension: DimensionEnforcement(True, dimension in required, EnforcementState.ENFORCED, by=by)
        for dimension, by in _HELD_HERE.items()
        if dimension in asked
    }
    return Enforcement({**enforcement.entries, **own})


def _temp_roots(roots: tuple[str, ...], rules: PolicyRules, private: str | None) -> tuple[str, ...]:
    """Those that the view may write, its private one first."""
    allowed = tuple(root for root in roots if rules.may_write(encode_path(root)))
    return allowed if private is None else (private, *allowed)


async def _facts(machine: Machine, settings: WorldSettings, environment: Mapping[bytes, bytes]) -> WorldFacts:
    facts = machine.facts
    search = environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    cwd = decode_path(facts.cwd)
    if settings.cwd is not None:
        cwd = posixpath.normpath(posixpath.join(cwd, settings.cwd))
    enforceable = {d for d, entry in settings.enforcement if entry.state == "enforced"}
    if settings.confiner is not None:
        enforceable |= settings.confiner.enforceable
    return WorldFacts(
        os=facts.os,
        arch=facts.arch,
        kernel=facts.kernel,
        user=facts.user,
        uid=facts.uid,
        gid=facts.gid,
        home=decode_path(facts.home),
        cwd=cwd,
        temp_roots=tuple(decode_path(root) for root in facts.temp_roots),
        shell=await _find_shell(machine, tuple(d for d in search.split(b":") if d.startswith(b"/"))),
        search_path=decode_path(search),
        clock_offset_s=facts.clock_offset_s,
        boundary=settings.boundary,
        crossings=settings.crossings,
        enforceable=frozenset(enforceable),
    )


async def _find_shell(machine: Machine, directories: Iterable[bytes]) -> str | None:
    batch = Batch()
    steps = [batch.add(FindExecutable(name, tuple(directories)), tolerate=_ANY_ERRNO) for name in _SHELLS]
    try:
        results = await machine.run(batch)
    except BatchFailed:
        return None
    return next((decode_path(path) for step in steps if (path := results.get(step)) is not None), None)
