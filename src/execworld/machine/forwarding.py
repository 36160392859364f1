"""A port on this host's loopback whose connections are opened inside the world."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import anyio
from anyio.abc import ByteStream, SocketAttribute, SocketStream

from execworld.machine.base import STDOUT, Machine, NoSuchHandle, StreamClosed
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.operations import Connect
from execworld.machine.values import AddressKind
from execworld.seams.errors import ExecworldError
from execworld.seams.values import record

_CHUNK_BYTES: Final = 64 * 1024
_MAX_CONNECTIONS: Final = 256
_LOOPBACK: Final = ("127.0.0.1", "::1")


@record
class Target:
    """What a forwarded connection is opened to, as seen from inside the world.

    Attributes:
        addresses: Numeric addresses, tried in this order; a server may listen on one family of loopback alone.
        socket: Path of a UNIX socket, instead of addresses and port.
    """

    port: int = 0
    addresses: tuple[str, ...] = _LOOPBACK
    socket: bytes | None = None

    def attempts(self) -> tuple[Connect, ...]:
        if self.socket is not None:
            return (Connect(AddressKind.UNIX, self.socket),)
        return tuple(Connect(AddressKind.TCP, address.encode(), self.port) for address in self.addresses)


class Forwarding:
    """A listening port. Made by `forward_port`.

    Attributes:
        port: Where it listens.
    """

    def __init__(self, machine: Machine, target: Target, port: int) -> None:
        self.port = port
        self._machine = machine
        self._target = target
        self._room = anyio.CapacityLimiter(_MAX_CONNECTIONS)
        self._over = anyio.Event()
        self._failure: ExecworldError | None = None

    async def wait(self) -> None:
        """Wait until the world is lost.

        Raises:
            WorldLost, OutcomeUnknown: that.
        """
        await self._over.wait()
        assert self._failure is not None
        raise self._failure

    async def serve(self, client: SocketStream) -> None:
        """Join one accepted connection to a new one inside the world, until both directions ended."""
        async with self._room, client:
            try:
                handle = await self._connect()
                if handle is None:
                    return
                try:
                    await self._join(client, handle)
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._machine.release(handle)
            except ExecworldError as error:
                self._failure = self._failure or error
                self._over.set()

    async def _connect(self) -> int | None:
        for attempt in self._target.attempts():
            batch = Batch()
            connected = batch.add(attempt)
            try:
                return (await self._machine.run(batch))[connected]
            except BatchFailed:
                continue  # nobody listens there; the client sees its connection end
        return None

    async def _join(self, client: ByteStream, handle: int) -> None:
        failures: list[ExecworldError] = []
        async with anyio.create_task_group() as tasks:

            async def outwards() -> None:
                try:
                    async for data in client:
                        await self._machine.send(handle, data)
                    await self._machine.close_input(handle)
                except (StreamClosed, NoSuchHandle):
                    return  # it wants no more, and may still answer
                except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                    tasks.cancel_scope.cancel()
                except ExecworldError as error:
                    failures.append(error)
                    tasks.cancel_scope.cancel()

            async def inwards() -> None:
                try:
                    while data := await self._machine.receive(handle, STDOUT, _CHUNK_BYTES):
                        await client.send(data)
                    await client.send_eof()
                except (anyio.BrokenResourceError, anyio.ClosedResourceError, NoSuchHandle):
                    tasks.cancel_scope.cancel()
                except ExecworldError as error:
                    failures.append(error)
                    tasks.cancel_scope.cancel()

            tasks.start_soon(outwards)
            tasks.start_soon(inwards)
        if failures:
            raise failures[0]


@asynccontextmanager
async def forward_port(
    machine: Machine, target: Target, *, host: str = "127.0.0.1", port: int = 0
) -> AsyncGenerator[Forwarding]:
    """Listen on *host*, a loopback address of this host, and hand each connection on to *target*.

    Leaving the context closes the port and every connection.

    Args:
        port: Where to listen; 0 for any free port.

    Raises:
        OSError: the port cannot be listened on.
        ValueError: *host* is no loopback address: what is in the world would be open to the network.
    """
    if host not in _LOOPBACK:
        raise ValueError(f"{host} is no loopback address: it must be one of {', '.join(_LOOPBACK)}")
    failure: Exception | None = None
    async with await anyio.create_tcp_listener(local_host=host, local_port=port) as listener:
        forwarding = Forwarding(machine, target, int(listener.extra(SocketAttribute.local_port)))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, forwarding.serve)
            try:
                yield forwarding
            except Exception as error:  # noqa: BLE001 - raised again below, where no group wraps it
                failure = error
            finally:
                tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
