"""`World` over any machine: one identity, four seams, one check before every operation."""

from __future__ import annotations

import posixpath
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.environment import base_environment
from execworld.machine.operations import FindExecutable
from execworld.machine.process import ProcessScope
from execworld.machine.shell import MachineShell
from execworld.machine.spill import SpillStore
from execworld.machine.subprocess import MachineSubprocess
from execworld.seams.enforcement import Enforcement
from execworld.seams.errors import (
    CleanupIncomplete,
    ExecworldError,
    SandboxReason,
    SandboxUnavailable,
    WorldClosed,
    WorldMismatch,
)
from execworld.seams.filesystem import FileSystem
from execworld.seams.identity import Boundary, WorldFacts, WorldIdentity
from execworld.seams.paths import decode_path
from execworld.seams.policy import SandboxPolicy
from execworld.seams.sandbox import Sandbox
from execworld.seams.shell import Shell
from execworld.seams.subprocess import Subprocess
from execworld.seams.world import World

_SHELLS = (b"bash", b"sh")


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """What a provider knows about the world that it makes.

    Attributes:
        identity: Of this generation.
        policy: Policy of the root view.
        enforcement: What was proven to hold for it.
        boundary: What separates the world from this host, and *crossings* what crosses it.
        cwd: Working directory; None for the machine's own.
        environment: Names that pass from the machine's environment beside the allow-list.
    """

    identity: WorldIdentity
    policy: SandboxPolicy
    enforcement: Enforcement
    boundary: Boundary
    crossings: tuple[str, ...] = ()
    cwd: str | None = None
    environment: tuple[str, ...] = ()


@asynccontextmanager
async def open_machine_world(machine: Machine, settings: WorldSettings) -> AsyncGenerator[World]:
    """The root view of a world on *machine*, which is closed with it.

    Raises:
        SandboxUnavailable: the policy asks for more than what is enforced; the machine was closed again.
        CleanupIncomplete: at the end, something could not be proven gone; only a note on an error that is under way.
    """
    async with anyio.create_task_group() as tasks:
        try:
            world = await MachineWorld.make(machine, settings, tasks)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await machine.aclose()
            raise
        try:
            yield world
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                try:
                    await world.aclose()
                except CleanupIncomplete as incomplete:
                    error.add_note(
                        f"[{incomplete.code}] {incomplete.message}"
                    )  # must not hide what came first
            raise
        else:
            with anyio.CancelScope(shield=True):
                await world.aclose()
        finally:
            tasks.cancel_scope.cancel()


class MachineWorld(World):
    """One view. Made by `open_machine_world`."""

    def __init__(
        self, machine: Machine, settings: WorldSettings, facts: WorldFacts, scope: ProcessScope
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._facts = facts
        self._scope = scope
        self._closing: anyio.Event | None = None
        self._close_error: CleanupIncomplete | None = None
        environment = base_environment(machine.facts.environment, settings.environment)
        self._fs: FileSystem | None = None
        self._subprocess = MachineSubprocess(
            scope, cwd=facts.cwd.encode("utf-8", "surrogateescape"), environment=environment, check=self.check
        )
        self._shell = MachineShell(self._subprocess, lambda: self.fs, path=facts.shell, cwd=facts.cwd)
        self._sandbox = UnconfinedSandbox(self)

    @classmethod
    async def make(
        cls, machine: Machine, settings: WorldSettings, tasks: anyio.abc.TaskGroup
    ) -> MachineWorld:
        _refuse_unenforced(settings, op="world.open")
        scope = ProcessScope(
            machine=machine,
            tasks=tasks,
            spills=SpillStore(machine),
            world_id=settings.identity.world_id,
            view_id=_view_id(settings),
            enforcement=lambda: settings.enforcement,
        )
        return cls(machine, settings, await _facts(machine, settings), scope)

    @property
    def identity(self) -> WorldIdentity:
        return self._settings.identity

    @property
    def view_id(self) -> str:
        return _view_id(self._settings)

    @property
    def facts(self) -> WorldFacts:
        return self._facts

    @property
    def machine(self) -> Machine:
        """What lies below; no seam, and no part of what is the same for every world."""
        return self._machine

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
        return self._closing is not None

    def check(self, op: str) -> None:
        """Refuse an operation on a closed world, or under a policy that is not enforced. No plugin can switch it off.

        Raises:
            WorldClosed, SandboxUnavailable
        """
        if self._closing is not None:
            raise WorldClosed("the world is closed", op=op, world=self.world_id)
        _refuse_unenforced(self._settings, op)

    async def aclose(self) -> None:
        if self._closing is None:
            self._closing = anyio.Event()
            with anyio.CancelScope(shield=True):
                try:
                    await self._close()
                finally:
                    self._closing.set()
        await self._closing.wait()
        if self._close_error is not None:
            raise self._close_error

    async def _close(self) -> None:
        leftovers: list[str] = []
        async with anyio.create_task_group() as group:
            for process in list(self._scope.live):
                group.start_soon(process.aclose)
        try:
            leftovers += await self._scope.spills.aclose()
            report = await self._machine.aclose()
        except ExecworldError as error:
            self._close_error = CleanupIncomplete(
                f"the world could not be closed cleanly: {error.message}",
                world=self.world_id,
                op="world.close",
            )
            return
        if not report.gone or leftovers:
            parts = [
                f"processes {', '.join(map(str, report.survivors))}" if report.survivors else "",
                *leftovers,
            ]
            self._close_error = CleanupIncomplete(
                f"not proven gone after closing the world: {', '.join(filter(None, parts))}",
                survivors=report.survivors,
                leftovers=tuple(leftovers),
                world=self.world_id,
                op="world.close",
            )


class UnconfinedSandbox(Sandbox):
    """The sandbox seam of a world that has no cells: it refuses every policy that asks for anything."""

    def __init__(self, world: MachineWorld) -> None:
        self._world = world

    @property
    def world_id(self) -> str:
        return self._world.world_id

    @property
    def view_id(self) -> str:
        return self._world.view_id

    @property
    def policy(self) -> SandboxPolicy:
        return self._world.policy

    @property
    def enforcement(self) -> Enforcement:
        return self._world.enforcement

    async def confine(self, policy: SandboxPolicy) -> World:
        self._world.check("sandbox.confine")
        if policy.digest == self._world.policy.digest:
            return self._world
        if not policy.confines:
            raise WorldMismatch(
                "a wider view can be made only from the root view", op="sandbox.confine", world=self.world_id
            )
        raise cannot_confine(self._world.identity, policy, op="sandbox.confine")


def cannot_confine(identity: WorldIdentity, policy: SandboxPolicy, op: str) -> SandboxUnavailable:
    """The refusal of a world that confines nothing."""
    missing = tuple(str(dimension) for dimension in sorted(policy.asked(), key=str))
    return SandboxUnavailable(
        f"world {identity.kind} confines nothing, and the policy asks for {policy.mode}",
        reason=SandboxReason.WORLD_CANNOT_CONFINE,
        missing=missing,
        op=op,
        world=identity.world_id,
        hint="choose a world that confines, or ask for full-access by name",
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


def _view_id(settings: WorldSettings) -> str:
    return f"{settings.identity.world_id}/{settings.policy.digest}"


async def _facts(machine: Machine, settings: WorldSettings) -> WorldFacts:
    facts = machine.facts
    environment = dict(base_environment(facts.environment, settings.environment))
    search = environment.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin")
    cwd = decode_path(facts.cwd)
    if settings.cwd is not None:
        cwd = posixpath.normpath(posixpath.join(cwd, settings.cwd))
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
        enforceable=frozenset(d for d, entry in settings.enforcement if entry.state == "enforced"),
    )


async def _find_shell(machine: Machine, directories: Iterable[bytes]) -> str | None:
    batch = Batch()
    ignored = range(1, 4096)
    steps = [batch.add(FindExecutable(name, tuple(directories)), tolerate=ignored) for name in _SHELLS]
    try:
        results = await machine.run(batch)
    except BatchFailed:
        return None
    return next((decode_path(path) for step in steps if (path := results.get(step)) is not None), None)
