"""Handshake, violations, lease, end."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from . import driver as d
from . import records as r
from .driver import BINARY, Warden
from .records import Reader, Ref, op_find, sh, u16, u32, u64

PREAMBLE = b"EXECWORLD-HOST\r\n"


def ended_with(warden: Warden) -> int:
    """Reason of the ENDING that came before the warden went."""
    assert warden.wait_process() == 1
    assert warden.ending is not None
    return warden.ending[0]


def test_facts() -> None:
    environment = {"HOME": "/home/x", "A": "1=2", "TMPDIR": "/nonexistent", "PATH": "/bin"}
    with Warden(environment=environment) as warden:
        facts = warden.facts
        assert facts is not None
        again = warden.call(d.FACTS)
        assert again.take("H") == 0
        for reader in (facts, again):
            uname = os.uname()
            assert reader.take("H") == d.VERSION
            assert len(reader.blob()) in (7, 16)
            assert [reader.take("I"), reader.take("I"), reader.take("H"), reader.take("I")] == [
                1 << 20,
                1 << 24,
                1024,
                131072,
            ]
            assert reader.blob().decode() == uname.machine
            assert reader.blob().decode() == uname.release
            assert reader.blob().decode() == uname.nodename
            assert reader.blob().decode() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            assert reader.take("Q") == os.stat("/proc/self/ns/pid").st_ino
            assert reader.take("Q") == int(Path("/proc/1/stat").read_text().rpartition(")")[2].split()[19])
            assert reader.take("i") == warden.pid
            umask = os.umask(0)
            os.umask(umask)
            assert [reader.take("I"), reader.take("I"), reader.take("I")] == [
                os.geteuid(),
                os.getegid(),
                umask,
            ]
            reader.blob()
            assert reader.blob() == b"/home/x"
            assert reader.blob() == os.getcwdb()
            roots = [reader.blob() for _ in range(reader.take("I"))]
            assert b"/tmp" in roots
            assert b"/nonexistent" not in roots
            pairs = {reader.blob(): reader.blob() for _ in range(reader.take("I"))}
            assert pairs == {key.encode(): value.encode() for key, value in environment.items()}
            assert abs(reader.take("q") - time.time_ns()) < 60 * 10**9
            assert reader.take("B") in (1, 2, 3)
            assert reader.take("H") < 100
            for _ in range(3):
                reader.take("I")
            assert reader.blob().startswith(b"/")
            assert reader.done
        warden.close()


@pytest.mark.parametrize("name", ["gone", "gone (deleted)"])
def test_a_removed_directory_is_still_named(tmp_path: Path, name: str) -> None:
    """What is relative to it would mean another place if the facts named one that exists."""
    gone = tmp_path / name

    def enter_and_remove() -> None:
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()

    with Warden(preexec=enter_and_remove) as warden:
        assert warden.facts is not None
        path = os.fsencode(gone)
        assert u32(len(path)) + path in bytes(warden.facts.data)


def test_nothing_is_waited_for_in_the_handshake(tmp_path: Path) -> None:
    """The host may send requests behind its HELLO, in one piece."""
    with Warden(hello=False) as warden:
        batch = r.encode_batch([r.op_stat(b"/")])
        hello = warden.hello(1000, 1000, 1000, 0)
        warden.opcodes[5] = [9]
        warden.write(PREAMBLE + warden.frame(d.HELLO, 0, hello) + warden.frame(d.BATCH, 5, batch))
        assert warden.outcome(5).status == 0
        warden.close()


def test_a_longer_hello_of_a_later_build_is_understood() -> None:
    with Warden(hello=False) as warden:
        warden.write(PREAMBLE + warden.frame(d.HELLO, 0, warden.hello(1000, 1000, 1000, 0) + b"future"))
        assert warden.status(d.PING) == 0
        warden.close()


def test_another_version_is_refused() -> None:
    with Warden(hello=False) as warden:
        warden.write(
            PREAMBLE + warden.frame(d.HELLO, 0, warden.hello(1000, 1000, 1000, 0, version=d.VERSION + 1))
        )
        assert ended_with(warden) == 2


VIOLATIONS = {
    "garbage": b"GET / HTTP/1.0\r\n\r\n",
    "long": u32((1 << 20) + 1) + bytes(12),
    "type": Warden.frame(0x7F, 1, b""),
    "type-of-the-warden": Warden.frame(d.REPLY, 1, b""),
    "flags": Warden.frame(d.PING, 1, b"", 2),
    "zero": u32(0) + bytes([d.PING, 0, 1, 0]) + u64(1),
    "more": Warden.frame(d.PING, 1, b"", 1),
    "second-hello": Warden.frame(d.HELLO, 0, Warden.hello(1, 1, 1, 0)),
    "request-without-id": Warden.frame(d.PING, 0, b""),
    "credit-with-id": Warden.frame(d.CREDIT, 1, u32(0) + u32(0)),
    "body-of-ping": Warden.frame(d.PING, 1, b"x"),
    "short-signal": Warden.frame(d.SIGNAL, 1, u64(1)),
    "window-overflow": Warden.frame(d.CREDIT, 0, u32(0x7FFFFFFF) + u32(0)) * 2,
    "short-credit": Warden.frame(d.CREDIT, 0, u32(0) + u32(1)),
    "cancel": Warden.frame(d.CANCEL, 0, b""),
    "message": (Warden.frame(d.BATCH, 1, bytes(1 << 20), 1)) * 17,
    "partial": b"".join(Warden.frame(d.BATCH, number, b"x", 1) for number in range(1, 66)),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_ends_the_world(name: str) -> None:
    with Warden() as warden:
        handle, pid = warden.spawn(sh("exec sleep 900"))
        try:
            warden.write(VIOLATIONS[name])
        except (BrokenPipeError, ConnectionResetError, d.Ended):
            pass
        assert ended_with(warden) == 1
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert handle


@pytest.mark.parametrize(
    "hello",
    [
        Warden.hello(1000, 1001, 1000, 0),
        Warden.hello(1 << 31, 1000, 1000, 0),
        Warden.hello(1000, 1000, 1 << 31, 0),
        Warden.hello(1000, 1000, 1000, 999),
        Warden.hello(1000, 1000, 1000, 86_400_001),
        Warden.hello(1000, 1000, 1000, 0, flags=4),
        Warden.hello(1000, 1000, 1000, 0)[:-1],
    ],
)
def test_an_impossible_hello_is_a_violation(hello: bytes) -> None:
    with Warden(hello=False) as warden:
        warden.write(PREAMBLE + warden.frame(d.HELLO, 0, hello))
        assert ended_with(warden) == 1


@pytest.mark.parametrize(
    "start", [b"GET / HTTP/1.1\r\n", b"EXECWORLD-HOST\n\n", PREAMBLE + Warden.frame(d.PING, 1, b"")]
)
def test_what_is_no_host_is_refused(start: bytes) -> None:
    with Warden(hello=False) as warden:
        warden.write(start)
        assert ended_with(warden) == 1


def test_more_input_than_the_window_is_a_violation() -> None:
    with Warden() as warden:
        handle, _ = warden.spawn(sh("sleep 900", stdin=r.PIPE))
        with contextlib.suppress(BrokenPipeError):  # it may have ended before all of that is sent
            for _ in range(3):
                warden.request(d.SEND, u64(handle) + bytes(131072))
        assert ended_with(warden) == 1


def test_pieces_of_several_messages_may_alternate(warden: Warden) -> None:
    bodies = {number: r.encode_batch([r.op_find(b"x" * 100 + b"%d" % number)]) for number in (101, 102, 103)}
    for at in range(0, 200, 10):
        for number, body in bodies.items():
            if at < len(body):
                warden.write(
                    warden.frame(d.BATCH, number, body[at : at + 10], 1 if at + 10 < len(body) else 0)
                )
        assert warden.status(d.PING) == 0
    for number in bodies:
        warden.opcodes[number] = [32]
        assert warden.outcome(number).status == errno.ENOENT


def test_a_plan_that_makes_no_sense_is_refused(warden: Warden) -> None:
    assert warden.status(d.MAKE_CELL, b"whatever") == errno.EINVAL
    assert warden.status(d.DROP_CELL, u64(1 << 32 | 1)) == errno.EBADF


def test_a_batch_that_waits_can_be_cancelled(warden: Warden) -> None:
    """More batches than there are threads for them; all are answered once."""
    forever = (r.op_open(b"/dev/zero"), r.op_open(b"/dev/null", r.WRITE), r.op_copy(Ref(0), Ref(1), 1 << 60))
    numbers = [warden.submit(*forever) for _ in range(70)]
    assert warden.status(d.PING) == 0
    for number in reversed(numbers):
        warden.post(d.CANCEL, 0, u64(number))
    for number in numbers:
        assert warden.outcome(number).status == errno.ECANCELED
    warden.post(d.CANCEL, 0, u64(numbers[0]))
    warden.post(d.CANCEL, 0, u64(12345))
    assert warden.run(r.op_real_path(b"/")) == [b"/"]


def test_a_batch_that_hangs_stalls_no_other(warden: Warden) -> None:
    forever = (r.op_open(b"/dev/zero"), r.op_open(b"/dev/null", r.WRITE), r.op_copy(Ref(0), Ref(1), 1 << 60))
    numbers = [warden.submit(*forever) for _ in range(10)]
    handle, _ = warden.spawn(sh("echo hi"))
    assert warden.read_all(handle) == b"hi\n"
    for number in numbers:
        warden.post(d.CANCEL, 0, u64(number))
        assert warden.outcome(number).status == errno.ECANCELED


def test_the_lease_is_renewed_by_any_byte() -> None:
    with Warden(lease_ms=1000) as warden:
        deadline = time.monotonic() + 2.2
        while time.monotonic() < deadline:
            warden.write(warden.frame(d.PING, warden.next_id, b""))
            warden.next_id += 1
            time.sleep(0.3)
        warden.until(lambda: len(warden.replies) >= 7, "pings without answer")
        start = time.monotonic()
        assert ended_with(warden) == 3
        assert 0.3 < time.monotonic() - start < 3


def test_the_lease_does_not_count_a_pause() -> None:
    with Warden(lease_ms=2000) as warden:
        assert warden.status(d.PING) == 0
        os.kill(warden.pid, signal.SIGSTOP)
        time.sleep(3)
        os.kill(warden.pid, signal.SIGCONT)
        assert warden.status(d.PING) == 0
        warden.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_order(number: signal.Signals) -> None:
    with Warden() as warden:
        warden.spawn(sh("exec sleep 900"))
        os.kill(warden.pid, number)
        assert ended_with(warden) == 4


def test_requests_behind_close_are_refused(warden: Warden) -> None:
    with Warden() as other:
        other.spawn(sh("trap '' TERM; sleep 900"))
        closing = other.next_id
        other.next_id += 2
        batch = r.encode_batch([r.op_stat(b"/")])
        other.opcodes[closing + 1] = []
        other.write(other.frame(d.CLOSE, closing, b"") + other.frame(d.BATCH, closing + 1, batch))
        assert other.outcome(closing + 1).status == errno.ESHUTDOWN
        assert other.reply(closing).take("H") == 0
        assert other.wait_process() == 0


def test_an_unread_output_does_not_keep_it_alive() -> None:
    """The host is stuck and reads nothing; end of input still ends everything."""
    with Warden(credit=1 << 28, floor=0, window=1 << 28, give_back=False) as warden:
        _, pid = warden.spawn(sh("exec cat /dev/zero"))
        time.sleep(0.2)
        warden.socket.shutdown(1)
        assert warden.process.wait(20) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_pipes_work_as_well_as_a_socket() -> None:
    process = subprocess.Popen([str(BINARY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    hello = PREAMBLE + Warden.frame(d.HELLO, 0, Warden.hello(1000, 1000, 1000, 0))
    out, _ = process.communicate(hello + Warden.frame(d.PING, 7, b""), timeout=20)
    assert out.startswith(b"EXECWORLD-WARD\r\n")
    assert out.endswith(Warden.frame(d.REPLY, 7, u16(0)))
    assert process.returncode == 0


def test_its_memory_is_closed_to_others_of_the_same_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("starts as root to become somebody else")

    def drop() -> None:
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)

    with Warden(preexec=drop, environment={"SECRET": "hidden", "PATH": "/bin:/usr/bin"}) as warden:
        handle, _ = warden.spawn(
            sh(f"cat /proc/{warden.pid}/environ; cat /proc/{warden.pid}/maps; ls /proc/{warden.pid}/fd; true")
        )
        assert warden.read_all(handle) == b""
        assert warden.read_all(handle, 2).count(b"denied") == 3
        warden.close()


def test_an_ordinary_user_has_everything() -> None:
    if os.geteuid() != 0:
        pytest.skip("starts as root to become somebody else")

    def drop() -> None:
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)

    with Warden(preexec=drop) as warden:
        handle, _ = warden.spawn(sh("id -u; setsid sleep 900 & exit 3", terminal=(5, 5)))
        assert warden.read_all(handle) == b"12345\r\n"
        assert warden.wait_exit(handle).raw == 3 << 8
        assert warden.kill_tree(handle).gone
        outcome = warden.batch(sh("true", uid=0))
        assert (outcome.status, outcome.detail) == (errno.EPERM, 0)
        warden.close()


def test_a_directory_that_cannot_be_searched_holds_no_program(tmp_path: Path) -> None:
    """It is as if it were not on the path; a program that is named by its own path cannot be executed."""
    if os.geteuid() != 0:
        pytest.skip("starts as root to become somebody else")

    def drop() -> None:
        os.setgroups([])
        os.setgid(12345)
        os.setuid(12345)

    hidden = tmp_path / "hidden"
    hidden.mkdir(mode=0o700)
    (hidden / "true").write_bytes(b"#!/bin/sh\n")
    (hidden / "true").chmod(0o755)
    with Warden(preexec=drop) as warden:
        assert warden.batch(op_find(b"true", [bytes(hidden)])).status == errno.ENOENT
        assert warden.run(op_find(b"true", [bytes(hidden), b"/bin"])) == [b"/bin/true"]
        assert warden.batch(op_find(bytes(hidden / "true"))).status == errno.EACCES
        warden.close()


def test_started_without_standard_error(tmp_path: Path) -> None:
    """Descriptors that are closed at the start must not be taken by something of ours."""
    script = "import os,sys; os.close(2); os.execv(sys.argv[1], sys.argv[1:])"
    with Warden(command=[sys.executable, "-c", script, str(BINARY)]) as warden:
        handle, _ = warden.spawn(sh("echo out; echo err >&2"))
        assert (warden.read_all(handle), warden.read_all(handle, 2)) == (b"out\n", b"err\n")
        assert Reader(b"").done
        warden.close()
