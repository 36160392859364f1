"""Containers that the suite runs in: made by a world, joined by one, and one that has everything of its host."""

from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
from anyio.abc import ByteReceiveStream
from anyio.streams.buffered import BufferedByteReceiveStream
from tests.docker.engines import Engine

from execworld.seams import (
    OutputLimits,
    OutputStream,
    SandboxUnavailable,
    StreamMode,
    World,
)
from execworld.world import open_world

from .places import emulated, world_python
from .plans import Outcome, Plan, Result, sandbox_policy
from .probes import CONTROLS, PROBES, Twin

MADE, JOINED, OF_HOST = "docker", "docker+attach", "docker-of-host"
KINDS: Final = (MADE, JOINED, OF_HOST)
IMAGE: Final = "execworld-test-escapes"
PYTHON: Final = "/usr/bin/python3"
"""Of the image."""
_HERE: Final = Path(__file__).parent
_TREE: Final = _HERE.parents[1]
_PLACE: Final = "/escape"
_PACKAGE: Final = f"{_PLACE}/package/escape"
_SETUID: Final = f"{_PLACE}/setuid-id"
_RIGHTS: Final = ("DAC_READ_SEARCH", "NET_ADMIN", "SYS_ADMIN", "SYS_NICE", "SYS_PTRACE")
_ISOLATED: Final = ("-S", "-E", "-s")
_MOST_LINE: Final = 16 << 20
_LIMITS: Final = OutputLimits(head_bytes=8 << 20, tail_bytes=0)
_TIMEOUT_S: Final = 60

_DOCKERFILE: Final = f"""\
FROM {{base}}
USER 0
WORKDIR /
RUN install -d {_PLACE}/0 && install -d -o 1000 -g 1000 {_PLACE}/1000 && install -m 4755 /usr/bin/id {_SETUID}
COPY escape {_PACKAGE}
"""


def make_image(engine: Engine) -> None:
    """`images/world-debian`, which has a Python, with the programs of the suite and directories for their targets."""
    before = engine.docker("images", "--quiet", IMAGE)
    base = engine.docker("build", "--quiet", str(_TREE / "images" / "world-debian"))
    with tempfile.TemporaryFile() as context:
        with tarfile.open(fileobj=context, mode="w") as tar:
            _add(tar, "Dockerfile", _DOCKERFILE.format(base=base).encode())
            for path in programs():
                _add(tar, f"escape/{path.relative_to(_HERE)}", path.read_bytes())
        context.seek(0)
        engine.docker("build", "--quiet", "--tag", IMAGE, "-", stdin=context.fileno())
    if before not in ("", engine.docker("images", "--quiet", IMAGE)):
        engine.docker("rmi", before, check=False)  # unless another test still runs in it


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def programs() -> Sequence[Path]:
    """All that runs outside of this process."""
    alone = (_HERE / name for name in ("outside.py", "stage.py", "victim.py"))
    return (*alone, *sorted(_HERE.glob("probes/*.py")))


@contextmanager
def running(engine: Engine, *options: str) -> Generator[str]:
    """A container that somebody else runs."""
    container = engine.docker("run", "--detach", "--rm", "--init", *options, IMAGE, "sleep", "1000")
    try:
        yield container
    finally:
        engine.docker("rm", "--force", container, check=False)  # what ran in it may have ended it


@dataclass(frozen=True, slots=True)
class Place:
    """Where the sessions of one container take place.

    Attributes:
        world: With full access: nothing but the container confines it.
        base: Directory for targets, on the host as in the container where those are on the host.
        package: The programs, likewise.
        on_host: The targets are.
    """

    world: World
    uid: int
    base: Path = Path(_PLACE)
    package: Path = Path(_PACKAGE)
    on_host: bool = False

    @property
    def own(self) -> Path:
        """Directory that belongs to the user."""
        return self.base / str(self.uid)


@asynccontextmanager
async def open_container(engine: Engine, plan: Plan, base: Path) -> AsyncGenerator[Place]:
    """A container of the kind of *plan*, as its user, in a place as *plan* has it.

    Args:
        base: Empty directory of this host that every user can enter.
    """
    user = str(plan.uid)
    if plan.world == MADE:
        with emulated(plan):
            async with open_world(f"docker://{IMAGE}", user=user, pull="never") as world:
                yield Place(world, plan.uid)
        return
    options = ["--user", user]
    if plan.world == OF_HOST:
        options += [f"--{name}=host" for name in ("network", "pid", "ipc", "uts")]
        options += [f"--volume={path}:{path}" for path in (base, engine.path)]
        options += [f"--cap-add={name}" for name in _RIGHTS]
    else:
        options.append("--network=none")
    with running(engine, *options) as container, emulated(plan):
        async with open_world(f"docker+attach://{container}") as world:
            if plan.world == OF_HOST:
                yield _place_on_host(world, plan.uid, base)
            else:
                yield Place(world, plan.uid)


def _place_on_host(world: World, uid: int, base: Path) -> Place:
    place = Place(world, uid, base, base / "package" / "escape", on_host=True)
    place.own.mkdir()
    os.chown(place.own, uid, uid)
    for path in programs():
        copy = place.package / path.relative_to(_HERE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return place


class _Writer(Protocol):
    async def send(self, item: bytes, /) -> None: ...


class Stage:
    """The other end of `stage`."""

    def __init__(self, stdin: _Writer, stdout: ByteReceiveStream) -> None:
        self._stdin, self._stdout = stdin, BufferedByteReceiveStream(stdout)

    async def ask(self, **request: Any) -> dict[str, Any]:
        await self._stdin.send(json.dumps(request).encode() + b"\n")
        return dict(json.loads(await self._stdout.receive_until(b"\n", _MOST_LINE)))


@asynccontextmanager
async def _staged(place: Place) -> AsyncGenerator[Stage]:
    if place.on_host:
        command = [world_python(place.uid), *_ISOLATED, "-m", "escape.stage"]
        options: dict[str, Any] = {"user": place.uid, "group": place.uid, "extra_groups": []}
        process = await anyio.open_process(command, stderr=None, cwd=place.package.parent, **options)
        assert process.stdin is not None
        assert process.stdout is not None
        async with process:
            yield Stage(process.stdin, process.stdout)
            await process.stdin.aclose()
            assert await process.wait() == 0
        return
    async with place.world.subprocess.start(
        [PYTHON, *_ISOLATED, "-m", "escape.stage"],
        cwd=str(place.package.parent),
        pipe_stdin=True,
        stdout=StreamMode.PIPE,
    ) as started:
        assert started.stdin is not None
        assert started.stdout is not None
        try:
            yield Stage(started.stdin, started.stdout)
        except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            raise AssertionError(f"the stage ended: {(await started.wait()).stderr.text[-4000:]}") from None
        await started.stdin.aclose()
        result = await started.wait()
        assert result.exit_code == 0, result.stderr.text


async def perform(place: Place, plan: Plan, number: int) -> Outcome:
    """Run the probes of *plan*, with targets of their own: *number* tells them from those of other plans."""
    names = _names(place, plan)
    async with _staged(place) as stage:
        base = str(place.own / str(number))
        facts = await stage.ask(
            base=base,
            python=world_python(place.uid) if place.on_host else PYTHON,
            program=str(place.package),
            names=names,
            setuid_program=_SETUID,
        )
        outcome = Outcome(crossings=list(place.world.facts.crossings))
        attempt = _Attempt(stage, [PYTHON, *facts["command"][1:]], facts["order"])
        if plan.policy:
            policy = sandbox_policy(
                plan.policy,
                Path(base),
                allowed_port=facts["allowed_port"],
                write_roots=facts["write_roots"],
                readable=facts["readable"],
            )
            try:
                view = await place.world.sandbox.confine(policy)
            except SandboxUnavailable as error:
                outcome.refused = f"{error.code}: {error}"
                return outcome
            outcome.enforcement = view.enforcement.as_dict()
            text = await attempt.run(view, names)
        else:
            direct = [name for name in names if name in PROBES and PROBES[name].twin is Twin.DIRECT]
            text = await attempt.run(place.world, [name for name in names if name not in direct])
            text += (await stage.ask(run=direct))["text"]
        results = (await stage.ask(text=text))["results"]
        outcome.results = {name: Result(**result) for name, result in results.items()}
    return outcome


def _names(place: Place, plan: Plan) -> list[str]:
    chosen = list(plan.probes) or [*PROBES, *CONTROLS]
    if plan.policy or not place.on_host:
        return chosen
    # What is for namespaces that are thrown away must not be tried where those of the host may be met.
    return [name for name in chosen if name in CONTROLS or PROBES[name].twin is not Twin.NAMESPACE]


class _Attempt:
    def __init__(self, stage: Stage, command: list[str], order: dict[str, Any]) -> None:
        self._stage, self._command, self._order = stage, command, order
        self._pending = b""

    async def run(self, world: World, names: list[str]) -> str:
        order = json.dumps({name: self._order[name] for name in names}).encode()
        result = await world.subprocess.run(
            self._command, stdin=order, limits=_LIMITS, timeout_s=_TIMEOUT_S, on_output=self._see, cwd="/"
        )
        assert not result.stderr.data, f"the program of the probes said {result.stderr.text[-4000:]}"
        return result.stdout.text

    async def _see(self, stream: OutputStream, data: bytes) -> None:
        if stream is not OutputStream.STDOUT:
            return
        *lines, self._pending = (self._pending + data).split(b"\n")
        for line in lines:
            if b'"listening"' in line:
                found = json.loads(line)
                await self._stage.ask(visit=[found["listening"], found["token"]])
