"""The warden of a container, process 1 of one that we made and a further one of one that we joined, is out of reach."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from tests.docker.engines import Engine

from execworld.seams import (
    CleanupIncomplete,
    CommandStatus,
    OutcomeUnknown,
    SandboxPolicy,
    World,
    WorldLost,
)

from .containers import JOINED, MADE, PYTHON, open_container
from .plans import Plan
from .test_claims import FORGE

ROOT, USER = 0, 1000

pytestmark = [
    pytest.mark.docker,
    pytest.mark.slow,
    pytest.mark.timeout(120),
    pytest.mark.anyio,
    pytest.mark.parametrize("anyio_backend", ["asyncio"]),
]

# What runs and supervises a program are its ancestors. The others are its twins, without a view.
REACH: Final = """
import ctypes, json, os, sys

libc = ctypes.CDLL(None, use_errno=True)
PTRACE = 101 if os.uname().machine == "x86_64" else 117
READ = 310 if os.uname().machine == "x86_64" else 270

def parent(number):
    with open(f"/proc/{number}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[1])

def ancestors():
    found, number = [], os.getppid()
    while number > 0:
        found.append(number)
        number = parent(number)
    return found

def call(*arguments):
    return libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)) >= 0

def trace(number):
    return call(PTRACE, 0x4206, number, 0, 0)  # PTRACE_SEIZE

def read_memory(number):
    os.close(os.open(f"/proc/{number}/mem", os.O_RDONLY))
    return True

def write_memory(number):
    os.close(os.open(f"/proc/{number}/mem", os.O_RDWR))
    return True

def take(number):
    return call(438, os.pidfd_open(number), 0, 0)

def list_open(number):
    return bool(os.readlink(f"/proc/{number}/fd/0"))

def stream(number):
    for name in os.listdir(f"/proc/{number}/fd"):
        os.close(os.open(f"/proc/{number}/fd/{name}", os.O_RDWR | os.O_NONBLOCK))
    return True

def environment(number):
    with open(f"/proc/{number}/environ", "rb") as file:
        return file.read() is not None

def root(number):
    return bool(os.listdir(f"/proc/{number}/root/"))

def limit(number):
    return call(302 if os.uname().machine == "x86_64" else 261, number, 7, (ctypes.c_uint64 * 2)(64, 64), None)

attempts = [trace, read_memory, write_memory, take, list_open, stream, environment, root]
above = ancestors()
others = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) not in (*above, os.getpid())]
found = {"above": [], "others": [], "ancestors": len(above)}
for kind, numbers in (("above", above), ("others", others)):
    for number in numbers:
        for attempt in attempts:
            child = os.fork()
            if child == 0:
                try:
                    os._exit(0 if attempt(number) else 1)
                except OSError:
                    os._exit(1)
            if os.waitpid(child, 0)[1] == 0:
                found[kind].append([number, attempt.__name__])
json.dump(found, sys.stdout)
"""

# Everything but itself, by every way of signalling, and what is above it first.
END: Final = """
import ctypes, os, resource, signal, time
own = os.getpid()
numbers = [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != own]
for number in sorted(numbers):
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for send in (os.kill, os.killpg, lambda n, s: signal.pidfd_send_signal(os.pidfd_open(n), s)):
            try:
                send(number, signum)
            except OSError:
                pass
    try:
        resource.prlimit(number, resource.RLIMIT_CPU, (0, 0))
    except OSError:
        pass
try:
    os.kill(-1, signal.SIGKILL)
except OSError:
    pass
"""

PLANS: Final = tuple(
    Plan(uid, world, policy) for world in (MADE, JOINED) for uid in (ROOT, USER) for policy in ("", "view")
)


@asynccontextmanager
async def opened(engine: Engine, plan: Plan, base: Path) -> AsyncGenerator[World]:
    """The world of *plan*, with a program in it that is not above any other, or a view of that."""
    async with open_container(engine, plan, base) as place:
        async with place.world.subprocess.start(["sleep", "1000"]):
            if plan.policy:
                yield await place.world.sandbox.confine(SandboxPolicy.workspace_write(str(place.own)))
            else:
                yield place.world


@pytest.mark.parametrize("plan", PLANS, ids=str)
async def test_it_can_be_neither_traced_nor_read_nor_spoken_for(
    engine: Engine, plan: Plan, tmp_path: Path
) -> None:
    async with opened(engine, plan, tmp_path) as world:
        result = await world.subprocess.run([PYTHON, "-c", REACH], check=True)
        found: Mapping[str, Any] = json.loads(result.stdout.text)
        assert found["ancestors"] >= (2 if not plan.policy else 3)
        assert found["above"] == []
        # The twin: what is not above can be reached by a program of the same user, unless a view keeps it away.
        reached = {name for _, name in found["others"]}
        assert ("trace" in reached) is (not plan.policy), found
        before = world.enforcement
        result = await world.subprocess.run([PYTHON, "-c", FORGE])
        assert (result.status, result.exit_code) == (CommandStatus.EXITED, 125)
        assert result.stdout.text == "told the lie\n"
        assert world.enforcement == before
        assert (await world.shell.run("echo alive")).stdout.text == "alive\n"


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.policy], ids=str)
async def test_a_program_of_a_view_cannot_end_it(engine: Engine, plan: Plan, tmp_path: Path) -> None:
    async with opened(engine, plan, tmp_path) as view:
        await view.subprocess.run([PYTHON, "-c", END], timeout_s=20)
        assert (await view.shell.run("echo alive")).stdout.text == "alive\n"


LEAVE: Final = """
( setsid sh -c "exec sleep $1" & ) &
setsid sh -c "( exec sleep $1 ) & kill -STOP $PPID; kill -KILL $PPID; exec sleep $1" &
sleep $1
"""
"""A program that leaves its group and its session, and ends what supervises it."""


@pytest.mark.parametrize("plan", [plan for plan in PLANS if plan.policy], ids=str)
async def test_nothing_survives_a_command_of_a_view_that_ends_its_supervisor(
    engine: Engine, plan: Plan, tmp_path: Path
) -> None:
    marker = f"4{os.getpid() % 100_000:05}"
    async with open_container(engine, plan, tmp_path) as place:
        view = await place.world.sandbox.confine(SandboxPolicy.workspace_write(str(place.own)))
        assert view.enforcement.as_dict()["kill.tree"]["state"] == "enforced"

        async def sleepers() -> int:
            text = (await place.world.shell.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '")).stdout.text
            return text.count(f"sleep {marker}")

        async with view.subprocess.start(["sleep", marker]):
            assert await sleepers() == 1
        try:
            result = await view.subprocess.run(["sh", "-c", LEAVE, "-", marker], timeout_s=1.0)
        except OutcomeUnknown:
            pass  # it was faster than what supervises it
        else:
            assert result.signal == signal.SIGKILL
        with anyio.fail_after(5):  # the cell hears of it when the host does
            while await sleepers():
                pass


async def test_without_a_view_a_program_can_end_what_was_joined(engine: Engine, tmp_path: Path) -> None:
    """The twin; `kill.tree` of such a world is reported as partial for it."""
    with suppress(CleanupIncomplete):
        async with opened(engine, Plan(USER, JOINED, ""), tmp_path) as world:
            assert world.enforcement.as_dict()["kill.tree"]["state"] == "partial"
            with pytest.raises((OutcomeUnknown, WorldLost)), anyio.fail_after(20):
                await world.subprocess.run([PYTHON, "-c", END])
