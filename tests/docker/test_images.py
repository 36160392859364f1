"""Where the image of a world comes from: it is there, it is pulled, it is built; and what is said meanwhile."""

from __future__ import annotations

import os
import pty
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from execworld.seams import ConfigurationError, OpenProgress, World, WorldUnavailable
from execworld.world import open_world

from .registry import Registry, serve_registry

docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")

pytestmark = [pytest.mark.docker, pytest.mark.slow]

BUSYBOX: Final = "busybox:stable"
ARCHITECTURE: Final = "amd64" if os.uname().machine == "x86_64" else "arm64"
OTHER: Final = "arm64" if ARCHITECTURE == "amd64" else "amd64"


@pytest.fixture
def registry(client: Any) -> Iterator[Registry]:
    with serve_registry() as found:
        found.publish(os.urandom(3_000_000), ARCHITECTURE)
        try:
            yield found
        finally:
            for image in client.images(found.name.rpartition(":")[0]):
                client.remove_image(image["Id"], force=True)


@pytest.fixture
def context(client: Any, tmp_path: Path) -> Iterator[Path]:
    """What is built of it stays with the engine, for the next build. So it is removed here, by its label."""
    label = f"execworld-test={secrets.token_hex(8)}"
    fill_context(tmp_path, label)
    yield tmp_path
    removed = True
    while removed:  # children before their parents, which then can be removed
        removed = False
        for image in client.images(all=True, filters={"label": label}):
            with suppress(docker.errors.APIError):
                client.remove_image(image["Id"], force=True)
                removed = True


def fill_context(tmp_path: Path, label: str) -> None:
    (tmp_path / "Dockerfile").write_text(
        f"FROM {BUSYBOX} AS first\nLABEL {label}\n"
        "ARG COLOUR=none\nRUN echo $COLOUR > /colour; printf 'a\\033[31mb\\n'\n"
        "FROM first AS second\nCOPY file /file\n"
    )
    (tmp_path / "file").write_text("in the context\n")
    (tmp_path / "secret").write_text("not for the engine\n")
    (tmp_path / ".dockerignore").write_text("secret\n")


async def image_of(client: Any, world: World) -> str:
    container = world.identity.instance.partition("@")[0]
    found = await anyio.to_thread.run_sync(client.inspect_container, container)
    return str(found["Config"]["Image"])


async def content_of(world: World) -> bytes:
    return await world.fs.read_bytes("/content")


# Pulling


@pytest.mark.anyio
async def test_a_missing_image_is_pulled_and_the_way_is_shown(client: Any, registry: Registry) -> None:
    seen: list[OpenProgress] = []
    async with open_world(f"docker://{registry.name}", on_progress=seen.append) as world:
        assert len(await content_of(world)) == 3_000_000
        # What was started is what was looked at, whatever the tag means by now.
        assert await image_of(client, world) == client.inspect_image(registry.name)["Id"]
    assert any(registry.name in step.text for step in seen)
    done = [(step.done_bytes, step.total_bytes) for step in seen if step.total_bytes]
    assert done
    assert all(0 <= (part or 0) <= (whole or 0) for part, whole in done)


@pytest.mark.anyio
async def test_an_image_that_is_there_is_not_asked_for(registry: Registry) -> None:
    async with open_world(f"docker://{registry.name}"):
        pass
    asked = len(registry.asked)
    async with open_world(f"docker://{registry.name}"):
        pass
    assert len(registry.asked) == asked


@pytest.mark.anyio
async def test_always_takes_the_newest(registry: Registry) -> None:
    async with open_world(f"docker://{registry.name}"):
        pass
    registry.publish(b"newer", ARCHITECTURE)
    async with open_world(f"docker://{registry.name}") as world:
        assert await content_of(world) != b"newer"
    async with open_world(f"docker://{registry.name}", pull="always") as world:
        assert await content_of(world) == b"newer"


@pytest.mark.anyio
async def test_never_asks_nobody(registry: Registry) -> None:
    with pytest.raises(WorldUnavailable, match="has no image") as caught:
        async with open_world(f"docker://{registry.name}", pull="never"):
            pass
    assert registry.asked == []
    assert "docker pull" in caught.value.hint


@pytest.mark.anyio
@pytest.mark.parametrize(
    "image", ["execworld-test-missing:latest", "registry.invalid/no/where:1", "127.0.0.1:9/nobody:1"]
)
async def test_without_a_registry_it_fails_soon(image: str) -> None:
    with (
        anyio.fail_after(5),
        pytest.raises(WorldUnavailable, match=r"has no image .* cannot be pulled") as caught,
    ):
        async with open_world(f"docker://{image}"):
            pass
    assert "`pull`" in caught.value.hint or "registry" in caught.value.hint


@pytest.mark.anyio
async def test_always_means_that_what_is_there_will_not_do(client: Any) -> None:
    client.tag(BUSYBOX, "127.0.0.1:9/nobody", "1")
    try:
        with pytest.raises(WorldUnavailable, match="cannot be pulled"):
            async with open_world("docker://127.0.0.1:9/nobody:1", pull="always"):
                pass
    finally:
        client.remove_image("127.0.0.1:9/nobody:1")


@pytest.mark.anyio
async def test_an_id_is_looked_up_and_never_pulled(client: Any) -> None:
    async with open_world("docker", image=client.inspect_image(BUSYBOX)["Id"]):
        pass
    with pytest.raises(WorldUnavailable, match="has no image"):
        async with open_world("docker", image=f"sha256:{'0' * 64}"):
            pass


@pytest.mark.anyio
async def test_a_pull_can_be_cancelled(registry: Registry, client: Any) -> None:
    registry.held.clear()
    begun_at = time.monotonic()
    with anyio.move_on_after(1.0) as scope:
        async with open_world(f"docker://{registry.name}"):
            pass
    assert scope.cancelled_caught
    assert time.monotonic() - begun_at < 3.0
    registry.held.set()
    assert client.images(registry.name) == []


@pytest.mark.anyio
async def test_an_image_for_another_machine_is_refused_before_it_starts(registry: Registry) -> None:
    registry.publish(b"x", "s390x")
    with pytest.raises(WorldUnavailable, match="s390x") as caught:
        async with open_world(f"docker://{registry.name}"):
            pass
    assert "platform" in caught.value.hint


@pytest.mark.anyio
async def test_an_image_of_another_platform_than_asked_for_will_not_do(registry: Registry) -> None:
    async with open_world(f"docker://{registry.name}"):
        pass
    with pytest.raises(WorldUnavailable, match=OTHER):
        async with open_world(f"docker://{registry.name}", platform=f"linux/{OTHER}", pull="never"):
            pass


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_way_is_shown_on_a_terminal_only(registry: Registry, is_terminal: bool) -> None:
    """By the command line; and what is shown is gone before the world is used."""
    command = [sys.executable, "-m", "execworld.cli", "run", "-w", f"docker://{registry.name}", "--", "/none"]
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "200"}
    program = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs, env=environment
    )
    os.close(theirs)
    said = b""
    with suppress(OSError):  # how the end of a terminal looks
        while data := os.read(ours, 65536):
            said += data
    os.close(ours)
    assert program.wait(30) == 127
    assert (b"pulling the image" in said) == is_terminal
    before, _, after = said.partition(b"/none")
    assert b"pulling" not in after
    assert (b"\x1b[" in before) == is_terminal


# Building


@pytest.mark.anyio
async def test_a_directory_is_built(client: Any, context: Path) -> None:
    seen: list[OpenProgress] = []
    async with open_world("docker", build=str(context), on_progress=seen.append) as world:
        assert await world.fs.read_text("/file") == "in the context\n"
        assert await world.fs.stat("/secret") is None
        assert (await image_of(client, world)).startswith("sha256:")
    texts = [step.text for step in seen]
    assert any("FROM" in text for text in texts)
    # What a program of the image says is shown on somebody's terminal.
    assert all(text.isprintable() for text in texts)


@pytest.mark.anyio
async def test_a_stage_and_arguments_are_built(context: Path) -> None:
    (context / "Dockerfile").rename(context / "Other")
    build = {"context": str(context), "dockerfile": "Other", "target": "first", "args": {"COLOUR": "green"}}
    async with open_world("docker", build=build) as world:
        assert await world.fs.read_text("/colour") == "green\n"
        assert await world.fs.stat("/file") is None


@pytest.mark.anyio
async def test_a_missing_base_is_said_soon(context: Path) -> None:
    (context / "Dockerfile").write_text("FROM execworld-test-missing:1\n")
    with anyio.fail_after(5), pytest.raises(WorldUnavailable, match="building the image") as caught:
        async with open_world("docker", build=str(context)):
            pass
    assert "registry" in caught.value.hint


@pytest.mark.anyio
async def test_a_step_that_fails_is_said(context: Path) -> None:
    (context / "Dockerfile").write_text(f"FROM {BUSYBOX}\nRUN echo why it fails; exit 3\n")
    with pytest.raises(WorldUnavailable, match="non-zero code: 3") as caught:
        async with open_world("docker", build=str(context)):
            pass
    assert "why it fails" in str(caught.value)


@pytest.mark.anyio
async def test_a_build_can_be_cancelled(client: Any, context: Path) -> None:
    """And the container of the step that is under way goes with it."""
    (context / "Dockerfile").write_text(f"FROM {BUSYBOX}\nRUN sleep 987\n")
    begun = anyio.Event()

    def see(step: OpenProgress) -> None:
        if "987" in step.text:
            begun.set()

    async def build() -> None:
        async with open_world("docker", build=str(context), on_progress=see):
            pass

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(build)
            await begun.wait()
            tasks.cancel_scope.cancel()
    give_up_at = time.monotonic() + 15
    while [container for container in client.containers(all=True) if "987" in container["Command"]]:
        assert time.monotonic() < give_up_at


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ({"context": "{}/nowhere"}, "no directory"),
        ({"context": "{}", "dockerfile": "Nothing"}, "no file"),
        ({"context": "{}", "dockerfile": "../Dockerfile"}, "outside"),
        ("{}/nowhere", "no directory"),
    ],
    ids=str,
)
async def test_what_cannot_be_built_is_refused_before_the_engine_hears_of_it(
    build: Any, reason: str, context: Path
) -> None:
    if isinstance(build, str):
        build = build.format(context)
    else:
        build = {name: value.replace("{}", str(context)) for name, value in build.items()}
    with pytest.raises(ConfigurationError, match=reason):
        async with open_world("docker", build=build):
            pass
