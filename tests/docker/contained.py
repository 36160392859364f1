"""A warden as the first process of a container, reached by the docker command; an image that has nothing else."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import pytest

from execworld.machine.warden import (
    LinkEnd,
    Transport,
    WardenMachine,
    locate_warden,
    open_warden_machine,
    start_local_warden,
)
from execworld.providers.docker.seccomp import profile_json

from .engines import Engine

PLAIN: Final = ("run", "--rm", "--network=none", "--log-driver=none", "--security-opt=no-new-privileges")
_SOURCE: Final = Path(__file__).parent / "probes" / "system_calls.c"


@contextmanager
def make_image(engine: Engine, folder: Path) -> Generator[str]:
    """Nothing but the probe of system calls, a warden, and two directories that everybody may write."""
    compiler = shutil.which("musl-gcc") or shutil.which("gcc")
    if compiler is None:
        reason = "the probe of system calls needs a C compiler: sh scripts/ci-tools brings one"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    probe = folder / "probe"
    flags = ["-static", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, "-o", probe, _SOURCE], check=True)
    archive = folder / "image.tar"
    with tarfile.open(archive, "w") as tar:
        for name in ("tmp", "workspace"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(entry)
        for name, content in (("probe", probe.read_bytes()), ("warden", locate_warden().read_bytes())):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    with archive.open("rb") as content_of_image:
        name = engine.docker("import", "-", stdin=content_of_image.fileno())
    try:
        yield name
    finally:
        engine.docker("rmi", "--force", name)


class OverCommand(Transport):
    """The standard streams of a docker command: bytes alone get through it, and no descriptors."""

    def __init__(self, command: Path) -> None:
        self._command = start_local_warden(command)

    async def receive(self, max_bytes: int) -> bytes:
        return await self._command.receive(max_bytes)

    async def send(self, data: bytes) -> None:
        await self._command.send(data)

    async def aclose(self) -> LinkEnd:
        return await self._command.aclose()


@asynccontextmanager
async def open_contained(
    engine: Engine, image: str, options: Sequence[str], folder: Path, *, own_profile: bool = True
) -> AsyncGenerator[WardenMachine]:
    """*folder* is for what the docker command reads."""
    command = ["docker", "--host", engine.url, *PLAIN, "--interactive", *options]
    if own_profile:
        profile = folder / "profile.json"
        profile.write_text(profile_json())
        command.append(f"--security-opt=seccomp={profile}")
    script = folder / "run"
    script.write_text(f"#!/bin/sh\nexec {shlex.join([*command, image, '/warden'])}\n")
    script.chmod(0o755)
    async with open_warden_machine(OverCommand(script)) as machine:
        yield machine
