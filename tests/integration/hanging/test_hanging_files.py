"""A file system that does not answer holds up whoever asked it, and nobody else.

The requests hang as hard as they can: in the kernel, where no signal ends them.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest

from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.local.machine import LocalMachine
from execworld.machine.operations import (
    Close,
    ListDirectory,
    Open,
    Operation,
    ReadAt,
    Spawn,
    Stat,
    Sync,
    Write,
)
from execworld.machine.values import OpenFlag, Redirect, Spawned
from execworld.machine.warden import LinkSettings, locate_warden, open_warden_machine, start_local_warden
from execworld.seams import World
from execworld.testing.warden_worlds import open_warden_world
from execworld.testing.worlds import open_local

from .conftest import Silent

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.root]

HANGS_S = 0.3  # what answers does so within a few milliseconds
GIVEN_UP_S = 8.0
CLOSED_S = 25.0

OpenMachine = Callable[[], AbstractAsyncContextManager[Machine]]
Call = Callable[[], Awaitable[object]]


@asynccontextmanager
async def local_machine() -> AsyncGenerator[Machine]:
    machine = LocalMachine()
    try:
        yield machine
    finally:
        await machine.aclose()


def warden_machine(cgroups: bool) -> AbstractAsyncContextManager[Machine]:
    return open_warden_machine(start_local_warden(locate_warden()), LinkSettings(cgroups=cgroups))


MACHINES: dict[str, OpenMachine] = {
    "warden": lambda: warden_machine(True),
    "warden-without-groups": lambda: warden_machine(False),
    "local": local_machine,
}


@asynccontextmanager
async def bounded(limit_s: float, what: str) -> AsyncGenerator[None]:
    """Also where the event loop itself was held up."""
    start = time.monotonic()
    with anyio.fail_after(limit_s):
        yield
    assert time.monotonic() - start < limit_s, what


async def execute(machine: Machine, *operations: Operation[object]) -> Sequence[object]:
    batch = Batch()
    for operation in operations:
        batch.add(operation)
    return (await machine.run(batch)).values


async def open_at(machine: Machine, path: bytes, flags: OpenFlag = OpenFlag.READ) -> int:
    (handle,) = await execute(machine, Open(path, flags))
    assert isinstance(handle, int)
    return handle


async def run_true(machine: Machine) -> None:
    spawn = Spawn(
        path=b"/bin/true",
        argv=(b"true",),
        environment=(),
        cwd=b"/",
        stdout=Redirect.NULL,
        stderr=Redirect.NULL,
    )
    (spawned,) = await execute(machine, spawn)
    assert isinstance(spawned, Spawned)
    assert (await machine.wait(spawned.handle)).raw == 0
    await machine.release(spawned.handle)


async def abandoned(call: Call, others: Call) -> None:
    """*call* hangs; *others* go on beside it; it is given up within a bounded time, and they still go on."""
    ended: list[bool] = []

    async def hang() -> None:
        await call()
        ended.append(True)

    async with bounded(GIVEN_UP_S, "a request that hangs was not given up"):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(hang)
            await anyio.sleep(HANGS_S)
            async with bounded(GIVEN_UP_S / 2, "others were held up"):
                await others()
            assert not ended, "it was meant to hang"
            tasks.cancel_scope.cancel()
    async with bounded(GIVEN_UP_S / 2, "others were held up afterwards"):
        await others()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the seams are tried on both
@pytest.mark.parametrize("kind", ["warden", "local"])
@pytest.mark.parametrize("what", ["stat", "open", "read", "sync", "list", "close", "release"])
async def test_a_request_that_hangs_is_alone(kind: str, what: str, silent: Silent) -> None:
    """Others go on, it can be given up, and the machine closes in a bounded time."""
    async with bounded(CLOSED_S, "the machine did not close"):
        async with MACHINES[kind]() as machine:
            file = directory = 0
            if what not in ("stat", "open"):
                file = await open_at(machine, silent.path("file"), OpenFlag.READ | OpenFlag.WRITE)
                directory = await open_at(machine, silent.path("directory"), OpenFlag.DIRECTORY)
                await execute(machine, Write(file, b"data"))
            silent.fall_silent()
            hanging: dict[str, Call] = {
                "stat": lambda: execute(machine, Stat(silent.path("file"))),
                "open": lambda: execute(machine, Open(silent.path("file"))),
                "read": lambda: execute(machine, ReadAt(file, 0, 10)),
                "sync": lambda: execute(machine, Sync(file)),
                "list": lambda: execute(machine, ListDirectory(directory, 10)),
                "close": lambda: execute(machine, Close(file)),
                "release": lambda: machine.release(file),
            }

            async def others() -> None:
                await execute(machine, Stat(b"/"))
                await machine.ping()
                # The local machine forks this process: the child closes what is open here, and hangs as well.
                if kind != "local" or not file:
                    await run_true(machine)

            await abandoned(hanging[what], others)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kind", ["warden", "warden-without-groups"])
async def test_many_commands_start_beside_an_open_file_that_hangs(kind: str, silent: Silent) -> None:
    """More than there are supervisors that wait: new ones do not take over what the warden has open."""
    async with bounded(CLOSED_S, "the machine did not close"):
        async with MACHINES[kind]() as machine:
            await open_at(machine, silent.path("file"))
            silent.fall_silent()
            async with bounded(GIVEN_UP_S, "commands were held up"):
                async with anyio.create_task_group() as tasks:
                    for _ in range(40):
                        tasks.start_soon(run_true, machine)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("what", ["cwd", "program"])
async def test_a_start_that_hangs_is_alone(what: str, silent: Silent) -> None:
    """The directory, or the program, of a command is where nothing answers."""
    async with bounded(CLOSED_S, "the machine did not close"):
        async with MACHINES["warden"]() as machine:
            silent.fall_silent()
            path = silent.path("file") if what == "program" else b"/bin/true"
            cwd = silent.path("directory") if what == "cwd" else b"/"
            spawn = Spawn(path=path, argv=(b"x",), environment=(), cwd=cwd)
            await abandoned(lambda: execute(machine, spawn), lambda: run_true(machine))


WORLDS: dict[str, Callable[[str], AbstractAsyncContextManager[World]]] = {
    "warden": open_warden_world,
    "local": open_local,
}


@pytest.mark.parametrize("kind", WORLDS)
async def test_the_seams_give_up_what_hangs(kind: str, silent: Silent, tmp_path: Path) -> None:
    """The same through the file system of a world: time limits of callers hold, and the world goes on and closes."""
    async with bounded(CLOSED_S, "the world did not close"):
        async with WORLDS[kind](str(tmp_path)) as world:
            file, directory = (str(silent.directory / name) for name in ("file", "directory"))
            async with world.fs.open_reader(file) as chunks:
                async for _ in chunks:
                    pass
            silent.fall_silent()
            calls: list[Call] = [
                lambda: world.fs.stat(file),
                lambda: world.fs.read_bytes(file),
                lambda: world.fs.write_bytes(file, b"x"),
                lambda: world.fs.list_directory(directory),
            ]
            for call in calls:
                async with bounded(GIVEN_UP_S, "a request that hangs was not given up"):
                    with anyio.move_on_after(HANGS_S) as scope:
                        await call()
                    assert scope.cancelled_caught
            await world.fs.write_bytes("beside", b"x")
            assert (await world.subprocess.run(["/bin/true"])).ok


@pytest.mark.parametrize("kind", MACHINES)
async def test_a_fifo_without_a_partner_does_not_hang(kind: str, tmp_path: Path) -> None:
    """Neither its opening nor its reading waits for anybody."""
    fifo = os.fsencode(tmp_path / "fifo")
    os.mkfifo(fifo)
    async with bounded(GIVEN_UP_S, "it hangs"):
        async with MACHINES[kind]() as machine:
            with pytest.raises(BatchFailed) as failed:
                await execute(machine, Open(fifo, OpenFlag.WRITE))
            assert failed.value.error.status == errno.ENXIO
            handle = await open_at(machine, fifo, OpenFlag.READ | OpenFlag.WRITE)
            with pytest.raises(BatchFailed) as failed:
                await execute(machine, ReadAt(handle, 0, 10))
            assert failed.value.error.status == errno.ESPIPE
            await machine.release(handle)
