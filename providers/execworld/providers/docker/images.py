"""The image that a container is made of: it is there, it is pulled, or it is built."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from execworld.providers.docker.building import build_image
from execworld.providers.docker.config import Build, DockerConfig, PullPolicy
from execworld.providers.docker.engine import Engine
from execworld.providers.docker.failures import EngineRefused
from execworld.providers.docker.following import Answer
from execworld.providers.docker.reporting import Reporter
from execworld.seams.errors import WorldUnavailable
from execworld.seams.provider import OnProgress

_SAME: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_ID: Final = re.compile(r"sha256:[0-9a-f]{64}")


async def find_image(
    engine: Engine, config: DockerConfig, info: Mapping[str, Any], on_progress: OnProgress | None = None
) -> Mapping[str, Any]:
    """What the engine, whose `info` is given, says of the image of *config*, which may have to be fetched or built.

    Its id says for good which one that is; a name may mean another image a moment later.

    Raises:
        WorldUnavailable: the engine does not have it and cannot get it, or cannot run it.
        ConfigurationError: what is to be built cannot be.
    """
    if isinstance(config.build, Build):
        name = "that was built"
        image = await build_image(engine, config.build, config, on_progress)
        found = await engine.image(image)
    else:
        name = config.image
        found = await _find_named(engine, config, on_progress)
    if found is None:
        raise _missing(engine, name)
    _refuse_foreign(name, config.platform, found, info)
    return found


async def _find_named(
    engine: Engine, config: DockerConfig, on_progress: OnProgress | None
) -> Mapping[str, Any] | None:
    name = config.image
    found = await engine.image(name)
    is_wanted = found is not None and _is_for(found, config.platform)
    if config.pull is PullPolicy.NEVER or _ID.fullmatch(name):
        return found
    if is_wanted and config.pull is PullPolicy.MISSING:
        return found
    try:
        await _pull(engine, name, config.platform, on_progress)
    except EngineRefused as refused:
        lacking = (
            "has no" if found is None else "has another" if not is_wanted else "has perhaps not the newest"
        )
        raise WorldUnavailable(
            f"the engine at {engine.address.shown} {lacking} image {name}, and it cannot be pulled: "
            f"{refused.explanation}",
            op="world.open",
            hint=refused.hint
            or "the option `pull` set to never uses what is there; `docker load` brings an image",
        ) from refused
    return await engine.image(name)


async def _pull(engine: Engine, name: str, platform: str, on_progress: OnProgress | None) -> None:
    def pull(client: Any) -> Answer:
        from docker import auth
        from docker.utils import parse_repository_tag

        repository, tag = parse_repository_tag(name)
        registry, _ = auth.resolve_repository_name(repository)
        logins: Any = auth
        login = logins.get_config_header(client, registry)
        # Not by the SDK's own method: that waits for ever when the engine says nothing, and cannot be broken off.
        response = client._post(
            client._url("/images/create"),
            params={"fromImage": repository, "tag": tag or "latest"}
            | ({"platform": platform} if platform else {}),
            headers={"X-Registry-Auth": login} if login else {},
            stream=True,
        )
        client._raise_for_status(response)
        return Answer(response, client._stream_helper(response, decode=True))

    what = f"pulling the image {name}"
    await engine.follow(what, pull, Reporter(what, on_progress))


def _missing(engine: Engine, name: str) -> WorldUnavailable:
    return WorldUnavailable(
        f"the engine at {engine.address.shown} has no image {name}",
        op="world.open",
        hint=f"`docker pull {name}` fetches it, and so does the option `pull` set to missing",
    )


def _is_for(image: Mapping[str, Any], platform: str) -> bool:
    """Whether an image is for a *platform* such as ``linux/arm64`` or ``arm64``; any is when none is asked for."""
    parts = platform.split("/")
    architecture = parts[0] if len(parts) == 1 else parts[1]
    return not platform or image.get("Architecture") in ("", _SAME.get(architecture, architecture))


def _refuse_foreign(name: str, platform: str, image: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Refuse an image for another machine, unless its platform was asked for: the engine may emulate it then."""
    if image.get("Os") not in (None, "", "linux"):
        raise WorldUnavailable(f"the image {name} is for {image['Os']}, not for Linux", op="world.open")
    if not _is_for(image, platform):
        raise WorldUnavailable(
            f"the image {name} is for {image['Architecture']}, and {platform} was asked for",
            op="world.open",
            hint="leave the option `platform` out, or let the option `pull` fetch the other one",
        )
    if platform:
        return
    runs = _SAME.get(info["Architecture"], info["Architecture"])
    if image["Architecture"] not in ("", runs):
        raise WorldUnavailable(
            f"the image {name} is for {image['Architecture']}, and the engine runs {runs}",
            op="world.open",
            hint="pull it for this platform; or name its platform by the option `platform`, if the engine emulates it",
        )
