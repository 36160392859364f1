"""The plain ways: what a program does that has no world, in this process and on this host."""

from __future__ import annotations

import asyncio  # noqa: TID251 - one of the plain ways
import os
import pty
import tempfile
import tty
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

import anyio


async def spawn_by_asyncio() -> None:
    process = await asyncio.create_subprocess_exec(
        "true", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    await process.communicate()


async def spawn_by_anyio() -> None:
    await anyio.run_process(["true"])


async def stream_by_anyio(argv: list[str]) -> None:
    async with await anyio.open_process(argv, stderr=None) as process:
        assert process.stdout is not None
        async for _ in process.stdout:
            pass


async def at_once(call: Callable[[], Coroutine[Any, Any, object]], count: int) -> None:
    async with anyio.create_task_group() as tasks:
        for _ in range(count):
            tasks.start_soon(call)


def replace_file(path: str, data: bytes) -> None:
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path))
    try:
        os.write(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def list_entries(path: str) -> list[tuple[str, os.stat_result]]:
    with os.scandir(path) as entries:
        return sorted((entry.name, entry.stat(follow_symlinks=False)) for entry in entries)


@contextmanager
def echoing_terminal() -> Generator[Callable[[], None]]:
    """One keystroke and its echo, through a terminal of the kernel and nothing else."""
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            tty.setraw(0)
            os.write(1, b"R")
            os.execvp("cat", ["cat"])
        finally:
            os._exit(127)

    def echo() -> None:
        os.write(descriptor, b"x")
        os.read(descriptor, 64)

    try:
        while not os.read(descriptor, 64).endswith(b"R"):
            pass
        yield echo
    finally:
        os.close(descriptor)
        os.waitpid(pid, 0)


def shell_bytes() -> int:
    return os.stat("/bin/sh").st_size
