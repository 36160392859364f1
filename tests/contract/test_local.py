"""The contract, kept by the local world: on both event loops, and with output in awkward pieces."""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from execworld.seams import World
from execworld.seams.testing import (
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
from execworld.testing.splitting import SplittingMachine
from execworld.testing.worlds import open_breakable_local, open_local
from execworld.world import open_world


class LocalWorld:
    """Maker for worlds of the provider ``local``."""

    world_kind = "local"

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, directory: Path) -> WorldMaker:
        def make() -> AbstractAsyncContextManager[World]:
            return open_world("local", cwd=str(directory))

        return make


class TestWorld(LocalWorld, WorldContract):
    pass


class TestFileSystem(LocalWorld, FileSystemContract):
    pass


class TestSubprocess(LocalWorld, SubprocessContract):
    pass


class TestTerminal(LocalWorld, TerminalContract):
    pass


class TestShell(LocalWorld, ShellContract):
    pass


class TestSandbox(LocalWorld, SandboxContract):
    pass


class TestLossIsADeviation(LocalWorld, LossContract):
    """The provider has nothing that could be lost, and says so in the list of deviations."""


class TestLossOfALink(LossContract):
    """The semantics above a machine that can be lost: no result is made up."""

    world_kind = "breakable"

    @pytest.fixture(scope="class")
    @classmethod
    def broken_world_maker(cls, directory: Path) -> BrokenWorldMaker:
        return lambda: open_breakable_local(str(directory))


class SplitWorld:
    """Maker for local worlds whose output arrives in pieces of awkward sizes, or byte by byte at first."""

    world_kind = "local"

    @pytest.fixture(scope="class", params=[0, 2000], ids=["awkward", "one-byte"])
    @classmethod
    def world_maker(cls, request: pytest.FixtureRequest, directory: Path) -> WorldMaker:
        single: int = request.param
        return lambda: open_local(
            str(directory), wrap=lambda machine: SplittingMachine(machine, single_bytes=single)
        )


class TestSplitSubprocess(SplitWorld, SubprocessContract):
    pass


class TestSplitTerminal(SplitWorld, TerminalContract):
    pass


class TestSplitShell(SplitWorld, ShellContract):
    pass
