"""What hangs holds up nobody else, and a removal that the engine refuses is told."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import pytest

from execworld.seams import CleanupIncomplete
from execworld.world import open_world

from .engines import SHARED_SOCKET

BUSYBOX: Final = "busybox:stable"
REFUSED: Final = re.compile(rb"DELETE /v[\d.]+/containers/|POST /v[\d.]+/containers/[^/ ]+/(kill|stop)")
REFUSAL: Final = b'{"message": "this engine removes nothing"}'
ANSWER: Final = b"HTTP/1.1 500 Oh\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"


class Refusing:
    """An engine that ends and removes nothing; all else is done by the one of this host."""

    def __init__(self, path: Path) -> None:
        self.url = f"unix://{path}"
        self.refused = 0
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        # Closing alone wakes nobody who waits for a connection.
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(timeout=10)
        for used in (self._listener, *self._connections):
            used.close()

    def _start(self, function: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=function, args=arguments))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                engine = socket.socket(socket.AF_UNIX)
                self._connections += [client, engine]
                engine.connect(str(SHARED_SOCKET))
                self._start(self._forward, client, engine)
                self._start(self._back, engine, client)

    def _forward(self, client: socket.socket, engine: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                if REFUSED.match(data):
                    self.refused += 1
                    client.sendall(ANSWER % (len(REFUSAL), REFUSAL))
                else:
                    engine.sendall(data)
            engine.shutdown(socket.SHUT_WR)

    def _back(self, engine: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := engine.recv(65536):
                client.sendall(data)
            client.shutdown(socket.SHUT_WR)


@pytest.fixture
def refusing(tmp_path: Path) -> Iterator[Refusing]:
    engine = Refusing(tmp_path / "sock")
    yield engine
    engine.close()


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.anyio
async def test_a_removal_that_is_refused_is_told(client: Any, refusing: Refusing) -> None:
    """C196. It is no success, it names what is left and how to remove it; the rest of the end is done all the same."""
    with anyio.fail_after(60):
        world = open_world(f"docker://{BUSYBOX}", host=refusing.url)
        async with contextlib.AsyncExitStack() as stack:
            opened = await stack.enter_async_context(world)
            container = opened.identity.instance.partition("@")[0]
            # One that is paused does not end by itself when its stream ends.
            await anyio.to_thread.run_sync(client.pause, container)
            try:
                with pytest.raises(CleanupIncomplete) as caught:
                    await stack.aclose()
                assert "this engine removes nothing" in str(caught.value)
                assert "execworld-" in caught.value.leftovers[0]
                assert "docker rm -f execworld-" in caught.value.hint
                assert refusing.refused
                assert opened.closed
            finally:
                await anyio.to_thread.run_sync(lambda: client.remove_container(container, force=True))


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.anyio
async def test_commands_that_never_end_hold_up_no_other(client: Any) -> None:
    """C194. However many there are, in the same world and in its files, the next one is as quick as the first."""
    async with open_world(f"docker://{BUSYBOX}") as world, anyio.create_task_group() as tasks:
        await world.subprocess.run(["mkfifo", "/hung"])
        for _ in range(64):
            tasks.start_soon(world.subprocess.run, ["sh", "-c", "cat /hung"])
        with anyio.fail_after(2):
            assert (await world.shell.run("echo quick")).stdout.text == "quick\n"
            await world.fs.write_bytes("/quick", b"quick")
            assert await world.fs.read_bytes("/quick") == b"quick"
        tasks.cancel_scope.cancel()
