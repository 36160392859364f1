"""What every contract suite starts from: the world under test and a directory of its own in it."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import anyio
import pytest

from execworld.seams import ExecworldError, World

WorldMaker: TypeAlias = "Callable[[], AbstractAsyncContextManager[World]]"
"""Opens a world whose ``facts.cwd`` is a directory that tests may write to; leaving the context closes it."""


@dataclass(frozen=True, slots=True)
class BreakableWorld:
    """A world, and the way to lose it: kill what it consists of, or cut what lies between it and this process."""

    world: World
    break_it: Callable[[], Awaitable[None]]


BrokenWorldMaker: TypeAlias = "Callable[[], AbstractAsyncContextManager[BreakableWorld]]"


class ContractSuite:
    """Base of all suites.

    A provider derives ``class TestX(SomeContract)`` and gives a fixture ``world_maker`` (a `WorldMaker`), in the
    class or in a ``conftest.py``; the pytest plugin of execworld gives one for ``--world NAME``. `LossContract` also
    takes ``broken_world_maker`` (a `BrokenWorldMaker`). Each test is one clause: ``test_F31_...`` tests clause F-31,
    and its docstring is the rule.

    Attributes:
        world_kind: Whose deviations apply; empty for the kind named by ``--world``.
    """

    world_kind: ClassVar[str] = ""
    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [pytest.mark.anyio]

    @pytest.fixture(scope="class")
    @classmethod
    async def world(cls, world_maker: WorldMaker) -> AsyncIterator[World]:
        """One world for all clauses of a class that do not close it."""
        async with world_maker() as world:
            yield world

    @pytest.fixture
    async def scratch(self, world: World) -> AsyncIterator[str]:
        """Canonical path of an empty directory, removed afterwards."""
        async with scratch_directory(world) as path:
            yield path


@asynccontextmanager
async def scratch_directory(world: World) -> AsyncGenerator[str]:
    """An empty directory below the working directory of *world*, removed afterwards; its canonical path."""
    path = f"{world.facts.cwd.rstrip('/')}/contract-{secrets.token_hex(6)}"
    await world.fs.make_directory(path, exist_ok=False)
    try:
        yield (await world.fs.resolve(path)).process_path
    finally:
        if not world.closed:
            with anyio.CancelScope(shield=True):
                await _remove(world, path)


async def _remove(world: World, path: str) -> None:
    try:
        await world.fs.remove(path, recursive=True, missing_ok=True)
    except ExecworldError:
        # A clause that was about a world's failure to remove is judged by its own assertions.
        await world.subprocess.run(["rm", "-rf", path])
