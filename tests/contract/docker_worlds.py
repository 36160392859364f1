"""Makers of worlds in containers for the suites."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final

import pytest
from tests.docker.engines import SHARED_SOCKET, Engine, why_silent

from execworld.seams import SandboxPolicy, World
from execworld.seams.testing import WorldMaker
from execworld.world import open_world

DEBIAN: Final = "debian:bookworm-slim"
BUSYBOX: Final = "busybox:stable"
WORKSPACE: Final = "/work"
CONFINED: Final = SandboxPolicy.workspace_write(WORKSPACE)


def engine_of_this_host() -> Engine:
    """With the images that worlds are made of; their absence is a failure in CI, elsewhere a skip."""
    lacking = why_silent(SHARED_SOCKET)
    if not lacking:
        engine = Engine(SHARED_SOCKET)
        missing = [name for name in (DEBIAN, BUSYBOX) if not engine.docker("images", "--quiet", name)]
        if not missing:
            return engine
        lacking = f"the engine has no image {', '.join(missing)}: sh images/make-bases makes it"
    if os.environ.get("CI") == "true":
        pytest.fail(lacking)
    pytest.skip(lacking)


def open_container(
    policy: SandboxPolicy, image: str = DEBIAN, options: Mapping[str, Any] | None = None
) -> AbstractAsyncContextManager[World]:
    # A volume without a name would be for root alone; a tmpfs is for everybody.
    mounts = [{"target": WORKSPACE, "kind": "tmpfs", "executable": True}]
    return open_world(f"docker://{image}", policy=policy, cwd=WORKSPACE, mounts=mounts, **(options or {}))


class ContainerWorld:
    """Maker for worlds of the provider ``docker``: with full access, as root, in a Debian container."""

    world_kind: ClassVar[str] = "docker"
    image: ClassVar[str] = DEBIAN
    policy: ClassVar[SandboxPolicy] = SandboxPolicy.full_access()
    options: ClassVar[Mapping[str, Any]] = {}

    @pytest.fixture(scope="class")
    @classmethod
    def world_maker(cls) -> WorldMaker:
        return lambda: open_container(cls.policy, cls.image, cls.options)
