"""The worlds in which tools are tried, each with an empty working directory that may be written to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from tests.contract.docker_worlds import WORKSPACE, engine_of_this_host, open_container

from execworld.seams import SandboxPolicy, World
from execworld.tools.terminals import TerminalService, open_terminals
from execworld.world import open_world

# A container of the tests has a shell and little else.
EQUIPPED: Final[list[Any]] = ["local", pytest.param("landlock", marks=pytest.mark.landlock)]
WORLDS: Final[list[Any]] = [*EQUIPPED, pytest.param("docker", marks=pytest.mark.docker)]


async def opened(kind: str, directory: Path) -> AsyncGenerator[World]:
    if kind == "docker":
        engine_of_this_host()
        async with open_container(SandboxPolicy.workspace_write(WORKSPACE)) as world:
            yield world
        return
    await anyio.Path(directory).mkdir()
    policy = SandboxPolicy.full_access() if kind == "local" else SandboxPolicy.workspace_write(str(directory))
    async with open_world(kind, cwd=str(directory), policy=policy) as world:
        yield world


@pytest.fixture(params=WORLDS)
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    async for each in opened(str(request.param), tmp_path / "world"):
        yield each


@pytest.fixture(params=EQUIPPED)
async def equipped_world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[World]:
    """One that has editors and interpreters."""
    async for each in opened(str(request.param), tmp_path / "world"):
        yield each


@pytest.fixture
async def terminals() -> AsyncGenerator[TerminalService]:
    async with open_terminals() as service:
        yield service
