"""``execworld fs``: names, contents and trees arrive as they are, and what cannot is listed."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import select
import shlex
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Eventually, OpenSession, Run, Start

STRANGE = [b"a\nb", b" lead", b"trail ", b"-rf", b"*", b"go\xff.t", "漢字".encode(), b"\x1b[31mred", b"a\\b"]


@pytest.fixture
def strange(tmp_path: Path) -> Path:
    directory = tmp_path / "strange"
    directory.mkdir()
    for name in STRANGE:
        Path(os.fsdecode(bytes(directory) + b"/" + name)).write_bytes(name)
    return directory


# ls and cat


def test_names_are_raw_bytes_unless_a_person_reads_them(execworld: Run, strange: Path) -> None:
    listed = execworld("fs", "ls", "-q", "-w", "local", "--null", str(strange)).stdout
    assert sorted(listed.split(b"\0")[:-1]) == sorted(STRANGE)
    lines = execworld("fs", "ls", "-q", "-w", "local", str(strange)).stdout
    assert b"go\xff.t\n" in lines


def test_names_on_a_terminal_cannot_move_the_cursor(session: OpenSession, strange: Path) -> None:
    terminal = session("fs", "ls", "-q", "-w", "local", str(strange))
    assert terminal.wait() == 0
    assert b"a\\nb\r\n" in terminal.output
    assert b"go\\xff.t\r\n" in terminal.output
    assert b"\x1b" not in terminal.output


def exact(entry: dict[str, str], field: str) -> bytes:
    encoded = entry.get(f"{field}_base64")
    return entry[field].encode("utf-8") if encoded is None else base64.b64decode(encoded)


def test_names_in_json_are_reversible_and_text(execworld: Run, strange: Path) -> None:
    """Many readers of JSON refuse lone surrogates, so that not even the other names could be read."""
    printed = execworld("fs", "ls", "-q", "-w", "local", "--json", str(strange)).stdout
    assert b"\\ud" not in printed.replace(json.dumps("漢字")[1:-1].encode(), b"")
    entries = json.loads(printed)
    assert sorted(exact(entry, "name") for entry in entries) == sorted(STRANGE)
    assert [entry["name"] for entry in entries if "name_base64" in entry] == ["go\\xff.t"]
    assert {entry["kind"] for entry in entries} == {"file"}
    for entry in entries:
        path = exact(entry, "path")
        assert execworld("fs", "cat", "-q", "-w", "local", path).stdout == os.path.basename(path)


def test_kinds_and_links(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "link").symlink_to("dir")
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    entries = json.loads(execworld("fs", "ls", "-q", "-w", "local", "--json", str(tmp_path)).stdout)
    assert {entry["name"]: (entry["kind"], entry["target_kind"]) for entry in entries} == {
        "dangling": ("symlink", None),
        "dir": ("directory", "directory"),
        "fifo": ("fifo", "fifo"),
        "link": ("symlink", "directory"),
    }
    long = execworld("fs", "ls", "-q", "-w", "local", "-l", str(tmp_path)).stdout.splitlines()
    assert [line[:1] for line in long] == [b"l", b"d", b"p", b"l"]


def test_a_single_file_is_listed_as_itself(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    assert execworld("fs", "ls", "-q", "-w", "local", str(tmp_path / "f")).stdout == b"f\n"


def test_relative_paths_start_where_we_are(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("text")
    assert execworld("fs", "cat", "-q", "-w", "local", "f", cwd=tmp_path).stdout == b"text"
    assert execworld("fs", "ls", "-q", "-w", "local", cwd=tmp_path).stdout == b"f\n"


@pytest.mark.parametrize("path", ["", "absent", "file/below", "dir"])
def test_what_cannot_be_read_is_an_error_with_a_code(execworld: Run, tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dir").mkdir()
    finished = execworld("fs", "cat", "-q", "-w", "local", path, cwd=tmp_path)
    assert finished.returncode == 1
    assert finished.stderr.startswith(b"execworld: error [FS_")
    assert finished.stdout == b""


def test_standard_input_is_put_and_a_file_is_got_to_standard_output(execworld: Run, tmp_path: Path) -> None:
    data = os.urandom(3_000_000)
    put = execworld("fs", "put", "-q", "-w", "local", "-", "file", stdin=data, cwd=tmp_path)
    assert (put.returncode, put.stdout, put.stderr) == (0, b"", b"")
    assert (tmp_path / "file").read_bytes() == data
    assert os.listdir(tmp_path) == ["file"]
    got = execworld("fs", "get", "-q", "-w", "local", "file", "-", cwd=tmp_path)
    assert (got.returncode, got.stdout == data, got.stderr) == (0, True, b"")
    assert execworld("fs", "put", "-q", "-w", "local", "-", "empty", cwd=tmp_path).returncode == 0
    assert (tmp_path / "empty").read_bytes() == b""


def test_a_stream_needs_a_name_and_goes_alone(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "-").write_text("of that name")
    for target in ("dir", "dir/", "absent/"):
        finished = execworld("fs", "put", "-q", "-w", "local", "-", target, stdin=b"x", cwd=tmp_path)
        assert (finished.returncode, finished.stdout) == (1, b"")
        assert b"[FS_NOT_REGULAR_FILE]" in finished.stderr
        assert b"hint: name the file in it" in finished.stderr
    assert execworld("fs", "get", "-q", "-w", "local", "dir", "-", cwd=tmp_path).returncode == 1
    assert (
        execworld("fs", "put", "-q", "-w", "local", "-r", "-", "x", stdin=b"x", cwd=tmp_path).returncode == 2
    )
    assert (
        execworld("fs", "put", "-q", "-w", "local", "-", "dir", "x", stdin=b"x", cwd=tmp_path).returncode == 2
    )
    assert execworld("fs", "get", "-q", "-w", "local", "-r", "dir", "-", cwd=tmp_path).returncode == 2
    assert execworld("fs", "put", "-q", "-w", "local", "./-", "copy", cwd=tmp_path).returncode == 0
    assert (tmp_path / "copy").read_text() == "of that name"
    assert sorted(os.listdir(tmp_path)) == ["-", "copy", "dir"]


def test_an_interrupted_stream_leaves_nothing(eventually: Eventually, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    command = [
        sys.executable,
        "-m",
        "execworld.cli",
        "fs",
        "put",
        "-q",
        "-w",
        "local",
        "-",
        str(tmp_path / "file"),
    ]
    os.write(writing, b"begun")
    with subprocess.Popen(command, stdin=reading, stderr=subprocess.PIPE) as program:
        try:
            eventually(lambda: not select.select([reading], [], [], 0)[0], "the input was not read")
            program.send_signal(signal.SIGINT)
            _, errors = program.communicate(timeout=20)
        finally:
            program.kill()
    os.close(reading)
    os.close(writing)
    assert (program.returncode, errors) == (130, b"")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", [".", "./", "..", "dir/..", "dir/./"])
def test_the_directory_that_we_are_in_is_not_removed(execworld: Run, tmp_path: Path, path: str) -> None:
    """As rm(1) refuses it: it is a slip more often than meant."""
    (tmp_path / "here" / "dir").mkdir(parents=True)
    finished = execworld("fs", "rm", "-q", "-w", "local", "-r", path, cwd=tmp_path / "here")
    assert finished.returncode == 1
    assert b"[FS_INVALID_PATH]" in finished.stderr
    assert (tmp_path / "here" / "dir").is_dir()


def test_in_a_removed_directory_relative_names_mean_no_other_place(tmp_path: Path) -> None:
    """They would be looked up in the root directory: ``fs rm -r tmp`` must not remove /tmp."""
    gone = tmp_path / "gone"

    def run(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        gone.mkdir()
        program = shlex.join([sys.executable, "-m", "execworld.cli", *arguments])
        return subprocess.run(["sh", "-c", f"rmdir ../gone; exec {program}"], cwd=gone, capture_output=True)

    listed = run("fs", "ls", "-q", "-w", "local")
    assert (listed.returncode, listed.stdout) == (1, b"")
    assert b"[FS_NOT_FOUND]" in listed.stderr
    ran = run("run", "-q", "-w", "local", "--", "pwd")
    assert (ran.returncode, ran.stdout) == (125, b"")
    assert b"[WORKING_DIRECTORY_MISSING]" in ran.stderr
    assert run("run", "-q", "-w", "local", "--cwd", "/", "--", "pwd").stdout == b"/\n"


def test_hints_are_words_of_the_command_line(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "dir" / "below").mkdir(parents=True)
    (tmp_path / "file").write_text("x")
    removed = execworld("fs", "rm", "-q", "-w", "local", "dir", cwd=tmp_path)
    assert b"\nhint: add -r to " in removed.stderr
    put = execworld("fs", "put", "-q", "-w", "local", "file", "absent/file", cwd=tmp_path)
    assert b"\nhint: make the directory first: execworld run -- mkdir -p" in put.stderr
    ran = execworld("run", "-q", "-w", "local", "--json", "--cwd", "absent", "--", "true", cwd=tmp_path)
    assert json.loads(ran.stdout)["error"]["hint"] == "make it, or choose another with --cwd"


def test_one_bad_file_does_not_hide_the_others(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("A")
    (tmp_path / "b").write_text("B")
    finished = execworld("fs", "cat", "-q", "-w", "local", "a", "absent", "b", cwd=tmp_path)
    assert (finished.returncode, finished.stdout) == (1, b"AB")


def test_an_empty_file_and_a_file_without_a_size(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    assert execworld("fs", "cat", "-q", "-w", "local", str(tmp_path / "empty")).returncode == 0
    assert b"Name:" in execworld("fs", "cat", "-q", "-w", "local", "/proc/self/status").stdout


def test_a_pipe_is_refused_at_once(execworld: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "p")
    finished = execworld("fs", "cat", "-q", "-w", "local", str(tmp_path / "p"), timeout=20)
    assert b"FS_NOT_REGULAR_FILE" in finished.stderr
    finished = execworld(
        "fs", "put", "-q", "-w", "local", str(tmp_path / "p"), str(tmp_path / "q"), timeout=20
    )
    assert b"FS_NOT_REGULAR_FILE" in finished.stderr


@pytest.mark.slow
def test_a_huge_file_streams_in_bounded_memory(start: Start, tmp_path: Path) -> None:
    size = 5 << 30 if os.environ.get("EXECWORLD_FULL") else 1 << 30
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
    program = start("fs", "cat", "-q", "-w", "local", str(tmp_path / "sparse"))
    assert program.stdout is not None
    received = peak_kib = 0
    while chunk := program.stdout.read(1 << 20):
        received += len(chunk)
        # Not ru_maxrss: that begins with the memory of whoever forked the program (exec_mmap in the kernel).
        state = Path(f"/proc/{program.pid}/status").read_text()
        peak_kib = max(peak_kib, int(state.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in state else 0)
    assert (received, program.wait()) == (size, 0)
    assert 0 < peak_kib < 160 * 1024


def test_a_reader_that_leaves_is_quiet(start: Start, eventually: Eventually, tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    program = start("fs", "cat", "-q", "-w", "local", str(tmp_path / "sparse"))
    assert program.stdout is not None
    assert program.stderr is not None
    program.stdout.read(10)
    program.stdout.close()
    eventually(lambda: program.poll() is not None, "it went on without a reader")
    assert (program.returncode, program.stderr.read()) == (141, b"")


# put, get and rm


def tree(root: Path) -> dict[bytes, tuple[str, int, bytes]]:
    """Kind, mode and content of everything below *root*."""
    found: dict[bytes, tuple[str, int, bytes]] = {}
    for parent, directories, files in os.walk(bytes(root)):
        for name in directories + files:
            path = os.path.join(parent, name)
            status = os.lstat(path)
            relative = os.path.relpath(path, bytes(root))
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                found[relative] = ("link", 0, os.readlink(path))
            elif stat.S_ISDIR(status.st_mode):
                found[relative] = ("directory", mode, b"")
            else:
                found[relative] = (
                    "file",
                    mode,
                    hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).digest(),
                )
    return found


@pytest.fixture
def source(strange: Path, tmp_path: Path) -> Path:
    (strange / "empty").write_bytes(b"")
    (strange / "big").write_bytes(os.urandom(3_000_000))
    (strange / "tool").write_text("#!/bin/sh\n")
    (strange / "tool").chmod(0o755)
    (strange / "private").write_text("x")
    (strange / "private").chmod(0o600)
    deep = strange / "sub" / "deep"
    deep.mkdir(parents=True)
    (deep / "f").write_text("deep")
    (strange / "sub" / "up").symlink_to("../tool")
    (strange / "dangling").symlink_to("/nowhere/at all")
    (strange / "todir").symlink_to("sub")
    (strange / "sub").chmod(0o555)
    return strange


@pytest.mark.parametrize("direction", ["put", "get"])
def test_a_tree_arrives_as_it_is(execworld: Run, source: Path, tmp_path: Path, direction: str) -> None:
    target = tmp_path / "target"
    finished = execworld("fs", direction, "-q", "-w", "local", "-r", str(source), str(target))
    assert (finished.returncode, finished.stderr) == (0, b"")
    assert tree(target) == tree(source)
    again = execworld("fs", direction, "-q", "-w", "local", "-r", str(source), str(target))
    assert again.returncode == 0
    assert tree(target / source.name) == tree(source), "an existing directory is the place, not the name"


def test_a_tree_is_added_to(execworld: Run, source: Path, tmp_path: Path) -> None:
    (tmp_path / "target" / source.name).mkdir(parents=True)
    (tmp_path / "target" / source.name / "own").write_text("kept")
    (tmp_path / "target" / source.name / "tool").write_text("old")
    finished = execworld("fs", "put", "-q", "-w", "local", "-r", str(source), str(tmp_path / "target"))
    assert finished.returncode == 0
    assert (tmp_path / "target" / source.name / "own").read_text() == "kept"
    assert (tmp_path / "target" / source.name / "tool").read_text() == "#!/bin/sh\n"


def test_losses_are_listed_and_the_rest_arrives(execworld: Run, source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
    finished = execworld("fs", "get", "-q", "-w", "local", "-r", str(source), str(tmp_path / "target"))
    assert finished.returncode == 1
    assert f"not copied: {source}/fifo: a fifo cannot be copied".encode() in finished.stderr
    assert f"not copied: {source}/socket: a socket cannot be copied".encode() in finished.stderr
    (source / "fifo").unlink()
    (source / "socket").unlink()
    assert tree(tmp_path / "target") == tree(source)


def test_nothing_is_written_through_a_link_that_is_in_the_way(execworld: Run, tmp_path: Path) -> None:
    """A tree must not reach outside of its target by way of a link there."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("safe")
    source = tmp_path / "source"
    (source / "d").mkdir(parents=True)
    (source / "d" / "f").write_text("evil")
    (source / "g").write_text("evil")
    target = tmp_path / "target" / "source"
    target.mkdir(parents=True)
    (target / "d").symlink_to(outside)
    (target / "g").symlink_to(outside / "f")
    finished = execworld("fs", "get", "-q", "-w", "local", "-r", str(source), str(tmp_path / "target"))
    assert finished.returncode == 1
    assert finished.stderr.count(b"not copied") == 2
    assert (outside / "f").read_text() == "safe"
    assert sorted(os.listdir(outside)) == ["f"]


def test_rights_do_not_travel(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("x")
    (tmp_path / "tool").chmod(0o4755)
    finished = execworld("fs", "get", "-q", "-w", "local", str(tmp_path / "tool"), str(tmp_path / "copy"))
    assert finished.returncode == 0
    assert b"mode 4755 became 0755" in finished.stderr
    assert stat.S_IMODE((tmp_path / "copy").stat().st_mode) == 0o755


def test_single_files(execworld: Run, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("text")
    (tmp_path / "dir").mkdir()
    assert execworld("fs", "put", "-q", "-w", "local", "f", "g", cwd=tmp_path).returncode == 0
    assert (tmp_path / "g").read_text() == "text"
    assert execworld("fs", "put", "-q", "-w", "local", "f", "g", "dir", cwd=tmp_path).returncode == 0
    assert sorted(os.listdir(tmp_path / "dir")) == ["f", "g"]
    assert (
        execworld("fs", "get", "-q", "-w", "local", str(tmp_path / "f"), cwd=tmp_path / "dir").returncode == 0
    )
    for arguments in (
        ("f", "absent/"),
        ("f", "absent/x"),
        ("f", "g", "absent"),
        ("dir", "copy"),
        ("absent", "x"),
    ):
        finished = execworld("fs", "put", "-q", "-w", "local", *arguments, cwd=tmp_path)
        assert finished.returncode == 1, arguments
        assert b"error [FS_" in finished.stderr
    assert sorted(os.listdir(tmp_path)) == ["dir", "f", "g"]


def test_a_transfer_that_is_killed_leaves_whole_files_only(
    start: Start, eventually: Eventually, tmp_path: Path
) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(4 << 30)
    (tmp_path / "target").write_text("old")
    program = start("fs", "put", "-q", "-w", "local", str(tmp_path / "sparse"), str(tmp_path / "target"))
    eventually(lambda: len(os.listdir(tmp_path)) > 2, "it did not begin to write")
    program.send_signal(signal.SIGINT)
    assert program.wait(20) == 130
    assert sorted(os.listdir(tmp_path)) == ["sparse", "target"]
    program = start("fs", "put", "-q", "-w", "local", str(tmp_path / "sparse"), str(tmp_path / "target"))
    eventually(lambda: len(os.listdir(tmp_path)) > 2, "it did not begin to write")
    program.kill()
    program.wait(20)
    assert (tmp_path / "target").read_text() == "old"


def test_removal(execworld: Run, source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "f").write_text("safe")
    (source / "leads out").symlink_to(outside)
    assert execworld("fs", "rm", "-q", "-w", "local", str(source)).returncode == 1
    assert source.exists()
    assert execworld("fs", "rm", "-q", "-w", "local", "-r", str(source)).returncode == 0
    assert not source.exists()
    assert (outside / "f").read_text() == "safe"
    assert execworld("fs", "rm", "-q", "-w", "local", str(source)).returncode == 1
    assert execworld("fs", "rm", "-q", "-w", "local", "-f", str(source)).returncode == 0


def test_the_root_is_not_removed(execworld: Run) -> None:
    for path in ("/", "//", "/.", "/tmp/.."):
        finished = execworld("fs", "rm", "-q", "-w", "local", "-rf", path)
        assert finished.returncode == 1
        assert b"root directory" in finished.stderr


def test_a_wrong_call_is_a_usage_error(execworld: Run) -> None:
    assert execworld("fs", "cp").returncode == 2
    assert execworld("fs", "cat", "-q", "-w", "local").returncode == 2
    assert execworld("fs", "ls", "-w", "loxal").returncode == 125


UNCONFINED = b"execworld: world local: unconfined\n"


def test_progress_is_shown_to_a_person_only(session: OpenSession, tmp_path: Path) -> None:
    (tmp_path / "[bold]f").write_bytes(bytes(1_000_000))
    terminal = session("fs", "put", "-w", "local", str(tmp_path / "[bold]f"), str(tmp_path / "g"))
    assert terminal.wait() == 0
    assert b"[bold" in terminal.output  # cut to the width of the terminal, and not taken for markup
    command = [sys.executable, "-m", "execworld.cli", "fs", "put", "-w", "local", "f", "g"]
    (tmp_path / "f").write_bytes(bytes(1000))
    assert subprocess.run(command, cwd=tmp_path, stderr=subprocess.PIPE).stderr == UNCONFINED
