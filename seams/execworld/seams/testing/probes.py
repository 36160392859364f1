"""Questions that suites ask a world, through its seams alone. Only a POSIX `sh` and its usual tools are needed."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio

from execworld.seams import CommandResult, Process, Terminal, World

# A process that ended but was not waited for answers `kill -0`; it runs no code, so it counts as gone. And a program of
# a confined view may be kept from signalling another one of it: that is asked only where there is no /proc.
_IS_ALIVE: Final = """
if [ -r /proc/self/status ]; then
    state=X
    while read -r name value rest; do
        [ "$name" = State: ] && state=$value
    done 2>/dev/null < "/proc/$1/status"
else
    kill -0 "$1" 2>/dev/null || { echo gone; exit 0; }
    state=$(ps -o stat= -p "$1")
fi
case $state in
    Z*|X*) echo gone ;;
    *) echo alive ;;
esac
"""


async def sh(
    world: World,
    script: str,
    *arguments: str,
    cwd: str | None = None,
    env: Mapping[str, str | None] | None = None,
    stdin: bytes | None = None,
) -> CommandResult:
    """Run *script* with `sh`; the arguments are its positional parameters."""
    return await world.subprocess.run(["sh", "-c", script, "sh", *arguments], cwd=cwd, env=env, stdin=stdin)


async def output_of(
    world: World,
    script: str,
    *arguments: str,
    cwd: str | None = None,
    env: Mapping[str, str | None] | None = None,
) -> str:
    """What *script* prints, without the last line end. It must succeed."""
    result = await sh(world, script, *arguments, cwd=cwd, env=env)
    assert result.exit_code == 0, f"helper failed: {script!r}: {result.stderr.text}"
    return result.stdout.text.removesuffix("\n")


async def is_alive(world: World, pid: int) -> bool:
    """Whether a process still runs, asked inside the world."""
    return await output_of(world, _IS_ALIVE, str(pid)) == "alive"


async def eventually(
    condition: Callable[[], Awaitable[bool]], complaint: str, *, within_s: float = 5.0
) -> None:
    """Poll until *condition* holds, or fail with *complaint*."""
    give_up_at = anyio.current_time() + within_s
    pause_s = 0.005
    while not await condition():
        assert anyio.current_time() < give_up_at, f"not within {within_s} s: {complaint}"
        await anyio.sleep(pause_s)
        pause_s = min(pause_s * 2, 0.1)


async def read_when_there(world: World, path: str, *, within_s: float = 5.0) -> str:
    """The text of a file that a command is about to write, as soon as it holds a whole line."""
    text = ""

    async def there() -> bool:
        nonlocal text
        if await world.fs.stat(path) is None:
            return False
        text = await world.fs.read_text(path)
        return text.endswith("\n")

    await eventually(there, f"no complete line in {path}", within_s=within_s)
    return text


async def pid_from(world: World, path: str) -> int:
    """The process id that a command wrote to *path*, proven alive: a pid that never lived proves nothing later."""
    pid = int(await read_when_there(world, path))
    assert await is_alive(world, pid), f"process {pid} does not run, so its end would prove nothing"
    return pid


async def assert_gone(world: World, pid: int, what: str, *, within_s: float = 2.0) -> None:
    async def gone() -> bool:
        return not await is_alive(world, pid)

    await eventually(gone, f"{what} (process {pid}) still runs in the world", within_s=within_s)


async def receive_all(process: Process) -> bytes:
    """Everything from a piped stdout until its end."""
    assert process.stdout is not None
    return b"".join([chunk async for chunk in process.stdout])


async def receive_until(terminal: Terminal, marker: bytes, *, within_s: float = 5.0) -> bytes:
    """Terminal output up to and with *marker*."""
    received = b""
    with anyio.move_on_after(within_s):
        while marker not in received:
            try:
                received += await terminal.receive()
            except anyio.EndOfStream:
                break
    assert marker in received, f"{marker!r} did not come within {within_s} s; got {received[-2000:]!r}"
    return received


async def receive_to_end(terminal: Terminal) -> bytes:
    received: list[bytes] = []
    while True:
        try:
            received.append(await terminal.receive())
        except anyio.EndOfStream:
            return b"".join(received)


@functools.cache
def pattern_bytes(size: int) -> bytes:
    """Bytes of all values in an order that shows a lost, doubled or moved block."""
    return b"".join(((i * 2654435761) & 0xFFFFFFFF).to_bytes(4, "big") for i in range(size // 4 + 1))[:size]
