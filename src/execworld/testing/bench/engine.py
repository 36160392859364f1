"""The plain ways into a container: the engine's own command, and its SDK."""

from __future__ import annotations

import asyncio  # noqa: TID251 - the plain way
import io
import os
import shutil
import tarfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import anyio.to_thread

from execworld.seams import World
from execworld.testing.bench.measuring import Case, LeftOut
from execworld.testing.bench.place import Place, open_and_close, stream_flood

_PROGRAM: Final = "docker"
_LITTLE: Final = os.urandom(1024)


@dataclass(frozen=True, slots=True)
class PlainContainer:
    """The container of a world, reached without the world."""

    client: Any
    """Of docker-py, whose stubs know half of it."""
    id: str
    image: str

    async def execute(self) -> None:
        """`exec_run` of the SDK, in a thread as an async program must."""
        container = await self._in_thread(partial(self.client.containers.get, self.id))
        result = await self._in_thread(partial(container.exec_run, ["true"]))
        assert result.exit_code == 0, result

    async def write(self, directory: str, name: str, data: bytes) -> None:
        """The SDK's way to write a file: an archive."""
        held = io.BytesIO()
        with tarfile.open(fileobj=held, mode="w") as archive:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        assert await self._in_thread(
            partial(self.client.api.put_archive, self.id, directory, held.getvalue())
        )

    async def read(self, path: str) -> bytes:
        """The SDK's way to read a file: an archive."""

        def read() -> bytes:
            pieces, _ = self.client.api.get_archive(self.id, path)
            with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as archive:
                member = archive.extractfile(archive.getmembers()[0])
                assert member is not None
                return member.read()

        data: bytes = await self._in_thread(read)
        return data

    async def stream(self, argv: list[str]) -> int:
        """`docker exec`, whose output is read here. Returns how much there was."""
        process = await asyncio.create_subprocess_exec(
            _PROGRAM, "exec", self.id, *argv, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        received = 0
        while chunk := await process.stdout.read(1 << 16):
            received += len(chunk)
        assert await process.wait() == 0
        return received

    async def run_another(self) -> None:
        """`docker run --rm IMAGE true`."""
        process = await asyncio.create_subprocess_exec(_PROGRAM, "run", "--rm", self.image, "true")
        assert await process.wait() == 0

    async def _in_thread(self, call: Callable[[], Any]) -> Any:
        return await anyio.to_thread.run_sync(call)


@asynccontextmanager
async def plain_container(world: World) -> AsyncGenerator[PlainContainer]:
    """The container of *world*, by the engine that the environment names.

    Raises:
        LeftOut: the world is in none, or what the plain ways need is not there.
    """
    kind, _, instance = world.world_id.partition(":")
    if kind != "docker":
        raise LeftOut("the world is not in a container")
    if shutil.which(_PROGRAM) is None:
        raise LeftOut(f"`{_PROGRAM}` is not installed")
    import docker
    from docker.errors import DockerException

    identifier = instance.partition("@")[0]
    try:
        client = await anyio.to_thread.run_sync(docker.from_env)
        container = await anyio.to_thread.run_sync(client.containers.get, identifier)
    except DockerException as error:
        raise LeftOut(f"the engine of this host does not show the container: {error}") from error
    try:
        yield PlainContainer(client, identifier, str(container.attrs["Image"]))
    finally:
        await anyio.to_thread.run_sync(client.close)


@asynccontextmanager
async def spawn_row(place: Place) -> AsyncGenerator[Case]:
    async with plain_container(place.world) as plain:
        run = place.world.subprocess.run
        yield Case("spawn `true`", "ms", 30, lambda: run(["true"]), {"docker-py exec_run": plain.execute})


@asynccontextmanager
async def file_row(place: Place) -> AsyncGenerator[Case]:
    async with plain_container(place.world) as plain:
        fs, directory = place.world.fs, place.directory

        async def ours() -> None:
            await fs.write_bytes(f"{directory}/ours", _LITTLE)
            assert await fs.read_bytes(f"{directory}/ours") == _LITTLE

        async def theirs() -> None:
            await plain.write(directory, "theirs", _LITTLE)
            assert await plain.read(f"{directory}/theirs") == _LITTLE

        yield Case("write and read 1 KiB", "ms", 30, ours, {"archives by docker-py": theirs})


@asynccontextmanager
async def stream_row(place: Place) -> AsyncGenerator[Case]:
    async with plain_container(place.world) as plain:
        size = place.flood_bytes
        path = f"{place.directory}/flood"
        await place.world.subprocess.run(["sh", "-c", f"head -c {size} /dev/zero >{path}"], check=True)

        async def theirs() -> None:
            assert await plain.stream(["cat", path]) == size

        yield Case(
            f"stream {size / 1e6:g} MB of a file",
            "ms",
            5,
            partial(stream_flood, place, ["cat", path]),
            {"docker exec": theirs},
        )


@asynccontextmanager
async def open_row(place: Place) -> AsyncGenerator[Case]:
    async with plain_container(place.world) as plain:
        ours = partial(open_and_close, place)
        yield Case("open and close a world", "ms", 15, ours, {"docker run --rm": plain.run_another})
