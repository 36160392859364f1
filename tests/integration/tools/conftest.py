"""Agents in the worlds in which every case about tools runs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.integration.cases.conftest import WORLDS

from execworld.tools.jobs import Jobs
from execworld.tools.session import ToolSession

from .agents import Agent


@asynccontextmanager
async def open_agent(kind: str, directory: Path) -> AsyncGenerator[Agent]:
    async with WORLDS[kind](directory) as world, Jobs() as jobs, ToolSession(world.facts.cwd) as session:
        yield Agent(world, session, jobs, directory)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    directory = tmp_path / "world"
    directory.mkdir()
    return directory


@pytest.fixture(params=WORLDS)
async def agent(request: pytest.FixtureRequest, directory: Path) -> AsyncGenerator[Agent]:
    """In an empty working directory that may be written to."""
    async with open_agent(str(request.param), directory) as agent:
        yield agent


@pytest.fixture
async def confined(directory: Path) -> AsyncGenerator[Agent]:
    async with open_agent("landlock", directory) as agent:
        yield agent
