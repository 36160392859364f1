"""Commands: what arrives in them, what is known of their end, their streams, terminals and signals."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from . import driver as d
from . import records as r
from .driver import DEADLINE_S, Warden
from .records import MERGE, NULL, PIPE, Ref, Step, sh, u64

SETUP, IN_DIRECTORY, EXEC = range(3)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another id")


def text(warden: Warden, op: r.Op) -> str:
    """Output of a command that succeeds."""
    handle, _ = warden.spawn(op)
    output = warden.read_all(handle)
    assert warden.wait_exit(handle).raw == 0, output
    warden.status(d.RELEASE, u64(handle))
    return output.decode()


def test_arguments_and_environment_arrive_byte_for_byte(warden: Warden, tmp_path: Path) -> None:
    odd = bytes(range(1, 256))
    program = b"import sys,os; b=os.fsencode; print([[b(a) for a in sys.argv[1:]], dict(os.environb), os.getcwdb()])"
    folder = os.fsencode(tmp_path) + b"/d \n\xff"
    os.mkdir(folder)
    handle, _ = warden.spawn(
        r.op_spawn(
            os.fsencode(sys.executable),
            [b"python", b"-ISc", program, odd, b"", b"$HOME `x` 'y'"],
            {b"ODD": odd, b"EMPTY": b"", b"\xfe": b"a=b"},
            folder,
        )
    )
    shown = eval(warden.read_all(handle))
    assert shown == [
        [odd, b"", b"$HOME `x` 'y'"],
        {b"ODD": odd, b"EMPTY": b"", b"\xfe": b"a=b"},
        os.path.realpath(folder),
    ] or {key: shown[1][key] for key in (b"ODD", b"EMPTY", b"\xfe")} == {
        b"ODD": odd,
        b"EMPTY": b"",
        b"\xfe": b"a=b",
    }
    assert shown[0] == [odd, b"", b"$HOME `x` 'y'"]


@pytest.mark.parametrize(
    ("op", "status", "stage"),
    [
        (r.op_spawn(b"/nonexistent", [b"x"]), errno.ENOENT, EXEC),
        (r.op_spawn(b"/etc/passwd", [b"x"]), errno.EACCES, EXEC),
        (r.op_spawn(b"/bin/true", [b"x"], cwd=b"/nonexistent"), errno.ENOENT, IN_DIRECTORY),
        (r.op_spawn(b"/bin/true", [b"x"], cwd=b"/etc/passwd"), errno.ENOTDIR, IN_DIRECTORY),
        (r.op_spawn(b"/bin/true", []), errno.EINVAL, SETUP),
        (r.op_spawn(b"/bin/true", [b"a\0b"]), errno.EINVAL, SETUP),
        (r.op_spawn(b"/bin/true", [b"x"], {b"A=B": b""}), errno.EINVAL, SETUP),
        (r.op_spawn(b"/bin/true", [b"x"], {b"": b""}), errno.EINVAL, SETUP),
        (r.op_spawn(b"true", [b"x"]), errno.EINVAL, SETUP),
        (r.op_spawn(b"/bin/true", [b"x"], cwd=b"."), errno.EINVAL, SETUP),
        (r.op_spawn(b"/bin/true", [b"x"], stdin=MERGE), errno.EINVAL, SETUP),
        (r.op_spawn(b"/bin/true", [b"x"], limits=[(999, 1, 1)]), errno.EINVAL, SETUP),
        (r.op_spawn(b"/bin/true", [b"x", b"y" * 3_000_000]), errno.E2BIG, EXEC),
    ],
)
def test_a_failed_start_is_an_error_of_the_step(warden: Warden, op: r.Op, status: int, stage: int) -> None:
    before = warden.descriptors()
    outcome = warden.batch(op)
    assert (outcome.status, outcome.detail) == (status, stage)
    assert warden.streams == {}
    assert warden.descriptors() <= before + 1  # the group for a command


def test_a_script_without_an_interpreter_line_is_a_format_error(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo hi\n")
    (tmp_path / "script").chmod(0o755)
    outcome = warden.batch(r.op_spawn(os.fsencode(tmp_path / "script"), [b"x"]))
    assert (outcome.status, outcome.detail) == (errno.ENOEXEC, EXEC)


def test_only_three_descriptors_and_no_signal_state_are_inherited(warden: Warden) -> None:
    warden.run(r.op_open(b"/etc/passwd"))
    others = [warden.spawn(sh("cat", stdin=PIPE))[0] for _ in range(3)]
    out = text(warden, sh("ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"))
    listed, _, status = out.partition("Sig")
    assert listed.split() == ["0", "1", "2", "3"]  # the last one is the directory that ls reads
    values = dict(line.split(":\t") for line in ("Sig" + status).splitlines())
    assert int(values["SigBlk"], 16) == 0
    assert int(values["SigIgn"], 16) == 0
    for handle in others:
        warden.status(d.CLOSE_INPUT, u64(handle))
        warden.wait_gone(handle)


def test_each_command_leads_a_session(warden: Warden) -> None:
    handle, pid = warden.spawn(sh("read x < /dev/null; cut -d' ' -f1,5,6 /proc/$$/stat"))
    assert warden.read_all(handle).split() == [b"%d" % pid] * 3


def test_limits_umask_and_open_files(warden: Warden) -> None:
    infinity = 2**64 - 1
    op = sh(
        "ulimit -Sn; ulimit -Hn; ulimit -Sf; umask", limits=[(7, 50, 60), (1, 512 * 8, infinity)], umask=0o027
    )
    assert text(warden, op).split() == ["50", "60", "8", "0027"]
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert text(warden, sh("ulimit -Sn")).strip() == str(soft)


@needs_root
def test_ids(warden: Warden) -> None:
    op = sh("id -u; id -g; id -G", uid=1234, gid=5678, groups=[5678, 7, 8])
    assert text(warden, op).split() == ["1234", "5678", "5678", "7", "8"]
    assert text(warden, sh("id -G", uid=1234, gid=99)).split() == ["99"]
    outcome = warden.batch(sh("true", uid=1234, cwd=b"/root"))
    if os.stat("/root").st_mode & 0o005 == 0:
        assert (outcome.status, outcome.detail) == (errno.EACCES, IN_DIRECTORY)


def test_the_end_is_told_raw(warden: Warden) -> None:
    handle, _ = warden.spawn(sh("exit 124"))
    assert warden.wait_exit(handle).raw == 124 << 8
    handle, _ = warden.spawn(sh("kill -SEGV $$"))
    assert warden.wait_exit(handle).raw & 0x7F == signal.SIGSEGV
    handle, _ = warden.spawn(sh("i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done"))
    ended = warden.wait_exit(handle)
    assert ended.has & 1
    assert ended.user_us > 1000
    assert ended.peak > 100_000


def test_redirects(warden: Warden) -> None:
    script = "echo out; echo err >&2; read x || echo end"
    handle, _ = warden.spawn(sh(script))
    assert (warden.read_all(handle, 1), warden.read_all(handle, 2)) == (b"out\nend\n", b"err\n")
    handle, _ = warden.spawn(sh(script, stderr=MERGE))
    assert warden.read_all(handle, 1) == b"out\nerr\nend\n"
    warden.wait_gone(handle)
    assert (handle, 2) not in warden.streams
    handle, _ = warden.spawn(sh(script, stdout=NULL, stderr=NULL))
    warden.wait_gone(handle)
    assert (handle, 1) not in warden.streams
    handle, _ = warden.spawn(sh(script, stdout=NULL, stderr=MERGE))
    warden.wait_gone(handle)
    assert (handle, 1) not in warden.streams


def test_input_is_written_in_order_and_then_ends(warden: Warden) -> None:
    handle, _ = warden.spawn(sh("sleep 0.2; cat", stdin=PIPE))
    data = os.urandom(120_000)
    numbers = [
        warden.request(d.SEND, u64(handle) + data[at : at + 30_000]) for at in range(0, len(data), 30_000)
    ]
    numbers.append(warden.request(d.CLOSE_INPUT, u64(handle)))
    assert [warden.reply(number).take("H") for number in numbers] == [0] * 5
    assert warden.read_all(handle) == data
    assert warden.send(handle, b"x") == errno.EPIPE
    assert warden.status(d.CLOSE_INPUT, u64(handle)) == 0
    handle, _ = warden.spawn(sh("cat"))
    assert warden.send(handle, b"x") == errno.EBADF


def test_a_reader_that_is_gone_is_told(warden: Warden) -> None:
    """INPUT_CLOSED comes by itself, whatever is written meanwhile, and in no fixed order with it."""
    handle, _ = warden.spawn(sh("exec <&-; echo closed; sleep 900", stdin=PIPE))
    stream = warden.stream(handle)
    warden.until(lambda: bool(stream.data), "no output")
    warden.until(lambda: handle in warden.input_closed, "nothing is said of the input")
    assert warden.input_closed == {handle: errno.EPIPE}
    assert warden.send(handle, b"x") == errno.EPIPE
    warden.kill_tree(handle)


@pytest.mark.slow
def test_no_send_is_lost_when_the_reader_is_seen_to_be_gone(warden: Warden) -> None:
    """Who has read what a command wrote after it had closed its input gets EPIPE with the next SEND: nothing in the
    warden holds the input open. Many commands, because what could hold it is a race at their start."""
    answers: list[int] = []
    for _ in range(200):
        handle, _ = warden.spawn(sh("exec <&-; echo closed; sleep 900", stdin=PIPE))
        stream = warden.stream(handle)
        warden.until(lambda stream=stream: bool(stream.data), "no output")  # type: ignore[misc]  # bound at once
        answers.append(warden.send(handle, b"x"))
        warden.kill_tree(handle)
    assert answers == [errno.EPIPE] * 200


def test_a_waiting_send_can_be_cancelled(warden: Warden) -> None:
    handle, _ = warden.spawn(sh("sleep 900", stdin=PIPE))
    number = warden.request(d.SEND, u64(handle) + bytes(131072))
    closing = warden.request(d.CLOSE_INPUT, u64(handle))
    assert warden.status(d.PING) == 0
    assert number not in warden.replies
    warden.post(d.CANCEL, 0, u64(number))
    assert warden.reply(number).take("H") == errno.ECANCELED
    assert warden.reply(closing).take("H") == 0
    warden.kill_tree(handle)


def test_a_send_waiting_at_the_end_of_the_reader_fails(warden: Warden) -> None:
    handle, _ = warden.spawn(sh("sleep 0.3", stdin=PIPE))
    number = warden.request(d.SEND, u64(handle) + bytes(131072))
    assert warden.reply(number).take("H") == errno.EPIPE


def test_the_position_of_the_end_of_the_leader(warden: Warden) -> None:
    handle, _ = warden.spawn(sh("(sleep 0.3; echo later) & printf 12345; printf 678 >&2"))
    ended = warden.wait_exit(handle)
    assert ended.output == (5, 3)
    assert ended.tree_alive
    assert warden.read_all(handle) == b"12345later\n"


def test_unread_output_counts(tmp_path: Path) -> None:
    with Warden(credit=10, floor=10, give_back=False) as warden:
        handle, _ = warden.spawn(sh("printf '%050d' 7"))
        assert warden.wait_exit(handle).output == (50, 0)
        assert len(warden.stream(handle).data) == 10
        warden.credit(0, [(handle, 1, 100)])
        assert len(warden.read_all(handle)) == 50
        warden.close()


def test_signals(warden: Warden, flags: int) -> None:
    handle, _ = warden.spawn(sh("trap 'echo got; exit 5' USR1; echo ready; while :; do sleep 0.05; done"))
    stream = warden.stream(handle)
    warden.until(lambda: b"ready" in stream.data, "not ready")
    assert warden.signal(handle, 0) == (0, 1)
    assert warden.signal(handle, signal.SIGUSR1) == (0, 1)
    assert warden.wait_exit(handle).raw == 5 << 8
    warden.wait_gone(handle)
    assert warden.signal(handle, signal.SIGUSR1) == (0, 0)
    assert warden.signal(handle, signal.SIGUSR1, d.TREE) == (0, 0)
    assert warden.signal(handle, 65)[0] == errno.EINVAL
    assert warden.signal(handle, 1, d.FOREGROUND_GROUP)[0] == errno.ENOTTY
    assert warden.signal(handle + 1, 1)[0] == errno.EBADF


def test_a_signal_to_the_tree_reaches_every_session(warden: Warden) -> None:
    handle, _ = warden.spawn(sh("setsid sleep 900 & setsid sleep 900 & echo ready; sleep 900"))
    stream = warden.stream(handle)
    warden.until(lambda: b"ready" in stream.data, "not ready")
    deadline = time.monotonic() + DEADLINE_S
    while warden.signal(handle, 0, d.TREE) != (0, 4):
        assert time.monotonic() < deadline
    assert warden.signal(handle, signal.SIGTERM, d.TREE) == (0, 4)
    warden.wait_gone(handle)


def test_a_failed_batch_kills_what_it_started(warden: Warden) -> None:
    outcome = warden.batch(sh("sleep 900"), r.op_stat(b"/nonexistent"))
    assert outcome.status == errno.ENOENT
    handle, pid = r.pair(outcome[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert warden.signal(handle, 0)[0] == errno.EBADF


def test_a_spawn_uses_what_earlier_steps_found(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    results = warden.run(
        r.op_real_path(os.fsencode(tmp_path / "link")),
        r.op_find(b"pwd", [b"/bin", b"/usr/bin"]),
        r.op_spawn(Ref(1), [b"pwd"], cwd=Ref(0)),
    )
    handle, _ = r.pair(results[2])
    assert warden.read_all(handle) == os.fsencode(os.path.realpath(tmp_path / "real")) + b"\n"


def test_a_released_process_goes_on_and_its_output_is_thrown_away(warden: Warden, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    handle, _ = warden.spawn(sh(f"head -c 1000000 /dev/zero; echo done > {mark}; sleep 900"))
    assert warden.status(d.RELEASE, u64(handle)) == 0
    assert warden.status(d.RELEASE, u64(handle)) == 0
    deadline = time.monotonic() + DEADLINE_S
    while not mark.exists():
        assert time.monotonic() < deadline
        assert warden.status(d.PING) == 0
    assert warden.signal(handle, 0)[0] == errno.EBADF
    assert handle not in warden.exits


# ---- terminals


def terminal(script: str, **options: object) -> r.Op:
    return sh(script, terminal=(33, 77), **options)


def foreground(warden: Warden, handle: int) -> tuple[int, int, bool]:
    reader = warden.call(d.FOREGROUND, u64(handle))
    status = reader.take("H")
    if status:
        return status, 0, False
    present, group, waits = reader.take("B"), reader.take("i"), reader.take("B")
    return status, group if present else 0, bool(waits)


def test_a_terminal_has_its_size_before_the_program_sees_it(warden: Warden) -> None:
    handle, pid = warden.spawn(
        terminal("stty size; tty > /dev/tty; cut -d' ' -f1,5,6,8 /proc/$$/stat; test -t 0 && test -t 2")
    )
    lines = warden.read_all(handle).split(b"\r\n")
    assert lines[0] == b"33 77"
    assert lines[1].startswith(b"/dev/pts/")
    assert lines[2].split()[:3] == [b"%d" % pid] * 3
    assert warden.wait_exit(handle).raw == 0


def test_resize_reaches_the_foreground_group(warden: Warden) -> None:
    handle, _ = warden.spawn(
        terminal("trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done")
    )
    stream = warden.stream(handle)
    warden.until(lambda: b"ready" in stream.data, "not ready")
    assert warden.status(d.RESIZE, u64(handle) + r.u16(5) + r.u16(6)) == 0
    assert warden.read_all(handle) == b"ready\r\n5 6\r\n"
    pipe, _ = warden.spawn(sh("sleep 900"))
    assert warden.status(d.RESIZE, u64(pipe) + r.u16(5) + r.u16(6)) == errno.ENOTTY
    assert foreground(warden, pipe)[0] == errno.ENOTTY
    warden.kill_tree(pipe)


@pytest.mark.parametrize(
    ("script", "waits"),
    [
        ("echo ready; read x", True),
        ("echo ready; exec sleep 900", False),
        ("echo ready; read x < /proc/self/fd/0", True),
        ("echo ready; sleep 900 | cat", False),
        ("select.select([0], [], [], 900)", True),
        ("select.select([], [], [], 900)", False),
        ("p = select.poll(); p.register(0, select.POLLIN); p.poll()", True),
        ("p = select.poll(); p.register(0, select.POLLOUT | select.POLLERR); time.sleep(900)", False),
        ("e = select.epoll(); e.register(0, select.EPOLLIN); e.poll()", True),
        ("threading.Thread(target=os.read, args=(0, 1), daemon=True).start(); time.sleep(900)", True),
    ],
)
def test_waiting_for_input_is_proven_or_denied(warden: Warden, script: str, waits: bool) -> None:
    if not script.startswith("echo"):
        script = f"import os, select, threading, time; print('ready', flush=True); {script}"
        argv = [os.fsencode(sys.executable), b"-ISc", script.encode()]
        op = r.op_spawn(os.fsencode(sys.executable), argv, terminal=(33, 77))
    else:
        op = terminal(script)
    handle, pid = warden.spawn(op)
    stream = warden.stream(handle)
    warden.until(lambda: b"ready" in stream.data, "not ready")
    deadline = time.monotonic() + (DEADLINE_S if waits else 0.3)
    while True:
        status, group, proven = foreground(warden, handle)
        assert status == 0
        assert group == pid
        assert waits or not proven
        if proven or (time.monotonic() > deadline and not waits):
            break
        assert time.monotonic() < deadline
    warden.kill_tree(handle)
    assert foreground(warden, handle) == (0, 0, False)


def test_input_of_a_terminal_and_its_foreground_signal(warden: Warden) -> None:
    handle, pid = warden.spawn(
        terminal("read x; echo got $x; trap 'echo INT; exit 4' INT; echo again; while :; do sleep 0.05; done")
    )
    stream = warden.stream(handle)
    assert warden.send(handle, b"abc\r") == 0
    warden.until(lambda: b"got abc\r\nagain" in stream.data, "no answer")
    assert warden.status(d.CLOSE_INPUT, u64(handle)) == 0
    assert warden.signal(handle, signal.SIGKILL, d.FOREGROUND_GROUP)[0] == errno.EPERM
    assert warden.signal(handle, signal.SIGINT, d.FOREGROUND_GROUP) == (0, pid)
    assert warden.wait_exit(handle).raw == 4 << 8
    assert warden.send(handle, b"x") == errno.EPIPE
    assert warden.signal(handle, 1, d.FOREGROUND_GROUP)[0] == errno.ESRCH


@pytest.mark.parametrize("size", [10, 70_000, 1_000_000])
def test_a_terminal_ends_with_its_leader_behind_all_that_it_wrote(warden: Warden, size: int) -> None:
    """Although a job in the background goes on holding the terminal."""
    script = f"trap '' HUP; sleep 900 & head -c {size} /dev/zero | tr '\\0' x; printf end"
    handle, _ = warden.spawn(terminal(script))
    output = warden.read_all(handle)
    ended = warden.wait_exit(handle)
    assert output == b"x" * size + b"end"
    assert ended.output == (size + 3, 0)
    assert ended.tree_alive
    assert warden.kill_tree(handle).gone


def test_a_terminal_whose_job_writes_for_ever_ends(warden: Warden) -> None:
    handle, _ = warden.spawn(terminal("trap '' HUP; yes & sleep 0.1"))
    output = warden.read_all(handle)
    assert warden.wait_exit(handle).output == (len(output), 0)
    assert warden.kill_tree(handle).gone


def test_many_terminals_come_and_go(warden: Warden) -> None:
    before = warden.descriptors()
    for _ in range(50):
        handle, _ = warden.spawn(terminal("echo hi"))
        assert warden.read_all(handle) == b"hi\r\n"
        warden.wait_gone(handle)
        assert warden.status(d.RELEASE, u64(handle)) == 0
    assert warden.status(d.PING) == 0
    assert warden.descriptors() <= before + 2  # of the supervisor that waits for the next one


# ---- many


def test_a_thousand_commands_at_once(warden: Warden) -> None:
    numbers = [warden.submit(sh(f"echo {index}; exec sleep 900")) for index in range(1000)]
    handles: list[int] = []
    for number in numbers:
        outcome = warden.outcome(number)
        assert outcome.status == 0, os.strerror(outcome.status)
        handle, _ = r.pair(outcome[0])
        handles.append(handle)
    for index, handle in enumerate(handles):
        stream = warden.stream(handle)
        warden.until(lambda stream=stream: b"\n" in stream.data, "no output")  # type: ignore[misc]  # bound at once
        assert stream.data == b"%d\n" % index
    for handle in handles:
        assert warden.kill_tree(handle).gone


def test_a_tolerated_failure_of_a_spawn(warden: Warden) -> None:
    outcome = warden.batch(
        Step(r.op_spawn(b"/nonexistent", [b"x"]), tolerate=(errno.ENOENT,)), r.op_stat(b"/")
    )
    assert outcome.status == 0
    assert outcome[0] == r.Failure(errno.ENOENT, EXEC)
