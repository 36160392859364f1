"""The files of the host that this program itself runs on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from execworld.seams import FileSystem
from execworld.world.opening import resolve_world


@asynccontextmanager
async def open_host_files() -> AsyncGenerator[FileSystem]:
    """Our own side of a copy, and the documents that are followed.

    No floor of the machine stands in the way: a floor is about what agents get, and no command runs through this.
    """
    async with resolve_world("local", {}).open_composed() as here:
        yield here.fs
