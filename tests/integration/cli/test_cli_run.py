"""``execworld run``: output, input, exit codes, the JSON object, and nothing left behind."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.integration.cli.conftest import Eventually, Run, Sleeper, Start

LOCAL = ("run", "-w", "local")
FLOOD_BYTES = 1_000_000_000 if os.environ.get("EXECWORLD_FULL") else 200_000_000


def sh(script: str) -> tuple[str, str, str, str]:
    return ("--", "sh", "-c", script)


def document(finished: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(finished.stdout)
    return parsed


# Output and exit codes


def test_streams_are_separate_and_exact(execworld: Run) -> None:
    finished = execworld(*LOCAL, "-q", *sh(r"printf 'out\0\377\n'; printf 'err\n' >&2"))
    assert finished.stdout == b"out\0\xff\n"
    assert finished.stderr == b"err\n"
    assert finished.returncode == 0


@pytest.mark.parametrize("code", [0, 1, 3, 124, 125, 137, 255])
def test_the_exit_code_of_the_command_passes_through(execworld: Run, code: int) -> None:
    assert execworld(*LOCAL, *sh(f"exit {code}")).returncode == code


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_death_by_signal_is_128_and_its_number(execworld: Run, number: int) -> None:
    assert execworld(*LOCAL, *sh(f"kill -{number} $$")).returncode == 128 + number


def test_a_time_limit_is_124_and_ends_the_tree(execworld: Run, sleeper: Sleeper) -> None:
    began = time.monotonic()
    finished = execworld(*LOCAL, "--timeout", "1", *sh(f"sleep {sleeper.seconds} & sleep {sleeper.seconds}"))
    assert finished.returncode == 124
    assert b"note: the time limit of 1 s ended the command" in finished.stderr
    assert 1 <= time.monotonic() - began < 8
    assert not sleeper.alive()


def test_a_time_limit_holds_although_nobody_reads(start: Start, eventually: Eventually) -> None:
    program = start(*LOCAL, "--timeout", "0.5", "--grace", "0.2", "--", "yes")
    eventually(lambda: program.poll() is not None, "the time limit did not end it")
    assert program.returncode == 124


def test_what_cannot_be_started_is_as_in_a_shell(execworld: Run, tmp_path: Path) -> None:
    unknown = execworld(*LOCAL, "--", "no-such-program")
    assert unknown.returncode == 127
    assert b"error [COMMAND_NOT_FOUND]: no-such-program" in unknown.stderr
    (tmp_path / "file").write_text("text")
    assert execworld(*LOCAL, "--", str(tmp_path / "file")).returncode == 126
    assert execworld(*LOCAL, "--", str(tmp_path)).returncode == 126


def test_a_missing_directory_is_125(execworld: Run, tmp_path: Path) -> None:
    finished = execworld(*LOCAL, "--cwd", str(tmp_path / "absent"), "--", "true")
    assert finished.returncode == 125
    assert b"error [WORKING_DIRECTORY_MISSING]" in finished.stderr
    assert b"hint: " in finished.stderr
    (tmp_path / "file").write_text("")
    assert execworld(*LOCAL, "--cwd", str(tmp_path / "file"), "--", "true").returncode == 125


def test_the_directory_is_that_of_the_command(execworld: Run, tmp_path: Path) -> None:
    assert execworld(*LOCAL, "--cwd", str(tmp_path), "--", "pwd").stdout == bytes(tmp_path) + b"\n"
    assert execworld(*LOCAL, "--", "pwd", cwd=tmp_path).stdout == bytes(tmp_path) + b"\n"


def test_what_is_wrong_with_the_call_is_125_too(execworld: Run) -> None:
    """A 2 would be taken for the command's own."""
    for arguments in (
        (*LOCAL, "--no-such-option", "--", "true"),
        (*LOCAL,),
        (*LOCAL, "--timeout", "nan", "--", "true"),
        (*LOCAL, "--timeout", "0", "--", "true"),
        (*LOCAL, "--timeout", "-1", "--", "true"),
        (*LOCAL, "--config", "image", "--", "true"),
        (*LOCAL, "--config", "a=1", "--config", "a=2", "--", "true"),
        (*LOCAL, "--env", "=x", "--", "true"),
        (*LOCAL, "--env", "EXECWORLD_NOT_SET", "--", "true"),
        (*LOCAL, "--json", "--tty", "--", "true"),
        (*LOCAL, "--", ""),
    ):
        finished = execworld(*arguments)
        assert finished.returncode == 125, arguments
        assert finished.stdout == b""


def test_options_after_the_command_are_the_commands(execworld: Run) -> None:
    assert execworld(*LOCAL, "echo", "--json", "-w", "x").stdout == b"--json -w x\n"


# Which world


def test_an_unknown_world_names_the_nearest(execworld: Run) -> None:
    finished = execworld("run", "-w", "loxal", "--", "true")
    assert finished.returncode == 125
    assert b"error [PROVIDER_UNKNOWN]" in finished.stderr
    assert b"did you mean `local`?" in finished.stderr


def test_an_unknown_option_of_the_world_is_refused(execworld: Run) -> None:
    finished = execworld(*LOCAL, "--config", "image=x", "--", "true")
    assert finished.returncode == 125
    assert b"error [CONFIGURATION_INVALID]: world `local` has no option `image`" in finished.stderr


def test_the_variable_names_the_world_and_is_named_when_it_is_wrong(execworld: Run) -> None:
    assert execworld("run", "--", "true", env={"EXECWORLD_WORLD": "local"}).returncode == 0
    finished = execworld("run", "--", "true", env={"EXECWORLD_WORLD": "loxal"})
    assert finished.returncode == 125
    assert b"EXECWORLD_WORLD" in finished.stderr


def test_an_empty_variable_counts_as_unset(execworld: Run) -> None:
    finished = execworld("run", "--", "sh", "-c", "exit 7", env={"EXECWORLD_WORLD": ""})
    without = execworld("run", "--", "sh", "-c", "exit 7")
    assert (finished.returncode, finished.stderr) == (without.returncode, without.stderr)
    assert b"unconfined" not in finished.stderr


def test_an_option_that_overrides_the_variable_says_so(execworld: Run) -> None:
    finished = execworld(*LOCAL, "--", "true", env={"EXECWORLD_WORLD": "docker://user:secret@x"})
    assert finished.returncode == 0
    assert b"note: -w local is used, not EXECWORLD_WORLD=docker://..." in finished.stderr


def test_an_unconfined_world_is_called_so_once(execworld: Run) -> None:
    line = b"execworld: world local: unconfined\n"
    assert execworld(*LOCAL, "--", "true").stderr == line
    assert execworld(*LOCAL, "-q", "--", "true").stderr == b""
    assert execworld(*LOCAL, "--json", "--", "true").stderr == b""


# Input


def test_a_pipe_is_passed_on(execworld: Run) -> None:
    data = os.urandom(20_000_000)
    finished = execworld(*LOCAL, "-q", "--", "cat", stdin=data)
    assert hashlib.sha256(finished.stdout).digest() == hashlib.sha256(data).digest()


def test_a_file_is_passed_on(tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"from a file")
    command = [sys.executable, "-m", "execworld.cli", *LOCAL, "-q", "--", "cat"]
    with (tmp_path / "input").open("rb") as source:
        assert subprocess.run(command, stdin=source, capture_output=True).stdout == b"from a file"


def test_without_input_there_is_none(execworld: Run) -> None:
    assert execworld(*LOCAL, "-q", *sh("cat; echo end")).stdout == b"end\n"
    assert execworld(*LOCAL, "-q", "-n", "--", "cat", stdin=b"unwanted").stdout == b""


def test_a_command_that_reads_nothing_is_no_error(execworld: Run) -> None:
    finished = execworld(*LOCAL, "-q", "--", "true", stdin=bytes(5_000_000))
    assert (finished.returncode, finished.stderr) == (0, b"")


def test_input_that_never_ends_does_not_hold_the_end() -> None:
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "execworld.cli", *LOCAL, "-q", "--", "echo", "done"]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE) as program:
        os.close(reading)
        assert program.communicate(timeout=20)[0] == b"done\n"
    os.close(writing)


# Arguments and environment


@pytest.mark.parametrize(
    "argument", [b"", b"two words", b"a\nb", b"'\"$`\\*", b"\xff\xfe", b"--", "漢字".encode()]
)
def test_arguments_arrive_byte_for_byte(execworld: Run, argument: bytes) -> None:
    assert execworld(*LOCAL, "-q", "--", "printf", "%s", argument).stdout == argument


def test_a_mebibyte_of_arguments(execworld: Run) -> None:
    arguments = ["x" * 1023] * 1024
    assert execworld(*LOCAL, "-q", *sh("echo $#"), *arguments).stdout == b"1023\n"


def test_variables(execworld: Run) -> None:
    finished = execworld(
        *LOCAL,
        "-q",
        "-e",
        "A=x=y",
        "-e",
        "EMPTY=",
        "-e",
        "PASSED",
        *sh('echo "$A|${EMPTY-unset}|$PASSED|${OTHER_SECRET-unset}"'),
        env={"PASSED": "ours", "OTHER_SECRET": "hidden"},
    )
    assert finished.stdout == b"x=y||ours|unset\n"


# Background jobs


def test_a_background_job_does_not_hold_the_end_and_ends_with_the_world(
    execworld: Run, sleeper: Sleeper
) -> None:
    began = time.monotonic()
    finished = execworld(*LOCAL, *sh(f"sleep {sleeper.seconds} & echo done"))
    assert finished.stdout == b"done\n"
    assert finished.returncode == 0
    assert time.monotonic() - began < 10
    assert b"note: processes that the command left in the background end now" in finished.stderr
    assert not sleeper.alive()


# The reader


def test_a_reader_that_leaves_ends_the_command_quietly(start: Start, eventually: Eventually) -> None:
    program = start(*LOCAL, "-q", *sh("echo $$; exec yes"))
    assert program.stdout is not None
    assert program.stderr is not None
    pid = int(program.stdout.readline())
    program.stdout.close()
    eventually(lambda: program.poll() is not None, "it went on without a reader")
    assert program.returncode == 141
    assert program.stderr.read() == b""
    assert not Path(f"/proc/{pid}").exists()


def test_a_closed_output_is_no_crash(execworld: Run, tmp_path: Path) -> None:
    """The next file that is opened would get its number."""
    command = f"exec {sys.executable} -m execworld.cli run -w local -- echo hi"
    for closing in (">&-", "2>&-", "<&-", "<&- >&- 2>&-"):
        finished = subprocess.run(["sh", "-c", f"{command} {closing}"], capture_output=True, cwd=tmp_path)
        assert b"Traceback" not in finished.stderr
        assert finished.returncode == 0, closing
    assert list(tmp_path.iterdir()) == []


def test_a_socket_is_a_stream_as_well() -> None:
    """Some programs start others with sockets in place of pipes."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "execworld.cli", *LOCAL, "-q", *sh("cat; head -c 1000000 /dev/zero")]
    with subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno()) as program:
        theirs.close()
        ours.sendall(b"hello")
        ours.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: ours.recv(65536), b""))
        assert program.wait(20) == 0
    ours.close()
    assert received == b"hello" + bytes(1_000_000)


def test_the_flags_of_our_output_stay_as_they_were() -> None:
    """O_NONBLOCK is shared with whoever started us."""
    reading, writing = os.pipe()
    before = fcntl.fcntl(writing, fcntl.F_GETFL)
    command = [sys.executable, "-m", "execworld.cli", *LOCAL, "-q", "--", "echo", "hi"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writing) as program:
        assert os.read(reading, 100) == b"hi\n"
        assert fcntl.fcntl(writing, fcntl.F_GETFL) == before
        program.wait(20)
    os.close(reading)
    os.close(writing)


@pytest.mark.slow
def test_a_flood_passes_in_bounded_memory(start: Start) -> None:
    """Measured in its own address space: ru_maxrss begins with the memory of whoever forked it."""
    program = start(*LOCAL, "-q", "--", "head", "-c", str(FLOOD_BYTES), "/dev/zero")
    assert program.stdout is not None
    received = peak_kib = 0
    while chunk := program.stdout.read(1 << 20):
        received += len(chunk)
        state = Path(f"/proc/{program.pid}/status").read_text()
        peak_kib = max(peak_kib, int(state.partition("VmHWM:")[2].split()[0]) if "VmHWM:" in state else 0)
    assert (received, program.wait()) == (FLOOD_BYTES, 0)
    assert 0 < peak_kib < (34 + 64) * 1024  # what `run -- true` takes, and what it may grow by


def test_a_slow_reader_slows_the_command_and_grows_no_memory(start: Start, eventually: Eventually) -> None:
    program = start(*LOCAL, "-q", *sh("echo go; exec head -c 300000000 /dev/zero"))
    assert program.stdout is not None
    assert program.stdout.readline() == b"go\n"

    def resident_kib() -> int:
        return (
            int(Path(f"/proc/{program.pid}/statm").read_text().split()[1])
            * os.sysconf("SC_PAGE_SIZE")
            // 1024
        )

    def blocked() -> bool:
        return "S (sleeping)" in Path(f"/proc/{program.pid}/status").read_text()

    eventually(blocked, "it never waited for us")
    assert resident_kib() < 150 * 1024
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 143


# Signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(
    start: Start, eventually: Eventually, sleeper: Sleeper, number: int
) -> None:
    program = start(*LOCAL, *sh(f"setsid sleep {sleeper.seconds} & sleep {sleeper.seconds}"))
    eventually(sleeper.alive, "the command did not start")
    program.send_signal(number)
    assert program.wait(20) == 128 + number
    assert not sleeper.alive()


def test_a_second_ctrl_c_does_not_cut_the_cleanup_short(
    start: Start, eventually: Eventually, sleeper: Sleeper
) -> None:
    script = f"trap '' TERM INT; echo ready; while :; do sleep {sleeper.seconds}; done"
    program = start(*LOCAL, "-q", "--grace", "1", *sh(script))
    assert program.stdout is not None
    assert program.stderr is not None
    assert program.stdout.readline() == b"ready\n"
    eventually(sleeper.alive, "the command did not start")
    program.send_signal(signal.SIGINT)
    answers: list[bytes] = []
    reader = threading.Thread(target=lambda: answers.append(program.stderr.readline()))  # type: ignore[union-attr]  # set by PIPE
    reader.start()
    while reader.is_alive():
        program.send_signal(signal.SIGINT)
        reader.join(0.1)
    assert b"still cleaning up" in answers[0]
    assert program.wait(20) == 130
    assert not sleeper.alive()


def test_an_ignored_hangup_stays_ignored() -> None:
    """nohup(1)."""
    command = ["nohup", sys.executable, "-m", "execworld.cli", *LOCAL, *sh("echo ready; read x; echo end")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        assert program.stdout.readline() == b"ready\n"
        program.send_signal(signal.SIGHUP)
        program.stdin.write(b"x\n")
        program.stdin.close()
        assert program.stdout.read() == b"end\n"
        assert program.wait(20) == 0


# JSON


def test_the_object_of_a_command(execworld: Run) -> None:
    finished = execworld(*LOCAL, "--json", *sh("echo out; echo err >&2; exit 3"))
    facts = document(finished)
    assert finished.returncode == 3
    assert (facts["status"], facts["exit_code"], facts["signal"], facts["error"]) == ("exited", 3, None, None)
    assert (facts["stdout"]["text"], facts["stderr"]["text"]) == ("out\n", "err\n")
    assert facts["enforcement"]["kill.tree"]["state"] == "partial"
    assert facts["world_id"].startswith("local:")


def test_the_object_keeps_bytes_that_are_no_text(execworld: Run) -> None:
    facts = document(execworld(*LOCAL, "--json", *sh(r"printf '\377\0'")))
    assert base64.b64decode(facts["stdout"]["base64"]) == b"\xff\0"
    assert "text" not in facts["stdout"]


def test_the_object_says_what_was_dropped(execworld: Run) -> None:
    output = document(execworld(*LOCAL, "--json", *sh("head -c 3000000 /dev/zero | tr '\\0' x; echo END")))[
        "stdout"
    ]
    assert output["truncated"]
    assert output["total_bytes"] == 3_000_004
    assert f"[{output['dropped_bytes']} bytes" in output["text"]
    assert output["text"].endswith("END\n")


def test_the_object_tells_ends_apart(execworld: Run) -> None:
    """Exit 124 or 137 of a program is not our time limit and no signal."""

    def facts(*arguments: str) -> tuple[int, str, int | None, int | None, str | None]:
        finished = execworld("run", *arguments)
        known = document(finished)
        code = known["error"]["code"] if known["error"] else None
        return finished.returncode, known["status"], known["exit_code"], known["signal"], code

    local = ("-w", "local", "--json")
    assert facts(*local, *sh("exit 124")) == (124, "exited", 124, None, None)
    assert facts(*local, "--timeout", "0.3", "--", "sleep", "60") == (124, "timed-out", None, 15, None)
    assert facts(*local, *sh("exit 137")) == (137, "exited", 137, None, None)
    assert facts(*local, *sh("kill -9 $$")) == (137, "signalled", None, 9, None)
    assert facts(*local, *sh("exit 127")) == (127, "exited", 127, None, None)
    assert facts(*local, "--", "no-such-program") == (127, "error", None, None, "COMMAND_NOT_FOUND")
    assert facts(*local, *sh("exit 125")) == (125, "exited", 125, None, None)
    assert facts("-w", "loxal", "--json", "--", "x") == (125, "error", None, None, "PROVIDER_UNKNOWN")
    assert facts(*local, "--config", "a=b", "--", "x") == (125, "error", None, None, "CONFIGURATION_INVALID")


def test_the_object_of_an_interruption(start: Start, eventually: Eventually, sleeper: Sleeper) -> None:
    program = start(*LOCAL, "--json", "--", "sleep", sleeper.seconds)
    eventually(sleeper.alive, "the command did not start")
    program.send_signal(signal.SIGINT)
    output, _ = program.communicate(timeout=20)
    facts = json.loads(output)
    assert (program.returncode, facts["status"], facts["interrupted_by"]) == (130, "interrupted", 2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_object_of_an_interruption_tells_how_the_command_ended(
    start: Start, eventually: Eventually, sleeper: Sleeper, number: signal.Signals
) -> None:
    program = start(*LOCAL, "--json", *sh(f"echo before; sleep {sleeper.seconds}"))
    eventually(sleeper.alive, "the command did not start")
    program.send_signal(number)
    facts = json.loads(program.communicate(timeout=20)[0])
    assert (facts["status"], facts["interrupted_by"], facts["error"]) == ("interrupted", number, None)
    assert (facts["exit_code"], facts["signal"], facts["cancelled"]) == (None, signal.SIGTERM, True)
    assert facts["stdout"]["text"] == "before\n"
    assert facts["tree"]["gone"]
    assert facts["usage"]["peak_memory_bytes"] > 0
    assert facts["enforcement"]["kill.tree"]["state"] == "partial"
    assert facts["world_id"].startswith("local:")


def test_what_a_command_says_when_it_is_told_to_end_is_shown(start: Start) -> None:
    program = start(
        *LOCAL, "-q", *sh("trap 'echo farewell; exit 3' TERM; echo ready; while :; do sleep 0.1; done")
    )
    assert program.stdout is not None
    assert program.stdout.readline() == b"ready\n"
    program.send_signal(signal.SIGINT)
    assert program.communicate(timeout=20)[0] == b"farewell\n"
    assert program.returncode == 130


def test_the_object_of_a_command_that_did_not_start_names_its_world(execworld: Run) -> None:
    facts = document(execworld(*LOCAL, "--json", "--", "no-such-program"))
    assert facts["world_id"].startswith("local:")
    assert facts["enforcement"]["kill.tree"]["state"] == "partial"
    assert facts["exit_code"] is None


def test_the_object_is_json_for_every_reader(execworld: Run) -> None:
    """A lone surrogate is refused by many: names that are not UTF-8 are escaped, and given as bytes beside it."""
    finished = execworld(*LOCAL, "--json", "--", b"no-such-\xff-program")
    assert b"\\ud" not in finished.stdout
    assert "no-such-\\xff-program" in document(finished)["error"]["message"]


# The program itself


def test_version_and_help(execworld: Run) -> None:
    assert execworld("--version").stdout.startswith(b"execworld 0.")
    assert b"Examples:" in execworld("run", "--help").stdout
    assert execworld("runx").returncode == 2


def test_a_traceback_is_shown_only_when_asked_for(execworld: Run) -> None:
    command = [sys.executable, "-m", "execworld.cli", *LOCAL, "--", "no-such-program"]
    finished = subprocess.run(command, capture_output=True, env={**os.environ, "EXECWORLD_DEBUG": "1"})
    assert b"Traceback" in finished.stderr
    assert b"Traceback" not in execworld(*LOCAL, "--", "no-such-program", env={"EXECWORLD_DEBUG": ""}).stderr


WORLDS = pytest.mark.parametrize("world", ["local", pytest.param("landlock", marks=pytest.mark.landlock)])

EXAMINED_RUN = """
import dataclasses, json, sys
from execworld.cli.main import main

def compiled_one_by_one():
    for name, module in list(sys.modules.items()):
        for cls in list(vars(module).values()) if name.startswith("execworld.") else ():
            if isinstance(cls, type) and cls.__module__ == name and dataclasses.is_dataclass(cls):
                if cls.__eq__.__module__ == name:
                    yield f"{name}.{cls.__name__}"

try:
    main(["run", "-q", "-w", sys.argv[1], "--", "true"])
finally:
    print(json.dumps({"modules": sorted(sys.modules), "classes": sorted(compiled_one_by_one())}))
"""


def examined_run(world: str) -> dict[str, list[str]]:
    """What a whole run imported, and the dataclasses in it that share no methods with others."""
    command = [sys.executable, "-c", EXAMINED_RUN, world]
    examined: dict[str, list[str]] = json.loads(
        subprocess.run(command, capture_output=True, check=True).stdout
    )
    return examined


@WORLDS
def test_a_run_imports_nothing_that_it_does_not_need(world: str) -> None:
    """Each would take a noticeable part of the time that a whole run may take, some of them a third."""
    modules = set(examined_run(world)["modules"])
    assert "execworld.cli.run" in modules
    unwanted = {
        "pydantic",
        "rich",
        "yaml",
        "trio",
        "docker",
        "asyncssh",
        "paramiko",
        "e2b",
        "httpx",
        "importlib.metadata",
        "email",
        "zipfile",
    }
    unused = {
        "execworld.cli.fs",
        "execworld.cli.doctor",
        "execworld.cli.config",
        "execworld.cli.check",
        "execworld.config",
        "execworld.seams.floor",
        "execworld.cli.terminals",
        "execworld.testing",
        "execworld.sync",
        "execworld.machine.forwarding",
        "execworld.machine.fs",
    }
    assert modules.isdisjoint(unwanted | unused)


@WORLDS
def test_hardly_any_class_of_a_run_has_its_methods_compiled_one_by_one(world: str) -> None:
    """Over a quarter of the start went there. Left are what changes, and what pydantic reads."""
    allowed = {
        "execworld.cli.policies.PolicyChoice",
        "execworld.machine.batch.Batch",
        f"execworld.providers.{world}.provider.{world.capitalize()}Config",
    }
    assert set(examined_run(world)["classes"]) <= allowed
