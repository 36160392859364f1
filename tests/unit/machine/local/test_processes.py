"""A started process gets exactly what was asked for, and a failed start leaves nothing."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from execworld.machine.base import STDERR, STDOUT, SignalFailed, SignalTarget, StreamClosed
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.local.machine import LocalMachine
from execworld.machine.operations import Spawn
from execworld.machine.values import (
    Redirect,
    ResourceLimit,
    Spawned,
    SpawnStage,
)

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]

ENVIRONMENT = ((b"PATH", b"/usr/bin:/bin"),)


def shell(script: str, **options: object) -> Spawn:
    defaults: dict[str, object] = {"environment": ENVIRONMENT, "cwd": b"/"}
    argv = (b"sh", b"-c", script.encode())
    return Spawn(path=b"/bin/sh", argv=argv, **{**defaults, **options})  # type: ignore[arg-type]  # checked by use


async def start(machine: LocalMachine, spawn: Spawn) -> Spawned:
    batch = Batch()
    step = batch.add(spawn)
    return (await machine.run(batch))[step]


async def read_all(machine: LocalMachine, handle: int, stream: int = STDOUT) -> bytes:
    received = b""
    with anyio.fail_after(20):
        while chunk := await machine.receive(handle, stream, 65536):
            received += chunk
    return received


async def output_of(machine: LocalMachine, spawn: Spawn) -> bytes:
    spawned = await start(machine, spawn)
    received = await read_all(machine, spawned.handle)
    await machine.wait(spawned.handle)
    await machine.release(spawned.handle)
    return received


WAYS: dict[str, dict[str, object]] = {
    "directly": {},
    "by-script": {"limits": (ResourceLimit(resource.RLIMIT_CORE, 0, 0),)},
    "on-a-terminal": {"terminal": (24, 80)},
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, object]:
    """The ways by which a process can be started; each must give the same process."""
    return WAYS[str(request.param)]


async def test_no_descriptor_is_inherited(machine: LocalMachine, way: dict[str, object]) -> None:
    """Only 0, 1 and 2, even when this process holds others that it made inheritable."""
    leaked = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(leaked, True)
    try:
        # Asked without a descriptor of its own.
        look = "n=0; while [ $n -lt 300 ]; do [ -e /proc/$$/fd/$n ] && echo $n; n=$((n+1)); done"
        text = await output_of(machine, shell(look, **way))
    finally:
        os.close(leaked)
    assert leaked < 300
    assert set(text.split()) - {b"255"} == {b"0", b"1", b"2"}  # 255: bash keeps its script there


@contextmanager
def altered_signals() -> Generator[None]:
    """This process ignores one signal and blocks another, as a host under nohup or with a signal thread does."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGUSR2,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGUSR2,))
        signal.signal(signal.SIGHUP, before)


async def test_no_signal_is_blocked_or_ignored(machine: LocalMachine, way: dict[str, object]) -> None:
    """A child that ignored SIGPIPE or blocked TERM could not be ended the usual way."""
    with altered_signals():
        text = await output_of(machine, shell("exec grep -E '^Sig(Blk|Ign)' /proc/self/status", **way))
    assert {int(line.split()[1], 16) for line in text.splitlines()} == {0}


async def test_the_process_leads_a_session(machine: LocalMachine, way: dict[str, object]) -> None:
    spawned = await start(machine, shell("cat /proc/$$/stat; exit", **way))
    fields = (await read_all(machine, spawned.handle)).rpartition(b")")[2].split()
    assert {int(fields[2]), int(fields[3])} == {spawned.pid}


async def test_arguments_and_environment_arrive_byte_for_byte(
    machine: LocalMachine, way: dict[str, object]
) -> None:
    """Also empty ones, newlines and bytes that are no text."""
    hard = (b"", b"a\nb", b"\xff\xfe", b"-rf", b"*", b"$HOME", "é".encode(), b" x ")
    spawn = Spawn(
        path=b"/bin/sh",
        argv=(
            b"sh",
            b"-c",
            b'for a; do printf "<%s>" "$a"; done; printf "%s|" "$VALUE" "$EMPTY"',
            b"sh",
            *hard,
        ),
        environment=(*ENVIRONMENT, (b"VALUE", b"x\ny\xff"), (b"EMPTY", b"")),
        cwd=b"/",
        **way,  # type: ignore[arg-type]  # see WAYS
    )
    text = (await output_of(machine, spawn)).replace(b"\r\n", b"\n")
    assert text == b"".join(b"<" + argument + b">" for argument in hard) + b"x\ny\xff||"


@pytest.mark.parametrize(
    ("options", "stage", "status"),
    [
        ({"cwd": b"/nonexistent"}, SpawnStage.DIRECTORY, errno.ENOENT),
        ({"cwd": b"/etc/passwd"}, SpawnStage.DIRECTORY, errno.ENOTDIR),
        ({"path": b"/nonexistent"}, SpawnStage.EXEC, errno.ENOENT),
        ({"path": b"/etc"}, SpawnStage.EXEC, errno.EACCES),
        ({"argv": (b"sh", b"x" * 1_000_000)}, SpawnStage.EXEC, errno.E2BIG),
    ],
)
async def test_a_failed_start_tells_where_and_why(
    machine: LocalMachine, way: dict[str, object], options: dict[str, object], stage: SpawnStage, status: int
) -> None:
    """The stage and the kernel's error number; no descriptor and no child is left."""
    descriptors, children = set(os.listdir("/proc/self/fd")), children_of_this_process()
    defaults: dict[str, object] = {
        "path": b"/bin/sh",
        "argv": (b"sh",),
        "environment": ENVIRONMENT,
        "cwd": b"/",
    }
    with pytest.raises(BatchFailed) as caught:
        await start(machine, Spawn(**{**defaults, **way, **options}))  # type: ignore[arg-type]  # see WAYS
    assert (caught.value.error.detail, caught.value.error.status) == (stage, status)
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert children_of_this_process() == children


def children_of_this_process() -> set[str]:
    return set(Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split())


async def test_a_script_without_an_interpreter_line_is_not_run(machine: LocalMachine, tmp_path: Path) -> None:
    """The kernel's ENOEXEC is reported; no shell is put in between."""
    script = tmp_path / "script"
    script.write_text("echo ran\n")
    script.chmod(0o755)
    spawn = Spawn(path=os.fsencode(script), argv=(b"x",), environment=ENVIRONMENT, cwd=b"/")
    with pytest.raises(BatchFailed) as caught:
        await start(machine, spawn)
    assert (caught.value.error.detail, caught.value.error.status) == (SpawnStage.EXEC, errno.ENOEXEC)


async def test_limits_hold_in_the_child_alone(machine: LocalMachine) -> None:
    here = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = (ResourceLimit(resource.RLIMIT_NOFILE, 50, 60),)
    text = await output_of(machine, shell("ulimit -Sn; ulimit -Hn", limits=limits))
    assert text.split() == [b"50", b"60"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == here


async def test_output_is_counted_up_to_the_end_of_the_leader(machine: LocalMachine) -> None:
    """The status says how many bytes each stream held when the leader ended, read or not."""
    spawned = await start(machine, shell("printf abcde; printf xyz >&2; sleep 100 & exit 3"))
    assert await machine.receive(spawned.handle, STDOUT, 2) == b"ab"
    with anyio.fail_after(10):
        status = await machine.wait(spawned.handle)
    assert status.raw == 3 << 8
    assert status.output_bytes == (5, 3)
    assert status.tree_alive
    assert await machine.receive(spawned.handle, STDERR, 100) == b"xyz"
    assert await machine.receive(spawned.handle, STDOUT, 100) == b"cde"
    report = await machine.kill_tree(spawned.handle)
    assert report.gone
    assert await read_all(machine, spawned.handle) == b""


async def test_merged_streams_keep_the_order_of_the_writes(machine: LocalMachine) -> None:
    script = "for i in 1 2 3 4 5; do echo o$i; echo e$i >&2; done"
    text = await output_of(machine, shell(script, stderr=Redirect.MERGE))
    assert text == b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 6))


async def test_input_to_a_closed_reader_is_told(machine: LocalMachine) -> None:
    """Writing to a program that closed its input fails; it neither blocks nor kills this process."""
    spawned = await start(machine, shell("exec <&-; echo closed; sleep 100", stdin=Redirect.PIPE))
    assert await machine.receive(spawned.handle, STDOUT, 100) == b"closed\n"
    with anyio.fail_after(10), pytest.raises(StreamClosed):
        await machine.send(spawned.handle, b"x" * 1_000_000)
    await machine.close_input(spawned.handle)
    await machine.close_input(spawned.handle)
    with pytest.raises(StreamClosed):
        await machine.send(spawned.handle, b"x")


async def test_a_signal_to_an_ended_leader_does_nothing(machine: LocalMachine) -> None:
    """Its number may be another process by now."""
    spawned = await start(machine, shell("exit 0"))
    await machine.wait(spawned.handle)
    assert await machine.signal(spawned.handle, signal.SIGTERM, SignalTarget.LEADER) == 0
    assert await machine.signal(spawned.handle, signal.SIGTERM, SignalTarget.TREE) == 0
    with pytest.raises(SignalFailed):
        await machine.signal(spawned.handle, signal.SIGTERM, SignalTarget.FOREGROUND)


async def test_pipe_readers_outlive_the_leader(machine: LocalMachine) -> None:
    """What a background job writes later arrives too; the stream ends when the last holder closed it."""
    spawned = await start(machine, shell("(read x </dev/null; sleep 0.2; echo late) & echo early"))
    await machine.wait(spawned.handle)
    assert await read_all(machine, spawned.handle) == b"early\nlate\n"
    await machine.wait_tree(spawned.handle)


async def test_many_waiters_get_the_one_status(machine: LocalMachine) -> None:
    spawned = await start(machine, shell("sleep 0.1; exit 9"))
    statuses: list[int] = []

    async def wait() -> None:
        statuses.append((await machine.wait(spawned.handle)).raw)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(wait)
    assert statuses == [9 << 8] * 10


async def test_a_closed_machine_leaves_no_process_and_no_descriptor(
    anyio_backend: str, running: Callable[[int], bool]
) -> None:
    """Closing ends what runs, in whatever session it hides, and is idempotent."""
    descriptors = set(os.listdir("/proc/self/fd"))
    machine = LocalMachine()
    pids: list[int] = []
    for script in ("sleep 300", "setsid sleep 300 & wait", "trap '' TERM; sleep 300; sleep 300"):
        pids.append((await start(machine, shell(f"echo +; {script}"))).pid)
    pids.append((await start(machine, shell("sleep 300", terminal=(24, 80)))).pid)
    assert all(running(pid) for pid in pids)
    first, second = await machine.aclose(), await machine.aclose()
    assert first.gone
    assert second == first
    assert not any(running(pid) for pid in pids)
    await machine.aclose()
    assert set(os.listdir("/proc/self/fd")) == descriptors


@pytest.fixture
async def few_descriptors(machine: LocalMachine) -> AsyncGenerator[int]:
    """The limit of this process lies a little above what it uses."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    await output_of(machine, shell("exit"))  # the event loop and the worker threads have what they need
    limit = max(int(name) for name in os.listdir("/proc/self/fd")) + 16  # a start keeps a reserve of 8
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_a_start_without_descriptors_leaves_nothing(
    machine: LocalMachine, way: dict[str, object], few_descriptors: int
) -> None:
    """At whatever point they run out: either it started, or it failed with EMFILE and left nothing behind."""
    for free in range(9):
        taken: list[int] = []
        children = children_of_this_process()
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            for _ in range(min(free, len(taken))):
                os.close(taken.pop())
        status, spawned = 0, None
        try:
            spawned = await start(machine, shell("exit 0", **way))
        except BatchFailed as failure:
            status = failure.error.status
        for descriptor in taken:
            os.close(descriptor)
        if spawned is not None:
            await machine.wait(spawned.handle)
            await machine.release(spawned.handle)
        assert status in (0, errno.EMFILE)
        assert children_of_this_process() == children
        assert len(os.listdir("/proc/self/fd")) < few_descriptors - 5


async def test_a_start_waits_for_a_descriptor(machine: LocalMachine, few_descriptors: int) -> None:
    """More starts than descriptors: each waits until another process is done with its own, none fails."""
    outputs: dict[int, bytes] = {}

    async def run(number: int) -> None:
        outputs[number] = await output_of(machine, shell(f"echo {number}; sleep 0.0{number % 7}"))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            for number in range(40):
                tasks.start_soon(run, number)
    assert outputs == {number: b"%d\n" % number for number in range(40)}


def test_a_host_that_exits_without_closing_leaves_nothing(
    tmp_path: Path, running: Callable[[int], bool]
) -> None:
    """An interpreter that ends normally with a world open ends its processes too."""
    program = f"""
import anyio
from execworld.machine.local.machine import LocalMachine
from execworld.machine.batch import Batch
from execworld.machine.operations import Spawn

async def main():
    batch = Batch()
    step = batch.add(Spawn(path=b"/bin/sh", argv=(b"sh", b"-c", b"setsid sleep 300 & sleep 300"),
        environment=((b"PATH", b"/usr/bin:/bin"),), cwd=b"/"))
    spawned = (await machine.run(batch))[step]
    open({str(tmp_path / "pid")!r}, "w").write(str(spawned.pid))

machine = LocalMachine()
anyio.run(main)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, timeout=30)
    pid = int((tmp_path / "pid").read_text())
    assert not running(pid)
