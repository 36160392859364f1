"""The contract, kept over a warden: on a socket pair, on one that gives single bytes, and on a slow one."""

from __future__ import annotations

import functools
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from execworld.machine.warden import locate_warden
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
from execworld.testing.warden_worlds import SplitTransport, open_breakable_warden_world, open_warden_world


@pytest.fixture(scope="module", autouse=True)
def binary() -> Path:
    """Built by the setup; without it nothing here may pass, or be passed over."""
    return locate_warden()


class WardenWorld:
    """Maker for worlds over a warden on a socket pair."""

    world_kind = "warden"

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls, directory: Path) -> WorldMaker:
        def make() -> AbstractAsyncContextManager[World]:
            return open_warden_world(str(directory))

        return make


class TestWorld(WardenWorld, WorldContract):
    pass


class TestFileSystem(WardenWorld, FileSystemContract):
    pass


class TestSubprocess(WardenWorld, SubprocessContract):
    pass


class TestTerminal(WardenWorld, TerminalContract):
    pass


class TestShell(WardenWorld, ShellContract):
    pass


class TestSandbox(WardenWorld, SandboxContract):
    pass


class TestLoss(LossContract):
    """The warden is killed."""

    world_kind = "warden"

    @pytest.fixture(scope="class")
    @classmethod
    def broken_world_maker(cls, directory: Path) -> BrokenWorldMaker:
        return lambda: open_breakable_warden_world(str(directory))


class SplitWorld:
    """Maker for worlds whose link gives single bytes, or is slow."""

    world_kind = "warden"

    @pytest.fixture(scope="class", params=[(1, 0.0), (4096, 0.002)], ids=["one-byte", "delayed"])
    @classmethod
    def world_maker(cls, request: pytest.FixtureRequest, directory: Path) -> WorldMaker:
        piece_bytes, delay_s = request.param
        link = functools.partial(SplitTransport, piece_bytes=piece_bytes, delay_s=delay_s)
        return lambda: open_warden_world(str(directory), link=link)


class TestSplitFileSystem(SplitWorld, FileSystemContract):
    pass


class TestSplitSubprocess(SplitWorld, SubprocessContract):
    pass


class TestSplitTerminal(SplitWorld, TerminalContract):
    pass


class TestSplitShell(SplitWorld, ShellContract):
    pass
