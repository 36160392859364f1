"""The image's own program, which a container that was made for a world does not begin with."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from execworld.seams.errors import ConfigurationError
from execworld.seams.subprocess import StreamMode
from execworld.seams.world import World


def entrypoint_of(image: Mapping[str, Any]) -> tuple[str, ...]:
    """What the engine would run.

    Raises:
        ConfigurationError: the image names nothing.
    """
    config: Mapping[str, Any] = image.get("Config") or {}
    entrypoint: Iterable[str] = config.get("Entrypoint") or ()
    command: Iterable[str] = config.get("Cmd") or ()
    if not (argv := (*entrypoint, *command)):
        raise ConfigurationError(
            "world `docker`: `start_entrypoint` has nothing to start: the image has no entrypoint and no command",
            hint="leave the option out",
        )
    return argv


@asynccontextmanager
async def run_entrypoint(world: World, image: Mapping[str, Any]) -> AsyncGenerator[None]:
    """Run the image's own program beside all else, under the policy of *world*, until the context is left.

    Its output goes nowhere. That it ends means nothing to the world.

    Raises:
        CommandNotFound, CommandNotExecutable, SpawnFailed, WorkingDirectoryMissing: it cannot be started.
        ConfigurationError: the image names nothing.
    """
    config: Mapping[str, Any] = image.get("Config") or {}
    directory = str(config.get("WorkingDir") or "/")
    async with world.subprocess.start(
        entrypoint_of(image), cwd=directory, stdout=StreamMode.NULL, stderr=StreamMode.NULL
    ):
        yield
