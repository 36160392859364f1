"""Bad input ends in a coded error that names the thing, or in the right result; never in a traceback or a loss."""

from __future__ import annotations

import os
import resource
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import pytest

from execworld.seams import (
    CommandInvalid,
    CommandNotExecutable,
    CommandNotFound,
    ExecworldError,
    FileError,
    FileMissing,
    InvalidPath,
    NoSpace,
    NotDirectory,
    NotRegularFile,
    NotText,
    OutputLimits,
    SpawnFailed,
    StaleVersion,
    TooLarge,
    WorkingDirectoryMissing,
    World,
)
from execworld.seams.testing.probes import is_alive, output_of, pid_from
from execworld.world import open_world

if TYPE_CHECKING:
    from tests.integration.conftest import CommandLine

pytestmark = pytest.mark.anyio

as_root = pytest.mark.skipif(
    os.getuid() != 0, reason="needs root: mounts a file system or takes another user id"
)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    async with open_world("local", cwd=str(tmp_path)) as world:
        yield world


FileCall = Callable[[World, str], Awaitable[object]]
FILE_CALLS: dict[str, FileCall] = {
    "read_bytes": lambda world, path: world.fs.read_bytes(path),
    "read_text": lambda world, path: world.fs.read_text(path),
    "read_range": lambda world, path: world.fs.read_range(path, offset=0, size_bytes=1),
    "write_text": lambda world, path: world.fs.write_text(path, "x"),
    "edit_text": lambda world, path: world.fs.edit_text(path, "a", "b"),
    "stat": lambda world, path: world.fs.stat(path),
    "list_directory": lambda world, path: world.fs.list_directory(path),
    "make_directory": lambda world, path: world.fs.make_directory(path),
    "remove": lambda world, path: world.fs.remove(path),
    "rename-from": lambda world, path: world.fs.rename(path, "target"),
    "rename-to": lambda world, path: world.fs.rename("file", path),
    "copy-from": lambda world, path: world.fs.copy(path, "target"),
    "copy-to": lambda world, path: world.fs.copy("file", path),
    "make_symlink": lambda world, path: world.fs.make_symlink(path, "file"),
    "set_mode": lambda world, path: world.fs.set_mode(path, 0o600),
    "resolve": lambda world, path: world.fs.resolve(path),
    "space": lambda world, path: world.fs.space(path),
}
NO_PATHS = {
    "empty": ("", (FileMissing,)),
    "nul": ("a\0b", (InvalidPath,)),
    "long-name": ("n" * 256, (InvalidPath,)),
    "long-path": ("d/" * 3000 + "f", (InvalidPath,)),
    "lone-surrogate": ("\ud800", (InvalidPath,)),
}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a path is judged before any loop is involved
@pytest.mark.parametrize("call", FILE_CALLS)
@pytest.mark.parametrize("kind", NO_PATHS)
async def test_what_is_no_path_is_refused_by_every_operation(world: World, call: str, kind: str) -> None:
    """A coded error of the fs family that shows the operation; nothing else in the directory changes."""
    await world.fs.write_text("file", "content")
    path, expected = NO_PATHS[kind]
    if (call, kind) == ("resolve", "long-path"):
        assert (await world.fs.resolve(path)).display_path.endswith(
            "/d/f"
        )  # names it; nothing is looked up beyond it
        return
    with pytest.raises(FileError) as caught:
        await FILE_CALLS[call](world, path)
    assert isinstance(caught.value, expected)
    assert caught.value.op.startswith("fs.")
    assert [entry.name for entry in await world.fs.list_directory(".")] == ["file"]
    assert await world.fs.read_text("file") == "content"


async def test_a_directory_is_no_file_and_a_file_no_directory(world: World) -> None:
    await world.fs.make_directory("directory")
    await world.fs.write_text("file", "content")
    for call in ("read_bytes", "read_text", "write_text", "edit_text", "read_range"):
        with pytest.raises(NotRegularFile, match="directory"):
            await FILE_CALLS[call](world, "directory")
    with pytest.raises(NotDirectory):
        await world.fs.list_directory("file")
    with pytest.raises(NotDirectory):
        await world.fs.write_text("file/below", "x")
    with pytest.raises(FileMissing):
        await world.fs.read_text("file/below")
    with pytest.raises(StaleVersion):
        await world.fs.edit_text("file/below", "a", "b")
    assert await world.fs.read_text("file") == "content"


async def test_malformed_commands_start_nothing(world: World) -> None:
    """Each is COMMAND_INVALID, and the message says which part of the call is wrong."""
    subprocesses = world.subprocess
    cases: list[tuple[Awaitable[object], str]] = [
        (subprocesses.run([]), "empty"),
        (subprocesses.run([""]), "empty"),
        (subprocesses.run("touch made"), "one string"),
        (subprocesses.run(["touch", "a\0b"]), "argument 1"),
        (subprocesses.run(["touch", "\ud800"]), "argument 1"),
        (subprocesses.run(["touch", "made"], cwd=""), "working directory"),
        (subprocesses.run(["touch", "made"], cwd="a\0b"), "working directory"),
        (subprocesses.run(["touch", "made"], env={"A=B": "x"}), "A=B"),
        (subprocesses.run(["touch", "made"], env={"A": "\ud800"}), "variable A"),
        (subprocesses.run(["touch", "made"], env={"A": "x\0y"}), "variable A"),
        (subprocesses.run(["touch", "made"], timeout_s=0), "timeout_s"),
        (subprocesses.run(["touch", "made"], grace_s=-1), "grace_s"),
        (world.shell.run(" \n\t"), "blank"),
        (world.shell.run("touch made\0"), "NUL"),
        (world.shell.run("touch \ud800"), "surrogate"),
    ]
    for call, names in cases:
        with pytest.raises(CommandInvalid, match=names):
            await call
    assert await world.fs.list_directory(".") == []


async def test_programs_that_cannot_run_say_why(world: World) -> None:
    """Not there is 127 for shells, there but not executable 126; both name the program and help."""
    await world.fs.write_text("plain", "echo ran\n")
    await world.fs.write_text("no-interpreter", "#!/nonexistent/interpreter\n", mode=0o755)
    await world.fs.write_text("no-format", "echo ran\n", mode=0o755)
    await world.fs.write_bytes("empty", b"", mode=0o755)
    for name in ("nonexistent-program", "./nonexistent", "/nonexistent/x", "./plain/x", "n" * 300, b"\xff"):
        with pytest.raises(CommandNotFound):
            await world.subprocess.run([name])
    for name in ("./plain", "/", "/etc", "./no-interpreter", "./no-format", "./empty"):
        with pytest.raises(CommandNotExecutable) as caught:
            await world.subprocess.run([name])
        assert name in caught.value.message
        assert caught.value.hint


async def test_a_missing_working_directory_is_not_a_missing_program(world: World) -> None:
    """Both exist in one call, and the error tells them apart."""
    await world.fs.write_text("file", "x")
    for cwd in ("nowhere", "file", "file/x", "/proc/self/nowhere", "n" * 300):
        with pytest.raises(WorkingDirectoryMissing) as caught:
            await world.subprocess.run(["true"], cwd=cwd)
        assert caught.value.hint
        with pytest.raises(WorkingDirectoryMissing):
            await world.shell.run("true", cwd=cwd)


async def test_a_directory_that_vanishes_under_a_running_command_is_its_own_business(world: World) -> None:
    """The command goes on, its output arrives, and it ends as it wants; the next one there is told."""
    await world.fs.make_directory("gone")
    async with world.subprocess.start(
        ["sh", "-c", "echo ready; read x; echo done; exit 4"], cwd="gone", pipe_stdin=True
    ) as process:
        await world.fs.remove("gone", recursive=True)
        assert process.stdin is not None
        await process.stdin.send(b"\n")
        result = await process.wait()
    assert (result.exit_code, result.stdout.data) == (4, b"ready\ndone\n")
    with pytest.raises(WorkingDirectoryMissing, match="gone"):
        await world.subprocess.run(["true"], cwd="gone")


async def test_a_mebibyte_of_arguments(world: World) -> None:
    """Many arguments pass; one that is too long for the kernel is refused with a way out, which works."""
    many = ["x" * 65536] * 16
    counted = await world.subprocess.run(["sh", "-c", 'echo "$#"; printf %s "$@" | wc -c', "sh", *many])
    assert counted.stdout.text.split() == ["16", str(16 * 65536)]
    small = await world.subprocess.run(["sh", "-c", 'echo "$#"', "sh", *(["x"] * 100_000)])
    assert small.stdout.data == b"100000\n"
    with pytest.raises(SpawnFailed) as caught:
        await world.subprocess.run(["echo", "x" * 1_048_576])
    assert "stdin" in caught.value.hint
    with pytest.raises(SpawnFailed):
        await world.shell.run(f": {'x' * 1_048_576}")
    async with world.subprocess.open_terminal(["echo", *many]) as terminal:
        total = 0
        with anyio.fail_after(20):
            try:
                while chunk := await terminal.receive():
                    total += len(chunk)
            except anyio.EndOfStream:
                pass
    assert total == 16 * 65537 + 1
    given = await world.subprocess.run(["wc", "-c"], stdin=b"x" * 1_048_576)
    assert given.stdout.text.split() == ["1048576"]


async def test_content_that_is_no_text(world: World) -> None:
    """Invalid UTF-8 and binary are told apart from text and never changed by a failed edit; bytes are always there."""
    contents = {
        "invalid": b"d\xe9j\xe0\n",
        "binary": b"\x7fELF\0\0a\n",
        "cut": "é".encode()[:1],
        "overlong": b"\xc0\x80",
    }
    for name, content in contents.items():
        await world.fs.write_bytes(name, content)
        for call in ("read_text", "edit_text"):
            with pytest.raises(NotText) as caught:
                await FILE_CALLS[call](world, name)
            assert name in caught.value.message
        assert await world.fs.read_bytes(name) == content


async def test_a_sparse_file_of_five_gigabytes(world: World) -> None:
    """Refused at once where it would have to be in memory; ranges and streams work."""
    size = 5 * 1024**3
    await output_of(world, f"truncate -s {size} big")
    before, before_kib = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for call in ("read_bytes", "read_text", "edit_text"):
        with pytest.raises(TooLarge, match="big"):
            await FILE_CALLS[call](world, "big")
    assert await world.fs.read_range("big", offset=size - 3, size_bytes=10) == b"\0\0\0"
    assert await world.fs.read_range("big", offset=size + 10, size_bytes=10) == b""
    async with world.fs.open_reader("big") as chunks:
        async for chunk in chunks:
            assert set(chunk) == {0}
            break
    info = await world.fs.stat("big")
    assert info is not None
    assert info.size_bytes == size
    assert time.monotonic() - before < 5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 64 * 1024


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the work is in the worker thread
async def test_a_directory_with_a_hundred_thousand_entries(world: World) -> None:
    """Listed completely and in order, walked, matched and removed."""
    count = 100_000
    maker = "import os,sys\nfor n in range(int(sys.argv[1])): os.close(os.open(f'd/{n:06}', os.O_CREAT | os.O_WRONLY))"
    await world.fs.make_directory("d")
    await world.subprocess.run([sys.executable, "-c", maker, str(count)], check=True)
    with anyio.fail_after(60):
        listed = await world.fs.list_directory("d")
        assert [entry.name for entry in listed] == [f"{n:06}" for n in range(count)]
        walked = 0
        async for _ in world.fs.walk("d"):
            walked += 1
        assert walked == count
        assert len(await world.fs.glob("d/0000?0")) == 10
        await world.fs.remove("d", recursive=True)
    assert await world.fs.stat("d") is None


@pytest.fixture
def small_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """A file system of one mebibyte where temporary files go."""
    directory = tmp_path / "small"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)], check=True)
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True)


def everything_in(directory: Path) -> list[Path]:
    return list(directory.rglob("*"))


LIMITS = OutputLimits(head_bytes=1000, tail_bytes=1000, spill_bytes=50_000_000)
FLOOD = "yes 123456789 | head -c 5000000; echo END; exit 3"


@as_root
@pytest.mark.root
async def test_a_disk_that_fills_up_while_output_is_spilled(small_disk: Path) -> None:
    """The command is not disturbed, head, tail and counts are exact, the reason is told, the space is given back."""
    async with open_world("local") as world:
        fits = await world.shell.run("seq 1 10000", limits=LIMITS)
        assert fits.stdout.spill_path is not None
        assert fits.stdout.spill_path.startswith(str(small_disk))
        result = await world.shell.run(FLOOD, limits=LIMITS)
        assert (result.exit_code, result.stdout.total_bytes) == (3, 5_000_004)
        assert (result.stdout.head[:10], result.stdout.tail[-4:]) == (b"123456789\n", b"END\n")
        assert result.stdout.spill_path is None
        assert "ENOSPC" in result.stdout.spill_error
        assert len([path for path in everything_in(small_disk) if path.is_file()]) == 1
        again = await world.shell.run("seq 1 10000", limits=LIMITS)
        assert again.stdout.spill_path is not None, "what was given up must not keep the disk full"
    assert everything_in(small_disk) == []


async def test_a_file_size_limit_of_ours_costs_the_spill_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    async with open_world("local") as world:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, before[1]))
        try:
            result = await world.shell.run(FLOOD, limits=LIMITS)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (result.exit_code, result.stdout.total_bytes) == (3, 5_000_004)
    assert result.stdout.spill_path is None
    assert "EFBIG" in result.stdout.spill_error
    assert everything_in(tmp_path) == []


@as_root
@pytest.mark.root
async def test_a_full_disk_loses_no_file(small_disk: Path) -> None:
    """A write that does not fit is NoSpace; the old content stays and no temporary file takes the last space."""
    async with open_world("local", cwd=str(small_disk)) as world:
        await world.fs.write_text("f", "old")
        with pytest.raises(NoSpace, match="f"):
            await world.fs.write_bytes("f", b"x" * 5_000_000)
        with pytest.raises(NoSpace):
            await world.fs.write_bytes("new/deep", b"x" * 5_000_000)
        assert [entry.name for entry in await world.fs.list_directory(".")] == ["f"]
        assert await world.fs.read_text("f") == "old"
        await world.fs.write_bytes("f", b"y" * 900_000)


# Enters a group that the kernel limits, takes an unprivileged id with a limit on processes as well, and goes on only
# when both are in force. Then it counts how many children it may have, or forks for ever, deaf to TERM.
BOUNDED = """
import os, resource, signal, sys, time
group, what = sys.argv[1:]
with open(group + "/cgroup.procs", "w") as stream:
    stream.write(str(os.getpid()))
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (60, 60))
bounded = open(group + "/pids.max").read().strip() == "80" and str(os.getpid()) in open(group + "/cgroup.procs").read()
if not bounded or 0 in os.getresuid() or resource.getrlimit(resource.RLIMIT_NPROC) != (60, 60):
    sys.exit(9)
if what == "count":
    for number in range(200):
        try:
            if os.fork() == 0:
                time.sleep(1)
                os._exit(0)
        except OSError:
            break
    print(number)
    sys.exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    try:
        if os.fork() == 0 and os.getpid() % 3 == 0:
            os.setsid()
    except OSError:
        pass
"""


@pytest.fixture
def process_group() -> Generator[Path]:
    """A control group that lets at most 80 processes be."""
    for root, kind in (("/sys/fs/cgroup/pids", "v1"), ("/sys/fs/cgroup", "v2")):
        if os.access(f"{root}/cgroup.procs", os.W_OK) and (
            kind == "v1" or "pids" in Path(f"{root}/cgroup.subtree_control").read_text().split()
        ):
            break
    else:
        pytest.skip(
            "no control group for processes can be made here, and without one this test could hurt the host"
        )
    group = Path(root) / f"execworld-test-{secrets.token_hex(4)}"
    group.mkdir()
    (group / "pids.max").write_text("80")
    try:
        yield group
    finally:
        deadline = time.monotonic() + 10
        while (left := (group / "cgroup.procs").read_text().split()) and time.monotonic() < deadline:
            for pid in left:
                os.kill(int(pid), 9)
            time.sleep(0.01)
        group.rmdir()


def running_in(group: Path) -> list[int]:
    """Processes of the group that are not zombies."""
    found: list[int] = []
    for pid in (group / "cgroup.procs").read_text().split():
        try:
            text = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue
        if text[text.rfind(b")") + 2 :].split()[0] not in (b"Z", b"X"):
            found.append(int(pid))
    return found


@as_root
@pytest.mark.root
@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # the sweep is in a worker thread
async def test_a_fork_bomb_ends_with_its_time_limit(world: World, process_group: Path) -> None:
    """Nothing of it is left. Two controls come first: the limits bind, and the storm is one."""
    bounded = [sys.executable, "-c", BOUNDED, str(process_group)]
    control = await world.subprocess.run([*bounded, "count"], timeout_s=20)
    assert control.exit_code == 0, "the limits are not in force, so no storm is started"
    assert 30 < int(control.stdout.data) < 60
    seen: list[int] = []

    async def watch() -> None:
        while True:
            seen.append(len(running_in(process_group)))
            await anyio.sleep(0.05)

    before = time.monotonic()
    result = None
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        result = await world.subprocess.run([*bounded, "storm"], timeout_s=1.5, grace_s=0.5)
        tasks.cancel_scope.cancel()
    assert result is not None
    assert 1.5 <= time.monotonic() - before < 20
    assert max(seen) > 30, "that was no storm"
    assert result.timed_out
    assert result.tree is not None
    assert result.tree.gone
    assert running_in(process_group) == []
    assert (await world.shell.run("echo alive")).stdout.data == b"alive\n"


async def test_an_error_is_the_same_for_a_program(world: World) -> None:
    """Every error above is plain JSON with a code, a message and the operation."""
    errors: list[ExecworldError] = []
    for call in (world.fs.read_text("nope"), world.subprocess.run(["nope-x"]), world.shell.run("\0")):
        try:
            await call
        except ExecworldError as error:
            errors.append(error)
    fields = [error.as_dict() for error in errors]
    assert [field["code"] for field in fields] == ["FS_NOT_FOUND", "COMMAND_NOT_FOUND", "COMMAND_INVALID"]
    assert all(field["message"] and field["op"] for field in fields)


BAD_COMMAND_LINES: dict[str, tuple[list[str | bytes], int, bytes]] = {
    "unknown-program": (["run", "-w", "local", "--", "nonexistent-program"], 127, b"COMMAND_NOT_FOUND"),
    "directory": (["run", "-w", "local", "--", "/etc"], 126, b"COMMAND_NOT_EXECUTABLE"),
    "empty-program": (["run", "-w", "local", "--", ""], 125, b"COMMAND_INVALID"),
    "no-program": (["run", "-w", "local"], 125, b"Usage"),
    "missing-cwd": (["run", "-w", "local", "--cwd", "nope", "--", "true"], 125, b"WORKING_DIRECTORY_MISSING"),
    "unknown-option": (["run", "-w", "local", "--nope", "--", "true"], 125, b"--nope"),
    "bad-limit": (["run", "-w", "local", "--timeout", "-1", "--", "true"], 125, b"--timeout"),
    "bad-limit-text": (["run", "-w", "local", "--timeout", "soon", "--", "true"], 125, b"soon"),
    "bad-variable": (["run", "-w", "local", "-e", "=x", "--", "true"], 125, b"NAME"),
    "missing-file": (["fs", "cat", "-w", "local", b"no\xffpe"], 1, b"no\\xffpe"),
    "directory-as-file": (["fs", "cat", "-w", "local", "."], 1, b"FS_NOT_REGULAR_FILE"),
    "empty-path": (["fs", "cat", "-w", "local", ""], 1, b"FS_"),
    "control-characters": (["fs", "cat", "-w", "local", b"a\033[31m\nb"], 1, b"a\\x1b[31m\\nb"),
    "missing-directory": (["fs", "ls", "-w", "local", "nope"], 1, b"FS_NOT_FOUND"),
    "put-nothing": (["fs", "put", "-w", "local", "nope", "to"], 1, b"nope"),
    "unknown-command": (["rnu"], 2, b"rnu"),
    "unknown-world": (["run", "-w", "mars", "--", "true"], 125, b"PROVIDER_UNKNOWN"),
    "non-utf8-world": (["run", "-w", b"\xff", "--", "true"], 125, b"\\xff"),
    "non-utf8-cwd": (["run", "-w", "local", "--cwd", b"\xff", "--", "true"], 125, b"\\xff"),
}


@pytest.mark.parametrize("name", BAD_COMMAND_LINES)
def test_the_command_line_answers_bad_input_in_words(command_line: CommandLine, name: str) -> None:
    """An exit code, a code or usage line that names the thing, nothing on stdout, no traceback."""
    arguments, code, words = BAD_COMMAND_LINES[name]
    result = command_line.run(*arguments)
    assert result.returncode == code, result.stderr.decode()
    assert words in result.stderr
    assert result.stdout == b""


async def test_odd_arguments_are_not_odd_for_commands(world: World) -> None:
    """Leading dashes, quotes, newlines and bytes that are no text pass through untouched."""
    odd: list[str | bytes] = ["-rf", "--", "", "a\nb", "'", '"', "$(id)", "*", b"\xff\xfe", "\udcff"]
    result = await world.subprocess.run(["printf", "<%s>", *odd[2:]])
    expected = b"".join(
        b"<" + (item if isinstance(item, bytes) else item.encode("utf-8", "surrogateescape")) + b">"
        for item in odd[2:]
    )
    assert result.stdout.data == expected
    assert (await world.subprocess.run(["sh", "-c", 'echo "$1$2"', "sh", *odd[:2]])).stdout.data == b"-rf--\n"


async def test_a_signal_to_a_process_that_ended_harms_nobody(world: World) -> None:
    """Also when its number was taken over meanwhile: the handle, and not the number, is the address."""
    async with world.subprocess.start(["true"]) as process:
        await process.wait()
        async with world.subprocess.start(["sh", "-c", "echo $$ > pid; exec sleep 60"]) as other:
            pid = await pid_from(world, "pid")
            for _ in range(3):
                await process.send_signal(9)
                await process.terminate()
            assert other.running
            assert await is_alive(world, pid)
