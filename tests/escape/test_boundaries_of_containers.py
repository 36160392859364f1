"""What of its host can be had in a container is named by the facts of its world, and what is named can be had.

Everything is tried in containers of several shapes. In one of them at least it must be had: else the attempt would
prove nothing where it is not.
"""

from __future__ import annotations

import ctypes
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import anyio
import pytest
from tests.docker.engines import Engine

from execworld.seams import Boundary, NetworkMode, NetworkPolicy, SandboxMode, SandboxPolicy, World
from execworld.world import open_world

from .containers import IMAGE, PYTHON, running

if TYPE_CHECKING:
    from tests.conftest import Note

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(120)]

ATTEMPTS: Final = """
import ctypes, glob, json, os, socket, stat, sys

t = json.load(sys.stdin)
libc = ctypes.CDLL(None, use_errno=True)

def read(path):
    with open(path, "rb") as file:
        return file.read(65536)

def namespace(name):
    return os.stat("/proc/self/ns/" + name).st_ino == t["namespaces"][name]

def connect(family, address):
    with socket.socket(family) as one:
        one.settimeout(2)
        one.connect(address)
        return True

def processes():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            if t["marker"].encode() in read(path):
                return True
        except OSError:
            pass
    return False

def write(path):
    with open(path, "ab") as file:
        return file.write(b"x") == 1

def open_for_writing(path):  # and write nothing
    os.close(os.open(path, os.O_WRONLY))
    return True

def gateway():
    for line in read("/proc/net/route").decode().splitlines()[1:]:
        fields = line.split()
        if fields[1] == "00000000":
            return connect(socket.AF_INET, (socket.inet_ntoa(bytes.fromhex(fields[2])[::-1]), t["open_port"]))
    return False

def ask_engine():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(t["engine"])
        one.sendall(b"GET /_ping HTTP/1.0\\r\\n\\r\\n")
        return b" 200 " in one.recv(4096)

def device():
    path = "/device-" + t["marker"]
    os.mknod(path, 0o600 | stat.S_IFBLK, t["device"])
    try:
        os.close(os.open(path, os.O_RDONLY))
    finally:
        os.unlink(path)
    return True

def rights():
    held = read("/proc/self/status").partition(b"CapEff:")[2].split()[0]
    return bool(int(held, 16) & ~t["usual_rights"])

def system_calls():
    # CLONE_NEWUTS takes nothing that others have; a filter answers before the kernel looks at rights.
    child = os.fork()
    if child == 0:
        os._exit(0 if libc.syscall(272 if os.uname().machine == "x86_64" else 97, 0x10000000) == 0 else 1)
    return os.waitpid(child, 0)[1] == 0

ATTEMPTS = {
    "file": lambda: t["marker"].encode() in read(t["file"]),
    "write": lambda: write(t["file"]),
    "processes": processes,
    "pid namespace": lambda: namespace("pid"),
    "ipc namespace": lambda: namespace("ipc"),
    "uts namespace": lambda: namespace("uts"),
    "network namespace": lambda: namespace("net"),
    "control group namespace": lambda: namespace("cgroup"),
    "users": lambda: namespace("user"),
    "shared memory segment": lambda: libc.shmget(t["segment"], 0, 0) >= 0,
    "shared memory file": lambda: t["marker"].encode() in read(t["shared"]),
    "loopback": lambda: connect(socket.AF_INET, ("127.0.0.1", t["port"])),
    "abstract socket": lambda: connect(socket.AF_UNIX, "\\0" + t["abstract"]),
    "gateway": gateway,
    "engine": ask_engine,
    "block device": device,
    "settings of the kernel": lambda: open_for_writing("/proc/sys/kernel/core_pattern"),
    "timers of the kernel": lambda: len(read("/proc/timer_list")) > 0,
    "rights": rights,
    "system calls": system_calls,
}
found = {}
for name, attempt in ATTEMPTS.items():
    try:
        found[name] = bool(attempt())
    except OSError:
        found[name] = False
json.dump(found, sys.stdout)
"""

MENTIONED: Final[Mapping[str, Sequence[str]]] = {
    "file": ("files: {base} at",),
    "write": ("files: {base} at {base}, for writing",),
    "processes": ("processes: those of this host",),
    "pid namespace": ("processes: those of this host",),
    "ipc namespace": ("shared memory: those of this host",),
    "uts namespace": ("host name: those of this host",),
    "network namespace": ("network: that of this host",),
    "control group namespace": ("control groups: their names are those of this host",),
    "users": ("users: their numbers mean those of this host",),
    "shared memory segment": ("shared memory: those of this host",),
    "shared memory file": ("shared memory: those of this host",),
    "loopback": ("network: that of this host",),
    "abstract socket": ("network: that of this host",),
    "gateway": ("network: that of this host", "network: bridge"),
    "engine": ("engine: ",),
    "block device": ("privileges: ", "device: ", "devices: "),
    "settings of the kernel": ("privileges: ", "/proc"),
    "timers of the kernel": ("privileges: ", "/proc"),
    "rights": ("privileges: ", "capability: "),
    "system calls": ("system calls: ", "privileges: "),
}
"""How crossings begin of which one at least is named where the attempt may have its effect."""


@dataclass(frozen=True)
class Shape:
    """Attributes:
    options: Of `docker run`; none for a container that a world makes.
    boundary: What the world must say of it.
    """

    boundary: Boundary
    options: tuple[str, ...] = ()


SHAPES: Final = {
    "made": Shape(Boundary.CONTAINER),
    "plain": Shape(Boundary.CONTAINER, ("--network=none",)),
    "bridge": Shape(Boundary.CONTAINER, ("--network=bridge", "--volume={base}:{base}:ro")),
    "of the host": Shape(
        Boundary.NONE,
        (
            *(f"--{name}=host" for name in ("network", "pid", "ipc", "uts", "cgroupns")),
            "--volume={base}:{base}",
            "--volume={engine}:{engine}",
            "--cap-add=NET_ADMIN",
            "--security-opt=seccomp=unconfined",
        ),
    ),
    "opened": Shape(
        Boundary.NONE,
        ("--network=none", "--device-cgroup-rule=b *:* rmw", "--security-opt=systempaths=unconfined"),
    ),
}


_NAMESPACES: Final = ("pid", "ipc", "uts", "net", "cgroup", "user")
_USUAL_RIGHTS: Final = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))
"""Of root in a container, as the engine documents them."""


@dataclass(frozen=True)
class HostThings:
    """What belongs to the host.

    Attributes:
        base: Directory with a file.
        order: What the attempts are told.
    """

    base: Path
    order: Mapping[str, Any]


@pytest.fixture(scope="module")
def things(engine: Engine, place: Path) -> Iterator[HostThings]:
    base, marker = place / "of-host", f"m{secrets.token_hex(8)}"
    base.mkdir()
    (base / "file").write_text(marker)
    shared = Path("/dev/shm", f"execworld-{marker}")
    shared.write_text(marker)
    libc = ctypes.CDLL(None, use_errno=True)
    key = secrets.randbelow(1 << 24) + 1
    segment = libc.shmget(key, 4096, 0o1600)  # IPC_CREAT
    assert segment >= 0
    with (
        socket.create_server(("127.0.0.1", 0)) as loopback,
        socket.create_server(("0.0.0.0", 0)) as everywhere,
        socket.socket(socket.AF_UNIX) as abstract,
        subprocess.Popen([sys.executable, "-c", "input()", marker], stdin=subprocess.PIPE) as process,
    ):
        abstract.bind(f"\0{marker}")
        abstract.listen(16)
        order = {
            "marker": marker,
            "file": str(base / "file"),
            "shared": str(shared),
            "segment": key,
            "namespaces": {name: os.stat(f"/proc/self/ns/{name}").st_ino for name in _NAMESPACES},
            "port": loopback.getsockname()[1],
            "open_port": everywhere.getsockname()[1],
            "abstract": marker,
            "engine": str(engine.path),
            "device": _block_device(),
            "usual_rights": _USUAL_RIGHTS,
        }
        try:
            yield HostThings(base, order)
        finally:
            process.communicate(b"\n")
            libc.shmctl(segment, 0, None)  # IPC_RMID
            shared.unlink()


def _block_device() -> int:
    """One that this host lets root open; 0 when it keeps all of them from everyone."""
    for path in sorted(Path("/dev").iterdir()):
        try:
            if path.is_block_device():
                os.close(os.open(path, os.O_RDONLY))
                return path.stat().st_rdev
        except OSError:
            continue
    return 0


@dataclass(frozen=True)
class Seen:
    """What was had in a container, and what the facts of its world say."""

    had: Mapping[str, bool]
    crossings: tuple[str, ...]
    boundary: Boundary

    def names(self, attempt: str, base: Path) -> bool:
        starts = tuple(start.format(base=base) for start in MENTIONED[attempt])
        return any(crossing.startswith(starts) for crossing in self.crossings)


class Looks:
    """Each shape is looked at once."""

    def __init__(self, engine: Engine, things: HostThings) -> None:
        self._engine, self._things = engine, things
        self._seen: dict[str, Seen] = {}

    def __call__(self, shape: str) -> Seen:
        if shape not in self._seen:
            self._seen[shape] = self._look(SHAPES[shape])
        return self._seen[shape]

    def _look(self, shape: Shape) -> Seen:
        if not shape.options:
            options_of_made = {"pull": "never", "network": "none"}
            return anyio.run(self._attempt, f"docker://{IMAGE}", options_of_made)
        options = [
            option.format(base=self._things.base, engine=self._engine.path) for option in shape.options
        ]
        with running(self._engine, *options) as container:
            no_options: dict[str, Any] = {}
            return anyio.run(self._attempt, f"docker+attach://{container}", no_options)

    async def _attempt(self, url: str, options: Mapping[str, Any]) -> Seen:
        async with open_world(url, **options) as world:
            had = await _attempt(world, self._things)
            return Seen(had, world.facts.crossings, world.facts.boundary)


@pytest.fixture(scope="module")
def look(engine: Engine, things: HostThings) -> Looks:
    return Looks(engine, things)


@pytest.mark.parametrize("shape", SHAPES)
def test_what_can_be_had_is_named(look: Looks, things: HostThings, shape: str) -> None:
    seen = look(shape)
    assert set(seen.had) == set(MENTIONED)
    unnamed = {name for name, had in seen.had.items() if had and not seen.names(name, things.base)}
    assert unnamed == set(), seen.crossings
    assert seen.boundary is SHAPES[shape].boundary


def test_each_can_be_had_somewhere(look: Looks, things: HostThings, note: Note) -> None:
    """Where it is named. An attempt that always fails would prove nothing."""
    void: set[str] = set() if things.order["device"] else {"block device"}
    if void:
        note("containers: no block device of this host can be opened, so that nothing is proven of them")
    had = {name for name in MENTIONED if any(look(shape).had[name] for shape in SHAPES)}
    assert set(MENTIONED) - had - void == set()


def test_a_view_takes_back_what_is_mounted(engine: Engine, things: HostThings) -> None:
    """The socket of the engine and a directory of the host, on purpose: they cross, and a policy can hide them."""
    anyio.run(_take_back, engine, things)


async def _take_back(engine: Engine, things: HostThings) -> None:
    mounts = [{"target": path, "source": path} for path in (str(things.base), str(engine.path))]
    options: dict[str, Any] = {
        "mounts": mounts,
        "allow_engine_socket": True,
        "network": "host",
        "pull": "never",
    }
    async with open_world(f"docker://{IMAGE}", **options) as world:
        assert world.facts.boundary is Boundary.NONE
        had = await _attempt(world, things)
        view = await world.sandbox.confine(
            SandboxPolicy(
                SandboxMode.WORKSPACE_WRITE,
                "/escape/0",
                network=NetworkPolicy(NetworkMode.NONE),
                hidden=(str(things.base),),
            )
        )
        in_view = await _attempt(view, things)
    mounted = ("file", "write", "engine", "loopback", "abstract socket")
    assert {name: had[name] for name in mounted} == dict.fromkeys(mounted, True)
    assert {name: in_view[name] for name in mounted} == dict.fromkeys(mounted, False)


async def _attempt(world: World, things: HostThings) -> dict[str, bool]:
    result = await world.subprocess.run(
        [PYTHON, "-c", ATTEMPTS], stdin=json.dumps(things.order).encode(), check=True
    )
    return dict(json.loads(result.stdout.text))
