"""Worlds in containers that are made for them, on the engine of this host."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from execworld.providers.docker.hijack import FrameReader, take_over
from execworld.seams import (
    CommandNotFound,
    ConfigurationError,
    NetworkMode,
    NetworkPolicy,
    PolicyRefused,
    SandboxPolicy,
    SandboxUnavailable,
    WorldUnavailable,
)
from execworld.world import open_world

docker = pytest.importorskip("docker", reason="the extra `docker` is not installed")

pytestmark = [pytest.mark.docker, pytest.mark.slow]

SOCKET: Final = "/var/run/docker.sock"
BUSYBOX: Final = "busybox:stable"
DEBIAN: Final = "debian:bookworm-slim"
OWNER: Final = "io.execworld.owner.pid"


def containers_of(client: Any, pid: int) -> list[str]:
    """Names of all that a process has made and that is still there, in whatever state."""
    found = client.containers(all=True, filters={"label": f"{OWNER}={pid}"})
    return [name for container in found for name in container["Names"]]


@pytest.fixture(autouse=True)
def nothing_is_left(client: Any) -> Iterator[None]:
    """Whatever a test does, and however its world fails to open."""
    volumes = {volume["Name"] for volume in client.volumes()["Volumes"] or ()}
    yield
    assert containers_of(client, os.getpid()) == []
    left = {volume["Name"] for volume in client.volumes()["Volumes"] or ()} - volumes
    assert not [name for name in left if _holds_warden(client, name)]


def _holds_warden(client: Any, volume: str) -> bool:
    """Whether it is one of ours. Other tests use the engine at the same time."""
    with suppress(docker.errors.NotFound):
        place = Path(client.inspect_volume(volume)["Mountpoint"])
        return (place / "warden").exists()
    return False


@pytest.fixture(scope="module")
def scratch_image(client: Any) -> Iterator[str]:
    """An image with nothing in it."""
    yield from load_image(
        client, "execworld-test-scratch:latest", "amd64" if os.uname().machine == "x86_64" else "arm64"
    )


@pytest.fixture(scope="module")
def foreign_image(client: Any) -> Iterator[str]:
    """An image for a machine that this one is not."""
    yield from load_image(client, "execworld-test-foreign:latest", "s390x")


def load_image(client: Any, name: str, architecture: str) -> Iterator[str]:
    layer = archive({"etc/": b""})
    config = json.dumps(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Env": ["COLOUR=green"], "WorkingDir": "/made/for/work"},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        }
    ).encode()
    manifest = json.dumps([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]).encode()
    client.load_image(archive({"config.json": config, "layer.tar": layer, "manifest.json": manifest}))
    yield name
    client.remove_image(name, force=True)


def archive(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name.rstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            entry.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


# What runs where


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("image", "user", "read_only"),
    [
        (BUSYBOX, "", False),
        (BUSYBOX, "1000", True),
        (BUSYBOX, "1234:4321", False),
        (DEBIAN, "", True),
        (DEBIAN, "1000", False),
        (DEBIAN, "1234:4321", True),
    ],
)
async def test_commands_run_as_the_user_of_the_container(image: str, user: str, read_only: bool) -> None:
    async with open_world(f"docker://{image}", user=user, read_only=read_only) as world:
        uid, _, gid = user.partition(":")
        result = await world.shell.run("id -u; id -g; echo to-stderr >&2; exit 3")
        assert result.stdout.text.split() == [uid or "0", gid or "0"]
        assert (result.stderr.text, result.exit_code) == ("to-stderr\n", 3)
        await world.fs.write_text("/tmp/f", "by fs")
        appended = await world.shell.run("echo , and by shell >> /tmp/f; cat /tmp/f")
        assert appended.stdout.text == "by fs, and by shell\n"
        written = await world.shell.run("echo x > /made")
        assert (written.exit_code == 0) is (not read_only and not user)
        assert world.facts.boundary == "container"


@pytest.mark.anyio
@pytest.mark.parametrize("read_only", [False, True], ids=["root may be written", "root is read-only"])
async def test_an_image_with_nothing_in_it_is_enough(scratch_image: str, read_only: bool) -> None:
    async with open_world(f"docker://{scratch_image}", read_only=read_only) as world:
        assert world.facts.shell is None
        assert world.facts.cwd == "/made/for/work"
        with pytest.raises(CommandNotFound):
            await world.subprocess.run(["true"])
        place = "/tmp" if read_only else "/bin"
        await world.fs.make_directory(place)
        await world.fs.write_bytes(f"{place}/busybox", static_busybox(), mode=0o755)
        result = await world.subprocess.run([f"{place}/busybox", "sh", "-c", "echo hi; exit 3"])
        assert (result.stdout.text, result.exit_code) == ("hi\n", 3)


def static_busybox() -> bytes:
    path = Path("/bin/busybox")
    if not path.exists():
        message = "no static busybox on this host: apt install busybox-static"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    return path.read_bytes()


@pytest.mark.anyio
@pytest.mark.parametrize("image", [BUSYBOX, DEBIAN])
@pytest.mark.parametrize("user", ["", "1000"])
async def test_a_policy_confines_with_the_defaults(image: str, user: str) -> None:
    """The workspace is made where the image has none, for the user of the container."""
    policy = SandboxPolicy.workspace_write("/deep/work")
    async with open_world(f"docker://{image}", policy=policy, user=user) as world:
        assert world.facts.cwd == "/deep/work"
        assert (await world.shell.run("echo x > f && cat f")).stdout.text == "x\n"
        refused = await world.shell.run("echo x > /tmp/../made")
        assert refused.exit_code != 0


@pytest.mark.anyio
async def test_the_environment_of_the_image_is_kept(
    scratch_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And that of this host stays here, but for what is let through by name."""
    monkeypatch.setenv("LET_THROUGH", "1")
    monkeypatch.setenv("KEPT_HERE", "1")
    async with open_world(
        f"docker://{scratch_image}", env={"SHAPE": "round"}, environment=["LET_THROUGH"]
    ) as world:
        await world.fs.write_bytes("/busybox", static_busybox(), mode=0o755)
        seen = (await world.subprocess.run(["/busybox", "env"])).stdout.text.splitlines()
    assert {"COLOUR=green", "SHAPE=round", "LET_THROUGH=1"} <= set(seen)
    assert not [line for line in seen if line.startswith("KEPT_HERE")]


@pytest.mark.anyio
async def test_the_container_is_what_it_should_be(client: Any) -> None:
    async with open_world(f"docker://{BUSYBOX}", memory_bytes=256 << 20, cpus=0.5, pids=200) as world:
        found = client.inspect_container(world.identity.instance.partition("@")[0])
        host = found["HostConfig"]
        assert host["AutoRemove"]
        assert host["LogConfig"]["Type"] == "none"
        assert (host["Memory"], host["NanoCpus"], host["PidsLimit"]) == (256 << 20, 500_000_000, 200)
        assert found["Config"]["StdinOnce"]
        assert found["Config"]["Labels"][OWNER] == str(os.getpid())
        assert found["State"]["StartedAt"] in world.world_id
        assert (await world.shell.run("echo $$")).stdout.text != "1\n"


@pytest.mark.anyio
async def test_files_of_a_workspace_belong_to_the_calling_user(tmp_path: Path) -> None:
    async with open_world(f"docker://{BUSYBOX}", workspace=str(tmp_path)) as world:
        assert world.facts.cwd == "/workspace"
        await world.fs.write_text("by-fs", "x")
        assert (await world.shell.run("echo y > by-shell")).ok
    for name in ("by-fs", "by-shell"):
        assert (tmp_path / name).stat().st_uid == os.getuid()


@pytest.mark.anyio
async def test_a_policy_without_network_makes_a_container_without(client: Any) -> None:
    policy = SandboxPolicy.read_only(network=NetworkPolicy(NetworkMode.NONE))
    async with open_world(f"docker://{BUSYBOX}", policy=policy) as world:
        found = client.inspect_container(world.identity.instance.partition("@")[0])
        assert found["HostConfig"]["NetworkMode"] == "none"


@pytest.mark.anyio
async def test_a_container_is_kept_when_that_is_asked(client: Any) -> None:
    async with open_world(f"docker://{BUSYBOX}", keep=True) as world:
        container = world.identity.instance.partition("@")[0]
        await world.fs.write_text("/result", "x")
    try:
        found = client.inspect_container(container)
        assert not found["State"]["Running"]
    finally:
        client.remove_container(container, force=True)


# What cannot be


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"image": "execworld-test-missing:latest"}, "has no image"),
        ({"user": "nobody-here"}, "unable to find user"),
        ({"runtime": "no-such-runtime"}, "runtime"),
        ({"mounts": [{"target": "/x", "source": "/no/such/directory"}]}, "does not exist"),
        ({"network": "no-such-network"}, "network"),
        ({"cap_add": ["NO_SUCH_CAPABILITY"]}, "capability"),
        ({"host": "unix:///no/such.sock"}, "no such socket"),
        ({"host": "tcp://127.0.0.1:9"}, "nobody listens"),
        ({"warden": "/no/such/warden"}, "warden"),
    ],
    ids=str,
)
async def test_what_cannot_be_made_says_why_and_leaves_nothing(options: dict[str, Any], said: str) -> None:
    chosen: dict[str, Any] = {"image": BUSYBOX} | options
    with anyio.fail_after(30), pytest.raises(WorldUnavailable, match=said) as caught:
        async with open_world("docker", **chosen):
            pass
    assert caught.value.hint


@pytest.mark.anyio
async def test_a_profile_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    for content in ("{", "[]", "{}"):
        path.write_text(content)
        with pytest.raises(ConfigurationError, match="seccomp"):
            async with open_world(f"docker://{BUSYBOX}", seccomp=str(path)):
                pass


@pytest.mark.anyio
@pytest.mark.parametrize("source", [SOCKET, "/var/run", "/run", "/"])
async def test_the_socket_of_the_engine_stays_outside(source: str) -> None:
    """Whoever has it is root on the host."""
    with pytest.raises(PolicyRefused, match="socket"):
        async with open_world(f"docker://{BUSYBOX}", mounts=[{"target": "/x", "source": source}]):
            pass


@pytest.mark.anyio
async def test_an_image_for_another_machine_is_refused(foreign_image: str) -> None:
    with pytest.raises(WorldUnavailable, match="s390x") as caught:
        async with open_world(f"docker://{foreign_image}"):
            pass
    assert "platform" in caught.value.hint


@pytest.mark.anyio
async def test_a_workspace_that_cannot_be_made_is_a_refusal() -> None:
    policy = SandboxPolicy.workspace_write("/work")
    with pytest.raises(SandboxUnavailable, match="/work"):
        async with open_world(f"docker://{BUSYBOX}", policy=policy, read_only=True):
            pass


@pytest.mark.anyio
async def test_an_engine_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    path = str(tmp_path / "silent.sock")
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(path)
        silent.listen()
        with anyio.fail_after(20), pytest.raises(WorldUnavailable, match="nothing in time"):
            async with open_world(f"docker://{BUSYBOX}", host=f"unix://{path}", engine_timeout_s=1.0):
                pass
        started_at = time.monotonic()
        with anyio.move_on_after(0.2):
            async with open_world(f"docker://{BUSYBOX}", host=f"unix://{path}", engine_timeout_s=5.0):
                pass
        assert time.monotonic() - started_at < 4


@pytest.mark.root
def test_a_socket_that_may_not_be_used_says_so() -> None:
    """As another user, who has everything imported already: an interpreter may lie in a directory of root's."""
    if os.getuid() != 0:
        pytest.skip("only root can take another user's id")
    code = """
import os, anyio, docker.tls, paramiko, pydantic
from execworld.world import open_world, resolve_world
resolve_world("docker://x", {})
os.setgroups([]), os.setgid(65534), os.setuid(65534)
async def main():
    async with open_world("docker://x"):
        pass
anyio.run(main)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "this user may not use unix:///var/run/docker.sock" in done.stderr
    assert "hint: join the group that owns the socket" in done.stderr


@pytest.mark.anyio
@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7])
@pytest.mark.parametrize("read_only", [False, True], ids=["root may be written", "root is read-only"])
async def test_cancellation_leaves_nothing_behind(delay_s: float, read_only: bool) -> None:
    """Wherever it comes. The fixture looks."""
    with anyio.move_on_after(delay_s):
        async with open_world(f"docker://{BUSYBOX}", read_only=read_only):
            await anyio.sleep(0.1)


# The stream


class MergingProxy:
    """Passes everything on to the engine at once, and what comes back only after a while, in one piece."""

    DELAY_S: Final = 0.12

    def __init__(self, path: str) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(path)
        self._listener.listen(64)
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, run: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self._start(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far:
            far.connect(SOCKET)
            back = threading.Thread(target=self._pass, args=(far, near, self.DELAY_S), daemon=True)
            back.start()
            self._pass(near, far, 0)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket, delay_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if delay_s:
                    time.sleep(delay_s)
                    with suppress(BlockingIOError):
                        data += source.recv(1 << 20, socket.MSG_DONTWAIT)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[MergingProxy]:
    made = MergingProxy(str(tmp_path / "proxy.sock"))
    yield made
    made.close()


def first_bytes(client: Any, container: str) -> bytes:
    """What a command says at once, by the way that the provider takes for its stream."""
    exec_id = client.exec_create(container, ["echo", "first"])["Id"]
    handed = client.exec_start(exec_id, socket=True)
    hijacked = take_over(handed, handed._response)
    reader = FrameReader()
    try:
        output = reader.feed(hijacked.received)
        hijacked.wire.settimeout(10)
        while data := hijacked.wire.recv(4096):
            output += reader.feed(data)
        return output
    finally:
        hijacked.close()


@pytest.fixture
def running(client: Any) -> Iterator[str]:
    container = client.create_container(BUSYBOX, ["sleep", "300"])["Id"]
    try:
        client.start(container)
        yield container
    finally:
        client.remove_container(container, force=True)


@pytest.mark.parametrize("through_proxy", [False, True], ids=["direct", "merged"])
def test_the_first_bytes_are_never_lost(
    client: Any, running: str, proxy: MergingProxy, through_proxy: bool
) -> None:
    """Not even when they come in one piece with the head of the response: twenty of twenty."""
    other = docker.APIClient(f"unix://{proxy.path}") if through_proxy else client
    try:
        assert [first_bytes(other, running) for _ in range(20)] == [b"first\n"] * 20
    finally:
        if through_proxy:
            other.close()


def test_the_sdk_has_what_is_torn_out_of_it(client: Any, running: str) -> None:
    """Private names of the SDK. With another version of it, this fails before a world loses bytes."""
    handed: Any = client.attach_socket(running, params={"stdin": 1, "stdout": 1, "stream": 1})
    response, inner = handed._response, handed._sock
    reader: Any = response.raw._fp.fp
    assert [type(item).__name__ for item in (handed, inner, reader)] == [
        "SocketIO",
        "socket",
        "BufferedReader",
    ]
    assert reader.raw is handed
    take_over(handed, response).close()
    assert inner.fileno() < 0


@pytest.mark.anyio
async def test_a_world_opens_through_a_slow_engine(proxy: MergingProxy) -> None:
    async with open_world(f"docker://{BUSYBOX}", host=f"unix://{proxy.path}") as world:
        assert (await world.shell.run("echo hi")).stdout.text == "hi\n"


@pytest.mark.anyio
async def test_silence_is_no_failure() -> None:
    """The time limit for answers of the engine is none for the stream."""
    async with open_world(f"docker://{BUSYBOX}", engine_timeout_s=4.0) as world:
        assert (await world.shell.run("sleep 4.5; echo ok")).stdout.text == "ok\n"


@pytest.mark.anyio
async def test_no_descriptor_is_left() -> None:
    async def use() -> None:
        async with open_world(f"docker://{BUSYBOX}") as world:
            await world.subprocess.run(["true"])

    await use()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await use()
    assert len(os.listdir("/proc/self/fd")) <= before


# The end


HOST: Final = """
import sys, anyio
from execworld.world import open_world
async def main():
    async with open_world(sys.argv[1], **eval(sys.argv[2])) as world:
        async with world.subprocess.start(["sh", "-c", "setsid sleep 1000 & sleep 1000"]):
            print("open", flush=True)
            await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.mark.parametrize("options", [{}, {"read_only": True}], ids=str)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_the_container_goes_with_the_host(
    client: Any, options: dict[str, Any], number: signal.Signals
) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", HOST, f"docker://{BUSYBOX}", repr(options)], stdout=subprocess.PIPE
    )
    try:
        assert host.stdout is not None
        assert host.stdout.readline() == b"open\n"
        assert len(containers_of(client, host.pid)) == 1
        host.send_signal(number)
        host.wait(10)
        give_up_at = time.monotonic() + 1.0
        while left := containers_of(client, host.pid):
            assert time.monotonic() < give_up_at, left
    finally:
        host.kill()
        host.communicate()
