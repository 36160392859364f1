"""A real machine on this host, and ways to start things on it without the layers above."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

from execworld.machine.base import STDOUT
from execworld.machine.batch import Batch
from execworld.machine.local.machine import LocalMachine
from execworld.machine.operations import Spawn
from execworld.machine.values import Redirect, Spawned


@dataclass(frozen=True, slots=True)
class ShellStarter:
    """Starts `sh` scripts on a machine."""

    machine: LocalMachine

    async def start(
        self,
        script: str,
        *arguments: str,
        ready: bytes = b"+",
        environment: tuple[tuple[bytes, bytes], ...] = (),
    ) -> Spawned:
        """Start *script*, whose positional parameters are *arguments*, and wait until it printed *ready*."""
        argv = (b"sh", b"-c", script.encode(), b"sh", *(argument.encode() for argument in arguments))
        batch = Batch()
        step = batch.add(
            Spawn(
                path=b"/bin/sh",
                argv=argv,
                environment=((b"PATH", b"/usr/bin:/bin"), *environment),
                cwd=b"/",
                stdin=Redirect.NULL,
                stdout=Redirect.PIPE,
                stderr=Redirect.NULL,
            )
        )
        spawned = (await self.machine.run(batch))[step]
        with anyio.fail_after(20):
            for byte in ready:
                assert await self.machine.receive(spawned.handle, STDOUT, 1) == bytes((byte,))
        return spawned


@pytest.fixture
async def machine(anyio_backend: str) -> AsyncGenerator[LocalMachine]:
    machine = LocalMachine()
    try:
        yield machine
    finally:
        report = await machine.aclose()
        assert report.gone


@pytest.fixture
def starter(machine: LocalMachine) -> ShellStarter:
    return ShellStarter(machine)


def process_state(pid: int) -> str:
    """State letter of a process (proc(5)); empty when it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return text[text.rfind(b")") + 2 :].split()[0].decode()


@pytest.fixture
def running() -> Callable[[int], bool]:
    """Whether a process runs code: neither gone nor a zombie."""
    return lambda pid: process_state(pid) not in ("", "Z", "X")


@pytest.fixture
def state_of() -> Callable[[int], str]:
    return process_state


Condition = Callable[[], bool]


@pytest.fixture
def eventually() -> Callable[[Condition, str], Awaitable[None]]:
    """Poll until a condition holds, or fail with a complaint."""

    async def poll(condition: Condition, complaint: str) -> None:
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline, f"not within 10 s: {complaint}"
            await anyio.sleep(0.005)

    return poll


@pytest.fixture
def number_in(tmp_path: Path) -> Callable[[str], int]:
    """The number in a file of the test's directory, as soon as a whole line is there."""

    def read(name: str) -> int:
        deadline = time.monotonic() + 10
        while True:
            try:
                text = (tmp_path / name).read_text()
            except FileNotFoundError:
                text = ""
            if text.endswith("\n"):
                return int(text)
            assert time.monotonic() < deadline, f"nothing wrote {name} within 10 s"
            time.sleep(0.005)

    return read
