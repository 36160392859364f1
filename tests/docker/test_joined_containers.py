"""Worlds in containers that ran before, and that run on as if nothing had been."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from execworld.machine.warden import locate_warden
from execworld.machine.world import MachineWorld
from execworld.seams import (
    Boundary,
    CleanupIncomplete,
    Dimension,
    OutcomeUnknown,
    SandboxPolicy,
    SandboxUnavailable,
    World,
    WorldLost,
    WorldUnavailable,
)
from execworld.world import open_world

docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")

pytestmark = [pytest.mark.docker, pytest.mark.slow]

BUSYBOX: Final = "busybox:stable"
DEBIAN: Final = "debian:bookworm-slim"
SCRATCH: Final = "execworld-test-sleeper:latest"
LIBRARIES: Final = [path for path in [*glob("/lib/*-linux-gnu"), "/lib64"] if Path(path).is_dir()]
"""Of this host, whose Python needs them."""
SLEEP: Final = ["sleep", "1000"]


@pytest.fixture(scope="module")
def scratch(client: Any) -> Iterator[str]:
    """An image with nothing but a program that waits: the warden itself, which reads an input that never ends."""
    client.import_image_from_data(
        archive({"bin/": None, "bin/wait": locate_warden().read_bytes()}), *SCRATCH.split(":")
    )
    yield SCRATCH
    client.remove_image(SCRATCH, force=True)


def archive(files: dict[str, bytes | None]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.mode = 0o755
            if content is None:
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
            else:
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


@contextmanager
def running(
    client: Any, image: str, command: list[str] | None = None, *, user: str = "", **host: Any
) -> Generator[str]:
    """A container that somebody else runs. Afterwards it runs still, and nothing was added to it."""
    host_config = client.create_host_config(network_mode="none", **host)
    container = client.create_container(
        image, command or SLEEP, user=user, host_config=host_config, stdin_open=True
    )["Id"]
    try:
        client.start(container)
        yield container
    finally:
        with suppress(docker.errors.NotFound):  # a test may have removed it
            client.remove_container(container, force=True, v=True)


def processes(client: Any, container: str) -> list[str]:
    """Command lines of what runs in it, as the host sees it."""
    return [row[-1] for row in client.top(container)["Processes"]]


def changes(client: Any, container: str) -> list[str]:
    return [change["Path"] for change in client.diff(container) or ()]


def is_untouched(client: Any, container: str, started_at: str, before: list[str]) -> None:
    state = client.inspect_container(container)["State"]
    assert (state["Running"], state["StartedAt"]) == (True, started_at)
    assert processes(client, container) == before
    left = [path for path in changes(client, container) if ".execworld-" in path]
    assert left == []


@contextmanager
def untouched(client: Any, container: str) -> Generator[None]:
    """Nothing of ours is left, and what was there goes on."""
    started_at = client.inspect_container(container)["State"]["StartedAt"]
    before = processes(client, container)
    yield
    is_untouched(client, container, started_at, before)


async def private_places(world: World) -> list[str]:
    """Directories of ours that can be seen from within."""
    found: list[str] = []
    for place in ("/", "/tmp", "/var/tmp", "/run", "/dev/shm", "/data"):
        try:
            entries = await world.fs.list_directory(place)
        except OSError:
            continue  # there is none, or it is not for us
        found += [f"{place}/{entry.name}" for entry in entries if ".execworld-" in entry.name]
    return found


async def use(world: World) -> None:
    """A world like any other; and what brought the warden is gone already."""
    assert await private_places(world) == []
    await world.fs.write_bytes("/dev/shm/f", bytes(range(256)) * 4000)
    assert await world.fs.read_bytes("/dev/shm/f") == bytes(range(256)) * 4000
    await world.fs.remove("/dev/shm/f")


# The ways in


@pytest.mark.anyio
@pytest.mark.parametrize("image", [BUSYBOX, DEBIAN])
@pytest.mark.parametrize("user", ["", "1000", "1000:1000"])
async def test_a_container_with_a_shell(client: Any, image: str, user: str) -> None:
    with running(client, image, user=user) as container, untouched(client, container):
        async with open_world(f"docker+attach://{container}") as world:
            await use(world)
            uid = (await world.shell.run("id -u")).stdout.text
            assert uid == f"{user.partition(':')[0] or 0}\n"
            assert world.identity.instance.startswith(container[:12])
            result = await world.shell.run("echo a; echo b >&2; exit 7")
            assert (result.stdout.text, result.stderr.text, result.exit_code) == ("a\n", "b\n", 7)


@pytest.mark.anyio
async def test_another_user_can_be_chosen(client: Any) -> None:
    with running(client, DEBIAN, user="1000") as container, untouched(client, container):
        async with open_world(f"docker+attach://{container}", user="0") as world:
            assert (world.facts.uid, (await world.shell.run("id -u")).stdout.text) == (0, "0\n")


@pytest.mark.anyio
async def test_the_environment_is_that_of_the_container_and_more(client: Any) -> None:
    with running(client, DEBIAN) as container:
        async with open_world(f"docker+attach://{container}", env={"COLOUR": "two\nlines"}) as world:
            result = await world.shell.run('printf %s "$COLOUR"; test -n "$PATH"')
            assert (result.stdout.text, result.exit_code) == ("two\nlines", 0)


@pytest.mark.anyio
@pytest.mark.parametrize("user", ["", "1000"])
async def test_a_container_without_a_shell(client: Any, scratch: str, user: str) -> None:
    """The engine puts the warden there; and whoever its user is, it is gone again."""
    with running(client, scratch, ["/bin/wait"], user=user) as container, untouched(client, container):
        async with open_world(f"docker+attach://{container}") as world:
            await use(world)
            assert world.facts.shell is None


@pytest.mark.anyio
async def test_nothing_can_be_written_but_there_is_a_python(client: Any) -> None:
    """As a read-only root with a /tmp that no program may be run from."""
    binds = {sys.base_prefix: {"bind": sys.base_prefix, "mode": "ro"}}
    for path in LIBRARIES:
        binds[path] = {"bind": path, "mode": "ro"}
    python = Path(sys.base_prefix) / "bin"
    host_config = client.create_host_config(
        network_mode="none", read_only=True, tmpfs={"/tmp": "noexec"}, binds=binds
    )
    container = client.create_container(
        DEBIAN, SLEEP, host_config=host_config, environment={"PATH": f"{python}:/usr/bin:/bin"}
    )["Id"]
    try:
        client.start(container)
        with untouched(client, container):
            async with open_world(f"docker+attach://{container}") as world:
                await use(world)
                assert (await world.shell.run("echo ok")).stdout.text == "ok\n"
    finally:
        client.remove_container(container, force=True)


@pytest.mark.anyio
async def test_a_volume_is_enough(client: Any, scratch: str) -> None:
    """No shell, and a root that cannot be written."""
    volume = client.create_volume()["Name"]
    try:
        binds = {volume: {"bind": "/data", "mode": "rw"}}
        with running(client, scratch, ["/bin/wait"], read_only=True, binds=binds) as container:
            with untouched(client, container):
                async with open_world(f"docker+attach://{container}") as world:
                    await use(world)
    finally:
        client.remove_volume(volume)


@pytest.mark.anyio
async def test_a_warden_that_is_there_already(client: Any, scratch: str) -> None:
    """The hint of the refusal below, followed."""
    binds = {str(locate_warden()): {"bind": "/.execworld/warden", "mode": "ro"}}
    with running(client, scratch, ["/bin/wait"], read_only=True, binds=binds) as container:
        async with open_world(f"docker+attach://{container}") as world:
            assert world.facts.uid == 0


@pytest.mark.anyio
@pytest.mark.parametrize(
    "content", [b"x" * locate_warden().stat().st_size, b"#!/bin/sh\nsleep 100\n"], ids=["same size", "other"]
)
async def test_another_program_in_its_place_is_never_run(client: Any, content: bytes, tmp_path: Path) -> None:
    other = tmp_path / "warden"
    other.write_bytes(content)
    other.chmod(0o755)
    binds = {str(other): {"bind": "/.execworld/warden", "mode": "ro"}}
    with running(client, BUSYBOX, read_only=True, binds=binds) as container, untouched(client, container):
        with anyio.fail_after(20), pytest.raises(WorldUnavailable) as caught:
            async with open_world(f"docker+attach://{container}"):
                pass
        assert "another program" in str(caught.value)


@pytest.mark.anyio
@pytest.mark.parametrize("image", [SCRATCH, BUSYBOX])
async def test_no_way_in_is_a_refusal_that_lists_each(client: Any, scratch: str, image: str) -> None:
    command = ["/bin/wait"] if image == scratch else SLEEP
    with running(client, image, command, read_only=True) as container, untouched(client, container):
        with anyio.fail_after(20), pytest.raises(WorldUnavailable) as caught:
            async with open_world(f"docker+attach://{container}"):
                pass
    text = str(caught.value)
    for way in ("/.execworld/warden", "shell", "archive", "python3"):
        assert way in text
    assert str(locate_warden()) in caught.value.hint


@pytest.mark.anyio
async def test_a_hostile_shell_is_given_up_in_time(client: Any) -> None:
    """It reads nothing, says much that looks like an answer, and never ends: which is said in the end."""
    script = b"#!/bin/busybox sh\nwhile :; do echo EXECWORLD-WARD; done\n"
    with running(client, BUSYBOX) as container:
        client.put_archive(container, "/", archive({"bin/sh": script}))
        with anyio.fail_after(60), pytest.raises(CleanupIncomplete, match="does not end"):
            async with open_world(f"docker+attach://{container}") as world:
                assert await private_places(world) == []


# Containers that cannot be joined


def pause(client: Any, container: str) -> None:
    client.pause(container)


def stop(client: Any, container: str) -> None:
    client.kill(container)
    client.wait(container)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("blow", "state", "hint"),
    [(pause, "paused", "docker unpause"), (stop, "not running", "docker start")],
    ids=["paused", "stopped"],
)
async def test_what_does_not_run_is_not_joined(
    client: Any, blow: Callable[[Any, str], None], state: str, hint: str
) -> None:
    with running(client, BUSYBOX) as container:
        blow(client, container)
        with anyio.fail_after(5), pytest.raises(WorldUnavailable, match=state) as caught:
            async with open_world(f"docker+attach://{container}"):
                pass
        assert hint in caught.value.hint


@pytest.mark.anyio
async def test_what_is_not_there_is_not_joined() -> None:
    with anyio.fail_after(5), pytest.raises(WorldUnavailable, match="no container") as caught:
        async with open_world("docker+attach://execworld-nobody"):
            pass
    assert "docker ps" in caught.value.hint


# What is done within


OPEN_PLACES: Final = {"/inside": "mode=1777", "/outside": "mode=1777"}
POLICY: Final = SandboxPolicy.workspace_write("/inside")


async def check_cell(world: World) -> None:
    inside = await world.shell.run("echo x > /inside/f && cat /inside/f")
    outside = await world.shell.run("echo x > /outside/f")
    assert (inside.stdout.text, inside.exit_code) == ("x\n", 0)
    assert outside.exit_code != 0
    assert Dimension.FS_WRITE not in world.enforcement.unenforced()
    with pytest.raises(OSError, match="outside"):
        await world.fs.write_text("/outside/f", "x")


@pytest.mark.anyio
@pytest.mark.parametrize("user", ["", "1000"])
async def test_cells_or_a_refusal(client: Any, user: str) -> None:
    """Under the engine's own profile, which this side did not choose: enforced, or nothing runs."""
    with running(client, DEBIAN, user=user, tmpfs=OPEN_PLACES) as container, untouched(client, container):
        try:
            async with open_world(f"docker+attach://{container}", policy=POLICY) as world:
                await check_cell(world)
        except SandboxUnavailable as error:
            assert error.missing  # noqa: PT017 - either is right; which one is up to the engine


@pytest.mark.anyio
@pytest.mark.parametrize("user", ["", "1000"])
async def test_cells_where_the_filter_allows_them(client: Any, user: str) -> None:
    options: dict[str, Any] = {"tmpfs": OPEN_PLACES, "security_opt": ["seccomp=unconfined"]}
    with running(client, DEBIAN, user=user, **options) as container, untouched(client, container):
        async with open_world(f"docker+attach://{container}", policy=POLICY) as world:
            await check_cell(world)


@pytest.mark.anyio
async def test_the_workspace_is_not_made_for_it(client: Any) -> None:
    policy = SandboxPolicy.workspace_write("/not/there")
    with running(client, DEBIAN, security_opt=["seccomp=unconfined"]) as container:
        with pytest.raises(SandboxUnavailable):
            async with open_world(f"docker+attach://{container}", policy=policy):
                pass
        assert "/not" not in changes(client, container)


@pytest.mark.anyio
async def test_the_boundary_is_that_of_the_real_container(client: Any) -> None:
    with running(client, BUSYBOX, pid_mode="host") as container:
        async with open_world(f"docker+attach://{container}") as world:
            assert "processes: those of this host" in world.facts.crossings
            assert world.facts.boundary is Boundary.NONE


# Losses


@asynccontextmanager
async def closed_after_loss() -> AsyncGenerator[None]:
    """Closing says what could not be proven, and nothing else."""
    try:
        yield
    except CleanupIncomplete as error:
        assert "out of reach" in str(error)  # noqa: PT017 - what it says is the point


def kill(client: Any, container: str) -> None:
    client.kill(container)


def remove(client: Any, container: str) -> None:
    client.remove_container(container, force=True)


def restart(client: Any, container: str) -> None:
    client.restart(container, timeout=0)


def kill_warden(client: Any, container: str) -> None:
    for row in client.top(container)["Processes"]:
        if "execworld" in row[-1] or "warden" in row[-1] or "/proc/self/fd" in row[-1]:
            os.kill(int(row[1]), signal.SIGKILL)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("blow", "reason"),
    [
        (kill, "stopped, killed or removed by somebody else, by SIGKILL"),
        (remove, "stopped, killed or removed by somebody else"),
        (restart, "restarted"),
        (kill_warden, "the warden in the container was ended"),
    ],
    ids=["kill", "remove", "restart", "kill the warden"],
)
async def test_a_loss_says_what_happened(client: Any, blow: Callable[[Any, str], None], reason: str) -> None:
    with running(client, BUSYBOX) as container:
        seen: list[Exception] = []
        async with closed_after_loss(), open_world(f"docker+attach://{container}") as world:
            identity = world.identity

            async def wait() -> None:
                try:
                    await world.subprocess.run(["sleep", "30"])
                except (OutcomeUnknown, WorldLost) as error:
                    seen.append(error)

            with anyio.fail_after(20):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(wait)
                    await anyio.sleep(0.1)
                    await anyio.to_thread.run_sync(blow, client, container)
            with pytest.raises(WorldLost) as caught:
                await world.subprocess.run(["true"])
            seen.append(caught.value)
        assert [reason in str(error) for error in seen] == [True, True], seen
        if blow is restart:
            # It is another world now, and only who asks for it gets it.
            async with open_world(f"docker+attach://{container}") as world:
                assert world.identity != identity
        if blow is kill_warden:
            give_up_at = time.monotonic() + 2.0
            while any("sleep 30" in line for line in processes(client, container)):
                assert time.monotonic() < give_up_at


@pytest.mark.anyio
async def test_a_pause_is_no_loss(client: Any) -> None:
    with running(client, BUSYBOX) as container, untouched(client, container):
        async with open_world(f"docker+attach://{container}") as world:
            results: list[str] = []
            async with anyio.create_task_group() as tasks:

                async def run() -> None:
                    results.append((await world.shell.run("sleep 0.2; echo ok")).stdout.text)

                tasks.start_soon(run)
                await anyio.to_thread.run_sync(client.pause, container)
                await anyio.sleep(0.5)
                assert results == []
                assert isinstance(world, MachineWorld)
                assert not world.lost
                await anyio.to_thread.run_sync(client.unpause, container)
            assert results == ["ok\n"]


# The end


@pytest.mark.anyio
async def test_a_paused_container_is_left_paused(client: Any) -> None:
    """What we started in it ends when it goes on, and until then that is said."""
    with running(client, BUSYBOX) as container:
        with anyio.fail_after(20), pytest.raises(CleanupIncomplete) as caught:
            async with open_world(f"docker+attach://{container}"):
                await anyio.to_thread.run_sync(client.pause, container)
        assert "paused" in str(caught.value)
        assert client.inspect_container(container)["State"]["Paused"]
        client.unpause(container)
        give_up_at = time.monotonic() + 2.0
        while len(left := processes(client, container)) > 1:
            assert time.monotonic() < give_up_at, left


@pytest.mark.anyio
async def test_a_user_that_is_not_there_is_said(client: Any) -> None:
    with running(client, BUSYBOX) as container, untouched(client, container):
        with anyio.fail_after(20), pytest.raises(WorldUnavailable) as caught:
            async with open_world(f"docker+attach://{container}", user="nobody-here"):
                pass
        assert "nobody-here" in caught.value.hint


HOST: Final = """
import sys, anyio
from execworld.world import open_world
async def main():
    async with open_world(sys.argv[1]) as world:
        script = "i=0; while [ $i -lt 200 ]; do setsid sleep 1000 & i=$((i + 1)); done; echo up; wait"
        async def said(stream, chunk):
            print("open", flush=True)
        async with world.subprocess.start(["sh", "-c", script], on_output=said):
            await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_all_of_ours_goes_with_the_host(client: Any, number: signal.Signals) -> None:
    """The container runs on; of two hundred children in sessions of their own none does."""
    with running(client, BUSYBOX, ["sleep", "999"]) as container:
        with untouched(client, container):
            before = len(processes(client, container))
            host = subprocess.Popen(
                [sys.executable, "-c", HOST, f"docker+attach://{container}"], stdout=subprocess.PIPE
            )
            try:
                assert host.stdout is not None
                assert host.stdout.readline() == b"open\n"
                assert len(processes(client, container)) >= before + 201
                host.send_signal(number)
                host.wait(10)
                give_up_at = time.monotonic() + 2.0
                while len(left := processes(client, container)) > before:
                    assert time.monotonic() < give_up_at, left
            finally:
                host.kill()
                host.communicate()


@pytest.mark.anyio
@pytest.mark.parametrize("blocked", [True, False], ids=["at once", "later"])
async def test_cancelling_leaves_nothing(client: Any, blocked: bool) -> None:
    """While it is joined, wherever that is; and whoever holds it."""
    with running(client, BUSYBOX) as container, untouched(client, container):
        for delay_s in (0.02, 0.08, 0.12, 0.2, 0.5) if not blocked else (0.0,):
            with anyio.move_on_after(delay_s):
                async with open_world(f"docker+attach://{container}"):
                    await anyio.sleep_forever()
