"""Memory and descriptors stay bounded whatever a command writes and however many there are."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import anyio
import pytest

from execworld.seams import OutputLimits, World
from execworld.world import open_world

pytestmark = pytest.mark.anyio

FULL = os.environ.get("EXECWORLD_FULL") == "1"
FLOOD_BYTES = 1_000_000_000
GROWTH_LIMIT_KIB = 64 * 1024
START_KIB = 34 * 1024  # what `run -- true` was measured to take, rounded up


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with open_world("local", cwd=str(tmp_path)) as world:
        yield world


def peak_of_program(*command: str) -> tuple[int, int]:
    """Peak memory in KiB of the program while it runs *command*, and the bytes that it printed.

    Sampled from its own address space: ru_maxrss begins with the memory of whoever forked it (exec_mmap in the kernel).
    """
    argv = [sys.executable, "-m", "execworld.cli", "run", "-w", "local", "-q", "--", *command]
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    printed = peak_kib = 0
    while chunk := process.stdout.read(1 << 20):
        printed += len(chunk)
        state = Path(f"/proc/{process.pid}/status").read_text()
        peak_kib = max(peak_kib, int(state.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in state else 0)
    process.stdout.close()
    assert process.wait() == 0
    return peak_kib, printed


@pytest.mark.slow
def test_a_gigabyte_through_the_command_line() -> None:
    """All of it arrives, and the program needs hardly more memory for it than to start."""
    quiet_kib, _ = peak_of_program("echo", "hello")
    flood_kib, printed = peak_of_program("sh", "-c", f"yes | head -c {FLOOD_BYTES}")
    assert printed == FLOOD_BYTES
    assert 0 < flood_kib < START_KIB + GROWTH_LIMIT_KIB, f"after `echo hello`: {quiet_kib} KiB"


@pytest.mark.slow
async def test_a_gigabyte_into_a_window(world: World) -> None:
    """Collected with head and tail: exact counts, exact ends, bounded memory."""
    await world.shell.run("head -c 1000000 /dev/zero")
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    limits = OutputLimits(head_bytes=100_000, tail_bytes=100_000)
    with anyio.fail_after(60):
        result = await world.shell.run(f"yes | head -c {FLOOD_BYTES - 4}; printf END.", limits=limits)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_LIMIT_KIB
    output = result.stdout
    assert (output.total_bytes, output.dropped_bytes) == (FLOOD_BYTES, FLOOD_BYTES - 200_000)
    assert output.dropped_lines == (FLOOD_BYTES - 200_000) // 2
    assert output.head == b"y\n" * 50_000
    assert output.tail == b"y\n" * 49_998 + b"END."


@pytest.mark.slow
async def test_a_gigabyte_that_is_read_slowly_waits(world: World) -> None:
    """A caller that takes its time slows the command down instead of filling our memory."""
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    received = 0
    async with world.subprocess.start(["yes"]) as process:
        await anyio.sleep(0.3)
        assert process.running

    async def take(stream: object, data: bytes) -> None:
        nonlocal received
        received += len(data)
        await anyio.sleep(0.05)

    result = await world.subprocess.run(["yes"], timeout_s=1, grace_s=0.5, on_output=take)
    assert result.timed_out
    assert 0 < received < 50_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < GROWTH_LIMIT_KIB


@pytest.fixture
def few_descriptors() -> Generator[int]:
    """A limit on descriptors far below what two hundred commands would need at once."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.slow
async def test_c245_many_commands_with_few_descriptors(world: World, few_descriptors: int) -> None:
    """Two hundred at once: each waits its turn, gets its own text, and none fails or mixes."""
    outputs: dict[int, bytes] = {}

    async def run(number: int) -> None:
        script = f"echo {number}; echo error-{number} >&2; sleep 0.{number % 10}; echo end-{number}"
        result = await world.shell.run(script, timeout_s=100)
        assert result.ok
        outputs[number] = result.stdout.data + result.stderr.data

    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(run, number)
    assert outputs == {n: b"%d\nend-%d\nerror-%d\n" % (n, n, n) for n in range(200)}


@pytest.mark.slow
async def test_c245_limits_fire_although_descriptors_are_short(world: World, few_descriptors: int) -> None:
    """Commands that must be ended while others compete for descriptors: all end, nothing is left, the world lives."""
    timed_out = 0

    async def run(number: int) -> None:
        nonlocal timed_out
        result = await world.shell.run("sleep 300.4245 & sleep 300.4245", timeout_s=0.5, grace_s=0.5)
        assert result.tree is not None
        assert result.tree.gone
        timed_out += result.timed_out

    with anyio.fail_after(100):
        async with anyio.create_task_group() as tasks:
            for number in range(60):
                tasks.start_soon(run, number)
    assert timed_out == 60
    left = await world.shell.run("ps -eo args | grep -c '^sleep 300[.]4245' || true")
    assert left.stdout.data == b"0\n"


@pytest.mark.slow
async def test_a_limit_that_fires_without_any_descriptor_left(world: World) -> None:
    """The host ran out of descriptors by its own doing. The sweep waits for one; nothing is called gone meanwhile."""
    async with world.subprocess.start(
        ["sh", "-c", "sleep 300.4245 & echo +; sleep 300.4245"], timeout_s=0.5, grace_s=0.2
    ) as process:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken: list[int] = []
        limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 10
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            await anyio.sleep(1.2)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        with anyio.fail_after(30):
            result = await process.wait()
    assert result.timed_out
    assert result.tree is not None
    assert result.tree.gone
    left = await world.shell.run("ps -eo args | grep -c '^sleep 300[.]4245' || true")
    assert left.stdout.data == b"0\n"


def descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


@pytest.mark.slow
async def test_c153_terminals_leak_no_descriptor(world: World) -> None:
    """Opened, used and closed many times: as many descriptors as before, and as many terminals of the kernel."""
    rounds = 600 if FULL else 60
    async with world.subprocess.open_terminal(["true"]) as terminal:
        await terminal.wait()
    before, terminals = descriptors(), len(os.listdir("/dev/pts"))
    for _ in range(rounds):
        async with world.subprocess.open_terminal(["true"]) as terminal:
            await terminal.wait()
    assert descriptors() == before
    assert len(os.listdir("/dev/pts")) <= terminals + 5  # others on this host open terminals too


@pytest.mark.slow
async def test_commands_leak_no_descriptor_and_no_task(world: World) -> None:
    """However they end: by themselves, by the limit, by an error of ours, with something left behind."""
    limits = OutputLimits(head_bytes=1, tail_bytes=1, spill_bytes=1000)

    async def one_round() -> None:
        await world.shell.run("echo hello; echo more", limits=limits)
        await world.subprocess.run(["cat"], stdin=b"x" * 100_000)
        await world.shell.run("sleep 30", timeout_s=0.05, grace_s=0.05)
        await world.shell.run("sleep 0.1 & echo left")
        with anyio.move_on_after(0.02):
            await world.shell.run("sleep 30")
        async with world.subprocess.start(["cat"], pipe_stdin=True):
            pass

    await one_round()
    before = await settled_descriptors()
    for _ in range(10):
        await one_round()
    assert await settled_descriptors() == before


async def settled_descriptors() -> int:
    """How many descriptors are open once the background jobs, which end by themselves, were noticed."""
    deadline, count = time.monotonic() + 5, len(descriptors())
    while time.monotonic() < deadline:
        await anyio.sleep(0.3)
        if (now := len(descriptors())) == count:
            break
        count = now
    return count
