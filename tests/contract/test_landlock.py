"""The contract, kept by the landlock world: confined as it is by default, and as the root of views."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from execworld.machine.world import MachineWorld
from execworld.seams import SandboxPolicy, World
from execworld.seams.testing import (
    BreakableWorld,
    BrokenWorldMaker,
    FileSystemContract,
    LossContract,
    SandboxContract,
    ShellContract,
    SubprocessContract,
    TerminalContract,
    WorldContract,
    WorldMaker,
)
from execworld.seams.testing.probes import eventually
from execworld.world import open_world

pytestmark = pytest.mark.landlock


class ConfinedWorld:
    """Maker for worlds of the provider ``landlock`` as they are by default: workspace-write on the directory."""

    world_kind = "landlock"

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, directory: Path) -> WorldMaker:
        def make() -> AbstractAsyncContextManager[World]:
            return open_world("landlock", cwd=str(directory))

        return make


class RootView:
    """Maker for worlds opened with full access, which make the views."""

    world_kind = "landlock"

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, directory: Path) -> WorldMaker:
        def make() -> AbstractAsyncContextManager[World]:
            return open_world("landlock", cwd=str(directory), policy=SandboxPolicy.full_access())

        return make


class TestWorld(ConfinedWorld, WorldContract):
    pass


class TestFileSystem(ConfinedWorld, FileSystemContract):
    pass


class TestSubprocess(ConfinedWorld, SubprocessContract):
    pass


class TestTerminal(ConfinedWorld, TerminalContract):
    pass


class TestShell(ConfinedWorld, ShellContract):
    pass


class TestRootWorld(RootView, WorldContract):
    pass


class TestRootSandbox(RootView, SandboxContract):
    pass


def children_of(parent: int) -> list[int]:
    """All descendants, those of the first generation first."""
    found: list[int] = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found + [deeper for child in found for deeper in children_of(child)]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@asynccontextmanager
async def open_breakable(cwd: str, *, cell: bool) -> AsyncGenerator[BreakableWorld]:
    """A confined world whose cell, or whose first warden, can be killed."""
    before = set(children_of(os.getpid()))
    async with open_world("landlock", cwd=cwd) as world:
        assert isinstance(world, MachineWorld)
        wardens = [pid for pid in children_of(os.getpid()) if pid not in before]

        async def have_ended() -> bool:
            return not any(runs(pid) for pid in wardens[1 if cell else 0 :])

        async def kill() -> None:
            for pid in wardens[1:] if cell else wardens[:1]:
                with contextlib.suppress(ProcessLookupError):  # it ended with its parent
                    os.kill(pid, signal.SIGKILL)
            # A cell ends with its warden, though a moment later, and answers until then.
            await eventually(have_ended, "the wardens live on", within_s=10)

        yield BreakableWorld(world, kill)


class TestLossOfTheWarden(LossContract):
    """The first warden is killed, and its cells with it."""

    world_kind = "landlock"

    @pytest.fixture(scope="class")
    @classmethod
    def broken_world_maker(cls, directory: Path) -> BrokenWorldMaker:
        return lambda: open_breakable(str(directory), cell=False)


class TestLossOfTheCell(LossContract):
    """The cell alone is killed."""

    world_kind = "landlock"

    @pytest.fixture(scope="class")
    @classmethod
    def broken_world_maker(cls, directory: Path) -> BrokenWorldMaker:
        return lambda: open_breakable(str(directory), cell=True)
