"""The blocking facade over a real world: from threads, inside a running loop, and with Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from execworld.seams import (
    CommandNotFound,
    FileMissing,
    OutputStream,
    ProviderUnknown,
    StreamMode,
    WorldClosed,
)
from execworld.sync import SyncWorld, open_world


@pytest.fixture(scope="module")
def world() -> Iterator[SyncWorld]:
    with open_world("local") as opened:
        yield opened


def alive(token: str) -> list[str]:
    """Processes with *token* on their command line."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if token.encode() in (entry / "cmdline").read_bytes():
                    found.append(entry.name)
            except OSError:
                continue  # it ended meanwhile
    return found


def eventually(condition: Callable[[], bool], message: str) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, message
        time.sleep(0.01)


def test_commands_files_and_shell(world: SyncWorld, tmp_path: Path) -> None:
    assert world.subprocess.run(["/bin/echo", "hi"]).stdout.text == "hi\n"
    assert world.shell.run("exit 3").exit_code == 3
    path = tmp_path / "f"
    assert world.fs.write_text(str(path), "text").created
    assert world.fs.read_text(str(path)) == "text"
    assert [entry.name for entry in world.fs.list_directory(str(tmp_path))] == ["f"]
    assert world.sandbox.confine(world.policy).world_id == world.world_id


def test_errors_are_those_of_the_seams(world: SyncWorld, tmp_path: Path) -> None:
    with pytest.raises(CommandNotFound):
        world.subprocess.run(["no-such-program"])
    with pytest.raises(FileMissing):
        world.fs.read_bytes(str(tmp_path / "absent"))
    with pytest.raises(ProviderUnknown):
        with open_world("loxal"):
            raise AssertionError("opened")


def test_a_process_with_pipes(world: SyncWorld) -> None:
    with world.subprocess.start(["cat"], pipe_stdin=True, stdout=StreamMode.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.send(b"one\n")
        assert process.stdout.receive() == b"one\n"
        process.stdin.send(b"two\n")
        process.stdin.close()
        assert b"".join(process.stdout) == b"two\n"
        assert process.wait().exit_code == 0


def test_leaving_the_context_ends_the_process(world: SyncWorld) -> None:
    token = f"{3600 + int(uuid.uuid4().hex[:6], 16)}"
    with world.subprocess.start(["sleep", token]) as process:
        assert process.running
        # The kernel names the program a moment before it fills in the arguments.
        eventually(lambda: bool(alive(token)), "it is not seen while it runs")
    assert alive(token) == []


def test_a_terminal(world: SyncWorld) -> None:
    with world.subprocess.open_terminal(["stty", "size"], rows=40, columns=132) as terminal:
        assert b"".join(terminal) == b"40 132\r\n"
        assert terminal.wait().exit_code == 0


def test_output_is_seen_live_and_the_callback_may_call_the_world(world: SyncWorld) -> None:
    seen: list[bytes] = []

    def on_output(stream: OutputStream, data: bytes) -> None:
        assert stream is OutputStream.STDOUT
        seen.append(world.subprocess.run(["cat"], stdin=data).stdout.data)

    world.subprocess.run(["/bin/echo", "live"], on_output=on_output)
    assert b"".join(seen) == b"live\n"


def test_an_error_of_a_callback_arrives_unchanged(world: SyncWorld) -> None:
    error = RuntimeError("own")

    def on_output(stream: OutputStream, data: bytes) -> None:
        raise error

    with pytest.raises(RuntimeError) as caught:
        world.subprocess.run(["/bin/echo", "x"], on_output=on_output)
    assert caught.value is error


def test_an_error_of_the_body_arrives_unchanged() -> None:
    error = RuntimeError("own")
    with pytest.raises(RuntimeError) as caught:
        with open_world("local"):
            raise error
    assert caught.value is error


def test_readers_walks_and_streams(world: SyncWorld, tmp_path: Path) -> None:
    big = os.urandom(3_000_000)
    world.fs.write_stream(
        str(tmp_path / "d" / "big"), (big[i : i + 100_000] for i in range(0, len(big), 100_000))
    )
    with world.fs.open_reader(str(tmp_path / "d" / "big")) as chunks:
        assert b"".join(chunks) == big
    for number in range(50):
        world.fs.write_bytes(str(tmp_path / "d" / str(number)), b"")
    assert len(list(world.fs.walk(str(tmp_path)))) == 52
    walk = world.fs.walk(str(tmp_path))
    next(walk)
    del walk  # half way
    assert len(world.fs.glob("d/1*", root=str(tmp_path))) == 11


def test_an_error_of_the_source_changes_nothing(world: SyncWorld, tmp_path: Path) -> None:
    error = RuntimeError("own")

    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise error

    with pytest.raises(RuntimeError) as caught:
        world.fs.write_stream(str(tmp_path / "f"), chunks())
    assert caught.value is error
    assert list(tmp_path.iterdir()) == []


def test_several_threads_use_one_world_at_once(world: SyncWorld) -> None:
    """Ten commands of 0.5 s that waited for each other would take 5 s."""
    results: list[str] = []

    def work(number: int) -> None:
        results.append(world.shell.run(f"sleep 0.5; echo {number}").stdout.text.strip())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results, key=int) == [str(number) for number in range(10)]
    assert time.monotonic() - began < 4


def test_it_works_inside_a_running_event_loop(world: SyncWorld) -> None:
    """As in a notebook; and the world may have been opened before that loop was there."""

    async def cell() -> str:
        with open_world("local") as inner:
            inner.subprocess.run(["true"])
        return world.subprocess.run(["/bin/echo", "in a loop"]).stdout.text

    assert anyio.run(cell) == "in a loop\n"
    assert anyio.run(cell) == "in a loop\n"


def test_a_closed_world_says_so() -> None:
    with open_world("local") as closed:
        pass
    with pytest.raises(WorldClosed):
        closed.subprocess.run(["true"])
    assert closed.closed


SCRIPT = """
import sys
from execworld.sync import open_world
try:
    with open_world("local") as world:
        print("ready", flush=True)
        world.shell.run("trap '' TERM; sleep {token}; sleep {token}", grace_s=0.5)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_cancels_the_call_and_leaves_nothing() -> None:
    token = f"{3600 + int(uuid.uuid4().hex[:6], 16)}"
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(token=token)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        eventually(lambda: bool(alive(f"sleep\0{token}")), "the command did not start")
        program.send_signal(signal.SIGINT)
        output, errors = program.communicate(timeout=20)
    assert output == b"interrupted\n"
    assert errors == b""
    assert alive(f"sleep\0{token}") == []
