"""Wrong worlds: identity, closing, policies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from execworld.seams import (
    Dimension,
    DimensionEnforcement,
    Enforcement,
    EnforcementState,
    SandboxPolicy,
    World,
    WorldClosed,
)
from execworld.testing.mutants.mutant import (
    Delegate,
    DelegateWorld,
    Mutant,
    with_fs,
    with_sandbox,
    with_shell,
)


class _OtherWorldId(Delegate):
    @property
    def world_id(self) -> str:
        return f"{self.inner.world_id}-other"


class _OtherViewId(Delegate):
    @property
    def view_id(self) -> str:
        return f"{self.inner.view_id}-other"


class _ClosesOnce(DelegateWorld):
    async def aclose(self) -> None:
        if self.inner.closed:
            raise WorldClosed("closed already", world=self.inner.world_id)
        await self.inner.aclose()


class _Downgrades(Delegate):
    """Takes any policy and runs unconfined."""

    def __init__(self, world: World) -> None:
        super().__init__(world.sandbox)
        self._world = world

    async def confine(self, policy: SandboxPolicy) -> World:
        return self._world


class _ClaimedView(DelegateWorld):
    def __init__(self, inner: World, policy: SandboxPolicy) -> None:
        super().__init__(inner)
        self.policy = policy
        row = DimensionEnforcement(asked=True, required=True, state=EnforcementState.ENFORCED, by="belief")
        self.enforcement = Enforcement(dict.fromkeys(Dimension, row))


class _Claims(_Downgrades):
    """Takes any policy, runs unconfined, and reports it enforced."""

    async def confine(self, policy: SandboxPolicy) -> World:
        return self._world if not policy.confines else cast(World, _ClaimedView(self._world, policy))


class _ReadsProfiles(Delegate):
    async def run(self, command: str, **options: Any) -> Any:
        prefix = '[ ! -r "$HOME/.profile" ] || . "$HOME/.profile"\n'
        # Not those of whoever runs the suite, which may do anything.
        reads = command.strip() and "HOME" in (options.get("env") or {})
        return await self.inner.run(prefix + command if reads else command, **options)


class _KeepsTheDirectory(Delegate):
    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self._last: Any = None

    async def run(self, command: str, *, cwd: Any = None, **options: Any) -> Any:
        carried, self._last = self._last, "/" if command.startswith("x=1; cd /") else None
        return await self.inner.run(command, cwd=carried or cwd, **options)


class _MovesInSilence(Delegate):
    """A command that is started somewhere else does not say so."""

    @asynccontextmanager
    async def start(self, command: str, **options: Any) -> AsyncGenerator[Any]:
        async with self.inner.start(command, **options) as process:
            yield _SaysNothing(process)


class _SaysNothing(Delegate):
    async def wait(self) -> Any:
        return replace(await self.inner.wait(), notes=())


WORLD_MUTANTS = (
    Mutant("mutant two-world-ids", "fs belongs to another world", ("W-13",), world=with_fs(_OtherWorldId)),
    Mutant(
        "mutant two-view-ids", "the shell belongs to another view", ("W-13",), world=with_shell(_OtherViewId)
    ),
    Mutant(
        "mutant closes-once",
        "fails when it is closed again",
        ("W-10",),
        world=lambda world: cast(World, _ClosesOnce(world)),
    ),
    Mutant(
        "mutant downgrades",
        "takes every policy and confines nothing",
        ("SB-2", "SB-3", "SB-5", "SB-6", "SB-7", "SB-8"),
        ("SB-11", "SB-12", "SB-13", "SB-14"),
        world=with_sandbox(_Downgrades),
    ),
    Mutant(
        "mutant claims",
        "reports what it does not enforce",
        ("SB-3", "SB-5", "SB-6", "SB-7", "SB-8", "SB-10"),
        ("SB-11", "SB-12", "SB-13", "SB-14"),
        world=with_sandbox(_Claims),
    ),
    Mutant("mutant reads-profiles", "runs start-up files", ("S-60",), world=with_shell(_ReadsProfiles)),
    Mutant(
        "mutant keeps-the-directory",
        "carries the directory over to the next call",
        ("S-2",),
        world=with_shell(_KeepsTheDirectory),
    ),
    Mutant(
        "mutant moves-in-silence",
        "starts a command in another directory without a word",
        ("S-67",),
        world=with_shell(_MovesInSilence),
    ),
)
