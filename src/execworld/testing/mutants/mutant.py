"""What a mutant is, and how one is made of a local world."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

from execworld.machine.base import Machine
from execworld.seams import FileSystem, Shell, Subprocess, World
from execworld.seams.testing import BreakableWorld
from execworld.testing.worlds import open_breakable_local, open_local


class Delegate:
    """Behaves like *inner* in all that a subclass does not define.

    Not typed as the contract it stands for: it is there to break it. Calls among the methods of *inner* do not pass
    through here, so a mutation is exactly what a caller sees.
    """

    def __init__(self, inner: Any) -> None:  # the contract depends on the subclass
        self.inner = inner

    def __getattr__(self, name: str) -> Any:  # whatever *inner* has
        return getattr(self.inner, name)


class DelegateWorld(Delegate):
    """A world with other seams."""

    def __init__(
        self,
        inner: World,
        *,
        fs: Any = None,
        subprocess: Any = None,
        shell: Any = None,
        sandbox: Any = None,
    ) -> None:
        super().__init__(inner)
        self.fs = inner.fs if fs is None else fs
        self.subprocess = inner.subprocess if subprocess is None else subprocess
        self.shell = inner.shell if shell is None else shell
        self.sandbox = inner.sandbox if sandbox is None else sandbox

    @classmethod
    def of(cls, world: World, **seams: Any) -> World:
        """*world* with other seams, passed off as a world."""
        return cast(World, cls(world, **seams))


def with_fs(wrong: Callable[[FileSystem], object]) -> Callable[[World], World]:
    """Replace the file system of a world."""
    return lambda world: DelegateWorld.of(world, fs=wrong(world.fs))


def with_subprocess(wrong: Callable[[Subprocess], object]) -> Callable[[World], World]:
    return lambda world: DelegateWorld.of(world, subprocess=wrong(world.subprocess))


def with_shell(wrong: Callable[[Shell], object]) -> Callable[[World], World]:
    return lambda world: DelegateWorld.of(world, shell=wrong(world.shell))


def with_sandbox(wrong: Callable[[World], object]) -> Callable[[World], World]:
    return lambda world: DelegateWorld.of(world, sandbox=wrong(world))


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong world.

    Attributes:
        name: Distinct; begins with ``mutant``.
        summary: What is wrong, as the reason why the clauses fail.
        rejected_by: Ids of the clauses that must fail, one case alone as ``P-29[124]``.
        also_rejected_by: Further ones, which are run only with all clauses. All others must pass.
        machine: What stands below the semantics.
        world: What stands above them.
        breakable: The suite of lost worlds is run, too, over a link that can be cut.
    """

    name: str
    summary: str
    rejected_by: tuple[str, ...]
    also_rejected_by: tuple[str, ...] = ()
    machine: Callable[[Machine], Machine] | None = None
    world: Callable[[World], World] | None = None
    breakable: bool = False

    def rejects(self, clause: str, case: str) -> bool:
        named = {*self.rejected_by, *self.also_rejected_by}
        return clause in named or f"{clause}[{case}]" in named

    @property
    def rejecting_clauses(self) -> frozenset[str]:
        """The clauses of `rejected_by` without their cases."""
        return frozenset(entry.partition("[")[0] for entry in self.rejected_by)

    @asynccontextmanager
    async def open(self, cwd: str) -> AsyncGenerator[World]:
        async with open_local(cwd, wrap=self.machine) as world:
            yield world if self.world is None else self.world(world)

    @asynccontextmanager
    async def open_breakable(self, cwd: str) -> AsyncGenerator[BreakableWorld]:
        async with open_breakable_local(cwd, wrap=self.machine) as broken:
            yield broken
