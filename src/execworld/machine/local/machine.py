"""`LocalMachine`: the waist's operations on this host, in this process."""

from __future__ import annotations

import atexit
import errno
import getpass
import itertools
import os
import platform
import secrets
import socket
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import anyio.lowlevel
import anyio.to_thread

from execworld.machine.base import (
    ExitStatus,
    ForegroundState,
    Machine,
    MachineFacts,
    NoSuchHandle,
    SignalTarget,
    WatchRecord,
)
from execworld.machine.batch import Batch, BatchFailed, Results
from execworld.machine.cell import CellPlan, CellReport, CellsUnsupported
from execworld.machine.local import tree
from execworld.machine.local.batch import StepFailed
from execworld.machine.local.connections import LocalConnection, open_connection
from execworld.machine.local.files import LocalFiles
from execworld.machine.local.processes import LocalProcess
from execworld.machine.local.starting import SpawnError, require_descriptors, start_process
from execworld.machine.operations import Connect, Spawn
from execworld.machine.values import Spawned
from execworld.seams.errors import WorkingDirectoryMissing
from execworld.seams.results import KillMethod, TreeReport

_OUT_OF_DESCRIPTORS: Final = frozenset({errno.EMFILE, errno.ENFILE})
_KEPT_FOR_ENDING: Final = 8
"""Descriptors that a further command must leave free: to end those that run, /proc has to be read."""


class LocalMachine(Machine):
    """Runs everything as this user on this host and confines nothing.

    Trees are found by session and by a marker in the environment, so a process that leaves the session, clears its
    environment and outlives its parent escapes a kill, and nothing is ended when this process is killed with KILL.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._marker = secrets.token_hex(12).encode()
        self._processes: dict[int, LocalProcess] = {}
        self._connections: dict[int, LocalConnection] = {}
        self._facts = _local_facts()
        self._handle_freed = anyio.Event()
        self._closing: anyio.Event | None = None
        self._lock = threading.Lock()  # the tables are written by worker threads too
        self._report = TreeReport(gone=True, method=KillMethod.NOT_NEEDED)
        self._files = LocalFiles(
            next_handle=self._numbers.__next__,
            spawn=self._spawn,
            connect=self._connect,
            discard=self._discard,
        )
        atexit.register(self._kill_at_exit)

    @property
    def facts(self) -> MachineFacts:
        return self._facts

    @property
    def lost(self) -> bool:
        return False

    async def run(self, batch: Batch) -> Results:
        await anyio.lowlevel.checkpoint_if_cancelled()
        while True:
            freed = self._handle_freed
            try:
                if _starts_directly(batch):
                    # On the event loop's own thread, as asyncio starts its processes: CPython holds the interpreter
                    # lock through vfork anyway, and a worker thread would only add its hand-over (0.7 of 2.4 ms).
                    return self._files.run_blocking(batch)
                return await self._files.run(batch)
            except BatchFailed as failure:
                # A batch that failed was undone, so it can wait for a descriptor and run again. With nothing of ours
                # running there is nothing to wait for.
                if failure.error.status not in _OUT_OF_DESCRIPTORS or not self._processes:
                    raise
            await freed.wait()

    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        return await self._stream(handle).receive(stream, max_bytes)

    async def send(self, handle: int, data: bytes) -> None:
        await self._stream(handle).send(data)

    async def close_input(self, handle: int) -> None:
        self._stream(handle).close_input()

    async def signal(self, handle: int, number: int, target: SignalTarget) -> int:
        return await self._process(handle).signal(number, target)

    async def wait(self, handle: int) -> ExitStatus:
        return await self._process(handle).wait()

    async def wait_tree(self, handle: int) -> None:
        await self._process(handle).wait_tree()

    async def kill_tree(self, handle: int) -> TreeReport:
        return await self._process(handle).kill_tree()

    async def resize(self, handle: int, rows: int, columns: int) -> None:
        self._process(handle).resize(rows, columns)

    async def foreground(self, handle: int) -> ForegroundState | None:
        return await self._process(handle).foreground()

    async def read_watch(self, handle: int) -> tuple[WatchRecord, ...]:
        return await self._files.read_watch(handle)

    async def make_cell(self, plan: CellPlan) -> CellReport:
        await anyio.lowlevel.checkpoint()
        raise CellsUnsupported("this process cannot lock itself in and go on")

    async def drop_cell(self, handle: int) -> TreeReport:
        raise NoSuchHandle(f"no cell {handle}")

    async def release(self, handle: int) -> None:
        with self._lock:
            process = self._processes.pop(handle, None)
            connection = self._connections.pop(handle, None)
        if process is not None:
            process.close()
        elif connection is not None:
            connection.close()
        else:
            await self._files.release_in_time(handle)
        self._announce_free_handle()

    async def ping(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def aclose(self) -> TreeReport:
        if self._closing is not None:
            await self._closing.wait()
            return self._report
        self._closing = anyio.Event()
        with anyio.CancelScope(shield=True):
            try:
                # One sweep for all: also finds what left its tree unnoticed after its leader had ended.
                for process in list(self._processes.values()):
                    process.kill_now()
                self._report = await self._sweep()
                for handle in [*self._processes, *self._connections]:
                    await self.release(handle)
                await self._files.aclose()
            finally:
                atexit.unregister(self._kill_at_exit)
                self._closing.set()
        return self._report

    async def _sweep(self) -> TreeReport:
        find = partial(tree.marked_members, self._marker)
        try:
            survivors = await anyio.to_thread.run_sync(tree.kill_members, find)
        except OSError:
            return TreeReport(gone=False, method=KillMethod.PROCESS_GROUP)
        return TreeReport(
            gone=not survivors,
            method=KillMethod.MARKER_SWEEP,
            survivors=tuple(member.pid for member in survivors),
        )

    # In a worker thread

    def _spawn(self, spec: Spawn, path: bytes, cwd: bytes) -> Spawned:
        handle = next(self._numbers)
        asked_s = time.monotonic()
        try:
            if self._processes:
                require_descriptors(_KEPT_FOR_ENDING)
            process = start_process(spec, path, cwd, self._marker + b"." + str(handle).encode())
        except SpawnError as error:
            raise StepFailed(error.status, error.stage) from error
        with self._lock:
            self._processes[handle] = process
        return Spawned(handle, process.pid, asked_s)

    def _connect(self, step: Connect) -> int:
        connection = open_connection(step)
        handle = next(self._numbers)
        with self._lock:
            self._connections[handle] = connection
        return handle

    def _discard(self, handle: int) -> None:
        with self._lock:
            process = self._processes.pop(handle, None)
            connection = self._connections.pop(handle, None)
        if process is not None:
            process.discard()
        if connection is not None:
            connection.close_blocking()

    # Helpers

    def _process(self, handle: int) -> LocalProcess:
        process = self._processes.get(handle)
        if process is None:
            raise NoSuchHandle(f"no process {handle}")
        return process

    def _stream(self, handle: int) -> LocalProcess | LocalConnection:
        stream = self._processes.get(handle) or self._connections.get(handle)
        if stream is None:
            raise NoSuchHandle(f"no process or connection {handle}")
        return stream

    def _announce_free_handle(self) -> None:
        freed, self._handle_freed = self._handle_freed, anyio.Event()
        freed.set()

    def _kill_at_exit(self) -> None:
        """This process ends without having closed the world: end at least what can be ended at once."""
        for process in self._processes.values():
            process.kill_now()
        tree.kill_members(partial(tree.marked_members, self._marker), limit_s=2.0)


def _starts_directly(batch: Batch) -> bool:
    last = batch.steps[-1].operation if batch.steps else None
    return isinstance(last, Spawn) and last.terminal is None and not last.limits


def _local_facts() -> MachineFacts:
    system = platform.uname()
    home = os.path.expanduser("~")
    return MachineFacts(
        os=system.system.lower(),
        arch=system.machine,
        kernel=system.release,
        user=_user_name(),
        uid=os.getuid(),
        gid=os.getgid(),
        home=os.fsencode(home) if home.startswith("/") else b"/",
        cwd=_working_directory(),
        temp_roots=_temp_roots(),
        host_instance=f"{socket.gethostname()}/{_boot_id()}",
        kill_method=KillMethod.MARKER_SWEEP,
        environment=tuple(os.environb.items()),
    )


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _working_directory() -> bytes:
    try:
        return os.getcwdb()
    except FileNotFoundError:
        return _removed_directory()


def _removed_directory() -> bytes:
    """Where our directory was before it was removed: what is relative to it has to fail, not to mean another place."""
    try:
        path = os.readlink(b"/proc/self/cwd").removesuffix(b" (deleted)")
    except OSError:
        path = os.environb.get(b"PWD", b"")
    if not path.startswith(b"/"):
        raise WorkingDirectoryMissing(
            "the working directory of this program does not exist any more",
            op="world.open",
            hint="change to one that exists",
        )
    return path


def _temp_roots() -> tuple[bytes, ...]:
    preferred = os.fsencode(tempfile.gettempdir())
    others = (root for root in (b"/tmp", b"/var/tmp") if os.path.isdir(root))
    return tuple(dict.fromkeys((preferred, *others)))


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return "unknown-boot"
