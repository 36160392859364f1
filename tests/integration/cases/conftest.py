"""The worlds in which every reported case runs.

A case is written against the seams alone, so a further world is one more line in `WORLDS`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from execworld.seams import SandboxPolicy, World
from execworld.world import open_world

OpenCase: TypeAlias = "Callable[[Path], AbstractAsyncContextManager[World]]"

WORLDS: Final[dict[str, OpenCase]] = {
    "local": lambda directory: open_world("local", cwd=str(directory)),
    "landlock": lambda directory: open_world(
        "landlock", cwd=str(directory), policy=SandboxPolicy.workspace_write(str(directory))
    ),
}


@pytest.fixture(params=WORLDS)
def case_world(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[], AbstractAsyncContextManager[World]]:
    """Opens a world whose working directory is empty and may be written to."""
    open_case = WORLDS[str(request.param)]
    directory = tmp_path / "world"
    directory.mkdir()
    return lambda: open_case(directory)


@pytest.fixture
async def world(case_world: Callable[[], AbstractAsyncContextManager[World]]) -> AsyncGenerator[World]:
    async with case_world() as world:
        yield world
