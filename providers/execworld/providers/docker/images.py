"""The image that a container is made of. Pulling and building belong here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from execworld.providers.docker.config import DockerConfig
from execworld.providers.docker.engine import Engine
from execworld.seams.errors import Unsupported, WorldUnavailable

_SAME: Final = {"x86_64": "amd64", "aarch64": "arm64"}


async def find_image(engine: Engine, config: DockerConfig, info: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the engine, whose `info` is given, says of the image of *config*.

    Raises:
        WorldUnavailable: the engine does not have it, or cannot run it.
    """
    if config.build is not None:
        raise Unsupported("an image cannot be built yet", op="world.open")
    found = await engine.image(config.image)
    if found is None:
        raise WorldUnavailable(
            f"the engine at {engine.address.shown} has no image {config.image}",
            op="world.open",
            hint=f"`docker pull {config.image}` fetches it",
        )
    _refuse_foreign(config, found, info)
    return found


def _refuse_foreign(config: DockerConfig, image: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Refuse an image for another machine, unless its platform was asked for: the engine may emulate it then."""
    if image.get("Os") not in (None, "", "linux"):
        raise WorldUnavailable(
            f"the image {config.image} is for {image['Os']}, not for Linux", op="world.open"
        )
    if config.platform:
        return
    runs = _SAME.get(info["Architecture"], info["Architecture"])
    if image["Architecture"] not in ("", runs):
        raise WorldUnavailable(
            f"the image {config.image} is for {image['Architecture']}, and the engine runs {runs}",
            op="world.open",
            hint="pull it for this platform; or name its platform by the option `platform`, if the engine emulates it",
        )
