"""An image that is built from a directory of this host."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import anyio.to_thread

from execworld.providers.docker.config import Build, DockerConfig, PullPolicy
from execworld.providers.docker.engine import Engine
from execworld.providers.docker.failures import EngineRefused
from execworld.providers.docker.following import Answer
from execworld.providers.docker.reporting import Reporter
from execworld.seams.errors import ConfigurationError, WorldUnavailable
from execworld.seams.provider import OnProgress, OpenProgress

_WHAT: Final = "building the image"


async def build_image(
    engine: Engine, build: Build, config: DockerConfig, on_progress: OnProgress | None
) -> str:
    """Build it. Returns its id. It has no name, and stays as what the next build need not do again.

    Raises:
        ConfigurationError: what is to be built is not there, or cannot be read.
        EngineRefused: a step of it failed, or its base is not to be had.
    """
    if on_progress is not None:
        on_progress(OpenProgress(f"{_WHAT}: reading {build.context!r}"))
    context = await anyio.to_thread.run_sync(_pack, build)
    reporter = Reporter(_WHAT, on_progress)

    def start(client: Any) -> Answer:
        headers = {"Content-Type": "application/tar"}
        client._set_auth_headers(headers)
        parameters = {
            "dockerfile": build.dockerfile,
            "rm": True,
            "forcerm": True,
            "pull": config.pull is PullPolicy.ALWAYS,
            "buildargs": json.dumps(dict(build.args)),
            **({"target": build.target} if build.target else {}),
            **({"platform": config.platform} if config.platform else {}),
        }
        # Not by the SDK's own method, which cannot be broken off. A step may be silent for as long as it likes.
        with context:
            response = client._post(
                client._url("/build"),
                data=context,
                params=parameters,
                headers=headers,
                stream=True,
                timeout=None,
            )
        client._raise_for_status(response)
        return Answer(response, client._stream_helper(response, decode=True))

    try:
        await engine.follow(_WHAT, start, reporter)
    except EngineRefused as refused:
        refused.hint = refused.hint or f"its Dockerfile is {Path(build.context, build.dockerfile)}"
        raise
    finally:
        context.close()
    if not reporter.image:
        raise WorldUnavailable("the engine has built an image, and did not say which", op="world.open")
    return reporter.image


def _pack(build: Build) -> Any:
    """The directory as the engine wants it, in a file without a name; without what `.dockerignore` leaves out."""
    from docker.utils.build import tar

    directory = Path(build.context).absolute()
    if not directory.is_dir():
        raise ConfigurationError(f"world `docker`: there is no directory {directory} to build from")
    if not (directory / build.dockerfile).is_file():
        raise ConfigurationError(
            f"world `docker`: there is no file {build.dockerfile} in {directory}",
            hint="the option `build` may be a mapping that names it: context, dockerfile, args, target",
        )
    try:
        return tar(directory, exclude=_ignored(directory), dockerfile=(build.dockerfile, None))
    except OSError as error:
        raise ConfigurationError(
            f"world `docker`: {directory} cannot be read to build from: {error}"
        ) from error


def _ignored(directory: Path) -> list[str] | None:
    try:
        lines = (directory / ".dockerignore").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return None
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
