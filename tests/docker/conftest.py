"""An engine for the tests of worlds in containers. Where there is none that is a failure in CI, elsewhere a skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest

from .engines import SHARED_SOCKET, Engine, OwnEngine, why_silent

IN_CI: Final = os.environ.get("CI") == "true"
FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"
IMAGES: Final = ("busybox:stable", "debian:bookworm-slim")
HOW: Final = "sh scripts/ci-tools and sh scripts/ci-engine start bring one"


def pytest_report_header() -> str:
    return "containers: the contract on both event loops, the rest on " + (
        "both" if FULL else "asyncio; EXECWORLD_FULL=1 runs it on trio too"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A container takes half a second to come and go, and what differs between event loops the contract tries."""
    here = Path(__file__).parent
    left_out = [item for item in items if not FULL and item.path.parent == here and "[trio" in item.nodeid]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def lacking(reason: str) -> NoReturn:
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine of this host, which other tests use at the same time: stop nothing but what you made."""
    if reason := why_silent(SHARED_SOCKET):
        lacking(f"{reason}; {HOW}")
    return Engine(SHARED_SOCKET)


@pytest.fixture(scope="session")
def client(engine: Engine) -> Iterator[Any]:
    """The engine of this host by its SDK, for what tests do to containers behind the back of their world."""
    docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")
    found = docker.APIClient(engine.url)
    try:
        missing = [name for name in IMAGES if not found.images(name)]
        if missing:
            lacking(f"no image {', '.join(missing)}: sh images/make-bases makes it")
        yield found
    finally:
        found.close()


@pytest.fixture
def own_engine() -> Generator[OwnEngine]:
    """An engine that a test may stop, kill and start as it likes. Nothing of it is left afterwards."""
    if os.geteuid() != 0:
        lacking("a daemon of one's own needs root")
    for program in ("dockerd", "docker", "unshare", "nsenter", "ip"):
        if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None:
            lacking(f"a daemon of one's own needs {program}: sh scripts/ci-tools brings it")
    own = OwnEngine()
    try:
        try:
            own.start()
        except AssertionError as error:
            lacking(f"a daemon of one's own does not start here: {error}")
        yield own
    finally:
        own.close()
