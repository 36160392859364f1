"""No process of a command survives, whatever shape its tree has and whatever ends it, through the seams."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from execworld.machine.warden import locate_warden
from execworld.seams import ExecworldError, World
from execworld.seams.testing import BreakableWorld
from execworld.testing.warden_worlds import open_breakable_warden_world

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

# Each ends with its leader alive; "$1" is a program that stays, under a name that nothing else has.
SHAPES = {
    "children": '"$1" 600 & "$1" 600 & wait',
    "other session": 'setsid "$1" 600 & wait',
    "double fork": '("$1" 600 &); "$1" 600',
    "daemon": '(setsid "$1" 600 >/dev/null 2>&1 </dev/null &); "$1" 600',
    "daemon without environment": '(env -i /usr/bin/setsid "$1" 600 >/dev/null 2>&1 </dev/null &); "$1" 600',
    "term ignored": 'trap \'\' TERM HUP INT; "$1" 600 & "$1" 600',
    # Stopped before it executes the program it would not be found under its name.
    "stopped": '"$1" 600 & until grep -q stay /proc/$!/comm; do :; done; kill -STOP $!; "$1" 600',
    "leader ended": '(setsid "$1" 600 >/dev/null 2>&1 </dev/null &); exec "$1" 600',
}


@pytest.fixture(scope="module", autouse=True)
def binary() -> Path:
    """Built by the setup; without it nothing here may be passed over."""
    return locate_warden()


def running(program: str) -> list[int]:
    """Processes of this host whose program is *program*; a zombie has none."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if program.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # it ended meanwhile
    # The shell that waits has the name among its arguments too.
    return [pid for pid in found if comm(pid) not in ("", "sh")]


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


async def until(condition: Callable[[], bool], message: str, within_s: float = 10) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, message
        await anyio.sleep(0.01)


async def run_until(broken: BreakableWorld, argv: list[str], started: Callable[[], bool], event: str) -> None:
    world = broken.world
    try:
        match event:
            case "time limit":
                async with world.subprocess.start(argv, timeout_s=2.0, grace_s=0.2) as process:
                    await until(started, "it did not start")
                    assert (await process.wait()).timed_out
            case "cancel":
                await cancel_when(world, argv, started)
            case "close of the process":
                async with world.subprocess.start(argv, grace_s=0.2):
                    await until(started, "it did not start")
            case "kill of the warden":
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(attempt, lambda: world.subprocess.run(argv))
                    await until(started, "it did not start")
                    await broken.break_it()
            case _:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(attempt, lambda: world.subprocess.run(argv, grace_s=0.2))
                    await until(started, "it did not start")
                    await world.aclose()
    except ExecworldError:
        assert event == "kill of the warden"


async def attempt(call: Callable[[], Awaitable[object]]) -> None:
    try:
        await call()
    except ExecworldError:
        return


async def run_forever(world: World, argv: list[str]) -> None:
    await world.subprocess.run(argv, grace_s=0.2)


async def cancel_when(world: World, argv: list[str], started: Callable[[], bool]) -> None:
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_forever, world, argv)
            await until(started, "it did not start")
            scope.cancel()


@pytest.mark.parametrize(
    "event", ["time limit", "cancel", "close of the process", "close of the world", "kill of the warden"]
)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
async def test_nothing_survives(shape: str, event: str, tmp_path: Path) -> None:
    """With a positive control: the same look at the processes finds them while they run."""
    program = tmp_path / f"stay-{secrets.token_hex(6)}"
    program.symlink_to("/bin/sleep")
    seen: list[int] = []

    def started() -> bool:
        seen[:] = [*{*seen, *running(str(program))}]
        return len(seen) >= shape.count('"$1" 600')

    try:
        async with open_breakable_warden_world(str(tmp_path)) as broken:
            argv = ["sh", "-c", shape, "sh", str(program)]
            await run_until(broken, argv, started, event)
            assert len(seen) >= shape.count('"$1" 600'), f"the control saw {seen} of {shape}"
            await until(lambda: not running(str(program)), f"survivors: {running(str(program))}", 5)
    except ExecworldError:
        assert event == "kill of the warden"
    finally:
        for pid in running(str(program)):
            os.kill(pid, signal.SIGKILL)
