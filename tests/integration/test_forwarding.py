"""Connections into a world over a forwarded port, over the local machine and over a warden."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from execworld.machine.base import Machine
from execworld.machine.forwarding import Target, forward_port
from execworld.machine.local.machine import LocalMachine
from execworld.machine.warden import locate_warden, open_warden_machine, start_local_warden
from execworld.seams import WorldClosed, WorldUnavailable

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(kind: str) -> AsyncGenerator[Machine]:
    if kind == "local":
        local = LocalMachine()
        try:
            yield local
        finally:
            await local.aclose()
        return
    try:
        binary = locate_warden()
    except WorldUnavailable as error:
        pytest.skip(str(error))
    async with open_warden_machine(start_local_warden(binary)) as machine:
        yield machine


both = pytest.mark.parametrize("kind", ["local", "warden"])


async def reverse(client: SocketStream) -> None:
    """A server that answers at the end of its input, with everything backwards."""
    async with client:
        received = b"".join([data async for data in client])
        await client.send(received[::-1])


@asynccontextmanager
async def serving(port: int = 0) -> AsyncGenerator[int]:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, reverse)
            yield int(listener.extra(SocketAttribute.local_port))
            tasks.cancel_scope.cancel()


async def ask(port: int, content: bytes) -> bytes:
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:

                async def send() -> None:
                    await stream.send(content)
                    await stream.send_eof()

                tasks.start_soon(send)
                return b"".join([data async for data in stream])
    pytest.fail("no answer")


@both
async def test_both_directions_carry_everything_and_end_apart(kind: str) -> None:
    """The server answers only after the end of its input: half a connection can be closed."""
    content = bytes(range(256)) * 8000
    async with (
        opened(kind) as machine,
        serving() as there,
        forward_port(machine, Target(there)) as forwarding,
    ):
        assert await ask(forwarding.port, content) == content[::-1]


@both
async def test_connections_are_independent(kind: str) -> None:
    async with (
        opened(kind) as machine,
        serving() as there,
        forward_port(machine, Target(there)) as forwarding,
    ):
        async with await anyio.connect_tcp("127.0.0.1", forwarding.port):  # says nothing
            async with anyio.create_task_group() as tasks:

                async def one(number: int) -> None:
                    assert await ask(forwarding.port, b"%d" % number) == (b"%d" % number)[::-1]

                for number in range(10, 30):
                    tasks.start_soon(one, number)


@both
async def test_where_nobody_listens_the_connection_ends(kind: str) -> None:
    async with serving() as free:
        pass
    async with opened(kind) as machine, forward_port(machine, Target(free)) as forwarding:
        async with await anyio.connect_tcp("127.0.0.1", forwarding.port) as stream:
            with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()


@both
async def test_a_socket_of_the_world_can_be_reached(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with await anyio.create_unix_listener(path) as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, reverse)
        async with opened(kind) as machine:
            async with forward_port(machine, Target(socket=bytes(path))) as forwarding:
                assert await ask(forwarding.port, b"abc") == b"cba"
        tasks.cancel_scope.cancel()


async def test_a_closed_world_ends_the_forwarding() -> None:
    async with opened("warden") as machine, serving() as there:
        async with forward_port(machine, Target(there)) as forwarding:
            await machine.aclose()
            async with await anyio.connect_tcp("127.0.0.1", forwarding.port) as stream:
                with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                    await stream.receive()
            with anyio.fail_after(5), pytest.raises(WorldClosed):
                await forwarding.wait()


async def test_the_port_is_open_to_this_host_alone() -> None:
    with pytest.raises(ValueError, match="loopback"):
        async with forward_port(LocalMachine(), Target(80), host="0.0.0.0"):
            pytest.fail("it opened")
