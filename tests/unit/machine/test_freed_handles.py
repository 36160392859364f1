"""A task of a command that goes on when the handle was freed already, as it may when both were due in the same turn."""

from __future__ import annotations

from pathlib import Path

import pytest

from execworld.machine.base import NoSuchHandle
from execworld.testing.forwarding import ForwardingMachine
from execworld.testing.warden_worlds import open_warden_world

pytestmark = pytest.mark.anyio


class FreedInput(ForwardingMachine):
    async def send(self, handle: int, data: bytes) -> None:
        raise NoSuchHandle(f"{handle} was released")


class FreedOutput(ForwardingMachine):
    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        raise NoSuchHandle(f"{handle} was released")


@pytest.mark.parametrize("freed", [FreedInput, FreedOutput])
async def test_it_does_not_take_the_world_with_it(tmp_path: Path, freed: type[ForwardingMachine]) -> None:
    async with open_warden_world(str(tmp_path), wrap=freed) as world:
        for _ in range(2):
            assert (await world.subprocess.run(["true"], stdin=b"x")).ok
