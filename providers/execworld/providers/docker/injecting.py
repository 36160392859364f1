"""How the warden gets into a container that is made for it: nothing of the image is used."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio

from execworld.machine.warden import locate_warden
from execworld.providers.docker.engine import Engine, archive_of
from execworld.providers.docker.labels import Purpose, labels_for
from execworld.seams.errors import WorldUnavailable

DIRECTORY: Final = "/.execworld"
PROGRAM: Final = f"{DIRECTORY}/warden"


async def read_warden(architecture: str, path: str = "") -> bytes:
    """The binary for *architecture*, or the one at *path*.

    Raises:
        WorldUnavailable: there is none.
    """
    file = Path(path) if path else locate_warden(architecture)
    try:
        return await anyio.Path(file).read_bytes()
    except OSError as error:
        raise WorldUnavailable(
            f"the warden {file} cannot be read: {error.strerror}",
            op="world.open",
            hint="the option `warden` names another one than that which is installed",
        ) from error


async def inject(engine: Engine, container: str, warden: bytes) -> None:
    """Put the warden into a container that was made with a root that can be written, and not started yet.

    It belongs to root and nobody may write it, so that programs of another user cannot replace it.
    """
    archive = archive_of((DIRECTORY, None, 0o755, 0, 0), (PROGRAM, warden, 0o555, 0, 0))
    await engine.put(container, archive, what="putting the warden into the container")


@asynccontextmanager
async def carried(engine: Engine, name: str, image: str, warden: bytes) -> AsyncGenerator[Mapping[str, Any]]:
    """What to add to the configuration of a container whose root cannot be written: it mounts the warden read-only.

    The engine refuses archives for such a root, and for each path of it. A second container, which is never started,
    gets the warden into a volume without a name instead. The first one takes that over, so that it goes when that
    container is removed, by whomever.
    """
    carrier = f"{name}-carrier"
    config: dict[str, Any] = {
        "Image": image,
        "Entrypoint": [PROGRAM],
        "Labels": labels_for(Purpose.CARRIER, carrier, lifetime_s=3600),
        "Volumes": {DIRECTORY: {}},
        "HostConfig": {"NetworkMode": "none"},
    }
    try:
        await engine.create(config, carrier)
        await inject(engine, carrier, warden)
        yield {"VolumesFrom": [f"{carrier}:ro"]}
    finally:
        with anyio.CancelScope(shield=True):
            await engine.remove(carrier, volumes=True)
