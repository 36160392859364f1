"""The control plane: what is asked of the engine, through its SDK, in threads of its own."""

from __future__ import annotations

import io
import math
import re
import socket
import tarfile
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread

from execworld.providers.docker.contexts import EngineAddress
from execworld.providers.docker.failures import EngineRefused, EngineUnreachable, coded
from execworld.providers.docker.following import Answer, Followed
from execworld.providers.docker.hijack import Hijacked, take_over

ResultT = TypeVar("ResultT")

_CONNECT_TIMEOUT_S: Final = 10.0
_THREADS: Final = 8
"""Of one world: a call that hangs in one must not keep the others from ending what they began."""
_MOST_ARCHIVE_BYTES: Final = 16 * 1024
"""What an archive has beside the content of the one file in it."""
_ATTACHED: Final = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}


class Engine:
    """One engine, by one client of the SDK, whose stubs know half of it. Made by `open_engine`.

    Every call raises `EngineRefused` when the engine says no, and `EngineUnreachable` when it says nothing.
    """

    def __init__(self, client: Any, address: EngineAddress, limiter: anyio.CapacityLimiter) -> None:
        self._client = client
        self._limiter = limiter
        self.address = address

    async def look(self, what: str, call: Callable[[Any], ResultT]) -> ResultT:
        """Ask for something that changes nothing. Cancellation abandons the call, which ends by its time limit."""
        return await _in_thread(partial(call, self._client), what, self.address, self._limiter, abandon=True)

    async def change(self, what: str, call: Callable[[Any], ResultT]) -> ResultT:
        """Ask for something that leaves a trace. It is waited for, so that the caller can undo it."""
        return await _in_thread(partial(call, self._client), what, self.address, self._limiter, abandon=False)

    async def follow(
        self, what: str, call: Callable[[Any], Answer], on_event: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Ask for something that the engine reports on while it goes on. Cancellation breaks it off.

        Args:
            on_event: Called for each report, in the event loop's thread. What it raises ends the work too.
        """
        followed = Followed()

        def read(client: Any) -> None:
            with followed.begin(call(client)) as events:
                for event in events:
                    anyio.from_thread.run_sync(on_event, event)

        try:
            await self.look(what, read)
        finally:
            followed.stop()

    # Containers

    async def create(self, config: Mapping[str, Any], name: str, platform: str = "") -> str:
        """Make a container. Returns its id."""
        made = await self.change(
            "making the container",
            lambda client: client.create_container_from_config(dict(config), name, platform or None),
        )
        return str(made["Id"])

    async def put(self, container: str, archive: bytes, *, what: str, directory: str = "/") -> None:
        """Unpack an archive in a directory of a container that runs, or was not started yet."""
        await self.change(what, lambda client: client.put_archive(container, directory, archive))

    async def attach(self, container: str) -> Hijacked:
        """The standard streams of the first process of a container."""

        def attach(client: Any) -> Hijacked:
            handed = client.attach_socket(container, params=dict(_ATTACHED))
            return take_over(handed, handed._response)

        return await self.change("attaching to the container", attach)

    async def execute(
        self, container: str, command: Sequence[str], *, user: str = "", environment: Mapping[str, str]
    ) -> tuple[str, Hijacked]:
        """Run one more program in a container that runs. Returns its id, and its standard streams.

        That it could not be started is no error here: engines differ in how they say so, and on which stream.

        Args:
            user: Empty for the user of the container.
        """

        def execute(client: Any) -> tuple[str, Hijacked]:
            made = client.exec_create(
                container, list(command), stdin=True, user=user, environment=dict(environment)
            )
            handed = client.exec_start(made["Id"], socket=True)
            return str(made["Id"]), take_over(handed, handed._response)

        return await self.change("running a program in the container", execute)

    async def executed(self, execution: str) -> Mapping[str, Any] | None:
        """What became of what `execute` has run; None when the engine does not know it any more."""
        try:
            return await self.look(
                "looking at a program in the container", lambda client: client.exec_inspect(execution)
            )
        except EngineRefused as refused:
            if refused.is_missing:
                return None
            raise

    async def has_path(self, container: str, path: str) -> bool:
        """Whether there is something at *path* of a container, as far as the engine sees: not on a tmpfs."""
        return await self.fetch(container, path, -1) is not None

    async def fetch(self, container: str, path: str, size_bytes: int) -> bytes | None:
        """An archive with the file at *path* of a container; empty if its size is another, None if it is missing."""

        def fetch(client: Any) -> bytes:
            stream, about = client.get_archive(container, path)
            archive = bytearray()
            try:
                if about["size"] == size_bytes:
                    for piece in stream:
                        archive += piece
                        if len(archive) > size_bytes + _MOST_ARCHIVE_BYTES:
                            return b""  # it has grown since
                return bytes(archive)
            finally:
                stream.close()

        try:
            return await self.look("reading a file of the container", fetch)
        except EngineRefused as refused:
            if refused.is_missing:
                return None
            raise

    async def start(self, container: str) -> None:
        await self.change("starting the container", lambda client: client.start(container))

    async def inspect(self, container: str) -> Mapping[str, Any]:
        return await self.look("looking at the container", lambda client: client.inspect_container(container))

    async def find(self, container: str) -> Mapping[str, Any] | None:
        """What the engine says of a container; None when there is none."""
        try:
            return await self.inspect(container)
        except EngineRefused as refused:
            if refused.is_missing:
                return None
            raise

    async def wait_removed(self, container: str, timeout_s: float) -> bool:
        """Wait until a container is gone. Returns whether it is."""
        await self._wait_for(container, "removed", timeout_s)
        return await self.find(container) is None

    async def wait_stopped(self, container: str, timeout_s: float) -> bool:
        """Wait until nothing runs in a container. Returns whether that is so."""
        await self._wait_for(container, "not-running", timeout_s)
        found = await self.find(container)
        return found is None or not found["State"]["Running"]

    async def _wait_for(self, container: str, condition: str, timeout_s: float) -> None:
        def wait(client: Any) -> None:
            client.wait(container, timeout=timeout_s, condition=condition)

        with anyio.move_on_after(timeout_s):
            try:
                await self.look("waiting for the container to end", wait)
            except EngineUnreachable:
                pass  # it took too long, or the engine is gone: whoever looks next will see
            except EngineRefused as refused:
                if not refused.is_missing:
                    raise

    async def kill(self, container: str) -> None:
        """Kill what runs in a container; that nothing does is no error."""
        try:
            await self.change("killing the container", lambda client: client.kill(container))
        except EngineRefused as refused:
            if refused.status not in (404, 409):
                raise

    async def remove(self, container: str, *, volumes: bool = True) -> None:
        """Kill and remove a container with the volumes that have no name; one that is not there is no error."""
        try:
            await self.change(
                "removing the container",
                lambda client: client.remove_container(container, v=volumes, force=True),
            )
        except EngineRefused as refused:
            # 409: somebody else removes it, perhaps the engine itself.
            if refused.status not in (404, 409):
                raise

    async def events(self, container: str, since: str) -> list[Mapping[str, Any]]:
        """What happened to a container, as far as the engine remembers, oldest first.

        Args:
            since: A time of the engine's clock, as it writes them.
        """

        def read(client: Any) -> list[Mapping[str, Any]]:
            # Up to now by the engine's own clock: it would wait for a time that has not come.
            until = client.info()["SystemTime"]
            stream = client.events(
                since=unix_time(since),
                until=unix_time(until),
                filters={"container": container, "type": "container"},
                decode=True,
            )
            try:
                return list(stream)
            finally:
                stream.close()

        return await self.look("asking what happened to the container", read)

    # The rest

    async def info(self) -> Mapping[str, Any]:
        return await self.look("asking what the engine is", lambda client: client.info())

    async def image(self, name: str) -> Mapping[str, Any] | None:
        """What the engine says of an image; None when it has none of that name."""
        try:
            return await self.look("looking at the image", lambda client: client.inspect_image(name))
        except EngineRefused as refused:
            if refused.is_missing:
                return None
            raise


@asynccontextmanager
async def open_engine(
    address: EngineAddress, *, timeout_s: float, trust_environment: bool = False
) -> AsyncGenerator[Engine]:
    """A client for the engine at *address*, in the newest version of its interface that both know.

    Args:
        timeout_s: For one answer. The stream that `Engine.attach` returns has none.
        trust_environment: Let proxies and certificates come from the environment of this process.

    Raises:
        EngineUnreachable, EngineRefused: nobody answers there, or not in a version that is known.
    """
    limiter = anyio.CapacityLimiter(_THREADS)
    connection = _Connection(
        partial(_connect, address, min(timeout_s, _CONNECT_TIMEOUT_S), trust_environment)
    )
    try:
        client = await _in_thread(connection.make, "connecting to it", address, limiter, abandon=True)
    except BaseException:
        connection.abandon()
        raise
    client.timeout = timeout_s
    try:
        yield Engine(client, address, limiter)
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(client.close, limiter=limiter)


class _Connection:
    """A client that is made in a thread, for which perhaps nobody waits when it is there."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._client: Any = None
        self._is_abandoned = False

    def make(self) -> Any:
        client = self._connect()
        with self._lock:
            self._client = client
            if self._is_abandoned:
                client.close()
        return client

    def abandon(self) -> None:
        with self._lock:
            self._is_abandoned = True
            if self._client is not None:
                self._client.close()


def _connect(address: EngineAddress, timeout_s: float, trust_environment: bool) -> Any:
    from docker import APIClient
    from docker.tls import TLSConfig

    # Its session asks the environment for proxies and certificates only when it is told to, and from the first request
    # on, which the constructor makes. That also sets the attribute, which therefore takes nothing.
    trust = property(lambda client: trust_environment, lambda client, value: None)
    make: Callable[..., Any] = type("Client", (APIClient,), {"trust_env": trust})
    tls = address.tls
    client = make(
        base_url=address.url,
        timeout=math.ceil(timeout_s),
        tls=False
        if tls is None
        else TLSConfig(
            client_cert=(tls.certificate, tls.key) if tls.certificate else None,
            ca_cert=tls.authority or None,
            verify=tls.verify,
        ),
    )
    if address.scheme == "ssh":
        _share_sessions(client)
    return client


def _share_sessions(client: Any) -> None:
    """Let all requests share what they connect by.

    The SDK keeps it apart by the whole address of a request, so that each kind has a session of SSH, and servers allow
    few: ten where nothing else is said.
    """
    adapter = client._custom_adapter
    adapter.pools.clear()  # what the first request, for the version, has used
    by_address: Callable[[str, object], Any] = adapter.get_connection

    def get_connection(url: str, proxies: object = None) -> Any:
        return by_address("", proxies)

    adapter.get_connection = get_connection


async def _in_thread(
    call: Callable[[], ResultT],
    what: str,
    address: EngineAddress,
    limiter: anyio.CapacityLimiter,
    *,
    abandon: bool,
) -> ResultT:
    def reach_and_call() -> ResultT:
        _reach(address)
        return call()

    try:
        return await anyio.to_thread.run_sync(reach_and_call, abandon_on_cancel=abandon, limiter=limiter)
    except Exception as error:
        known = coded(error, what, address)
        if known is None:
            raise
        raise known from error


def _reach(address: EngineAddress) -> None:
    """The SDK leaves its socket open when it cannot connect it, so it does not come to that."""
    if address.scheme == "unix":
        with socket.socket(socket.AF_UNIX) as trial:
            trial.settimeout(_CONNECT_TIMEOUT_S)
            trial.connect(address.url.removeprefix("unix://"))


def unix_time(text: str) -> str:
    """A time as the engine writes it, in the form in which it asks for it: seconds, and what is left of them."""
    whole, _, rest = text.partition(".")
    fraction = re.match(r"\d*", rest)
    digits = fraction[0] if fraction else ""
    moment = datetime.fromisoformat(whole + rest[len(digits) :])
    return f"{int(moment.timestamp())}.{digits:0<9.9}"


def archive_of(*entries: tuple[str, bytes | None, int, int, int]) -> bytes:
    """An archive of files and directories.

    Args:
        entries: Path below the root, content or None for a directory, mode, owner and group.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path, content, mode, uid, gid in entries:
            entry = tarfile.TarInfo(path.strip("/"))
            entry.mode, entry.uid, entry.gid = mode, uid, gid
            if content is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
