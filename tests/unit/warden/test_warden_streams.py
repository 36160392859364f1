"""Credit, the window of the connection, control before bulk, memory."""

from __future__ import annotations

import errno
import os
import socket
import time
from pathlib import Path

import pytest

from . import driver as d
from . import records as r
from .driver import Warden
from .records import Ref, sh, u64

FLOOD = "exec cat /dev/zero"


def settle(warden: Warden) -> None:
    """Everything that the warden sends without being asked for more has come."""
    before = -1
    while before != (count := sum(len(stream.data) for stream in warden.streams.values())):
        before = count
        for _ in range(3):
            assert warden.status(d.PING) == 0
        time.sleep(0.02)


def test_a_stream_sends_exactly_its_credit() -> None:
    with Warden(credit=100_000, floor=1000, give_back=False) as warden:
        handle, _ = warden.spawn(sh(FLOOD))
        stream = warden.stream(handle)
        warden.until(lambda: len(stream.data) >= 100_000, "the credit is not used")
        settle(warden)
        assert len(stream.data) == 100_000
        warden.credit(0, [(handle, 1, 1)])
        settle(warden)
        assert len(stream.data) == 100_001
        warden.credit(0, [(handle, 1, 2_000_000), (handle, 2, 5), (handle + 1, 1, 5)])
        settle(warden)
        assert len(stream.data) == 2_100_001
        warden.close()


def test_the_window_binds_all_streams_together_and_the_floor_is_kept_for_each() -> None:
    with Warden(credit=100_000, floor=5_000, window=250_000, give_back=False) as warden:
        handles = [warden.spawn(sh(FLOOD))[0] for _ in range(10)]
        streams = [warden.stream(handle) for handle in handles]
        warden.until(lambda: sum(stream.windowed for stream in streams) >= 250_000, "the window is not used")
        warden.until(lambda: all(len(stream.data) >= 5_000 for stream in streams), "a stream starves")
        settle(warden)
        assert sum(stream.windowed for stream in streams) == 250_000
        # Those that the window starved have what the floor gives them, and no more.
        assert all(len(stream.data) >= 5_000 for stream in streams)
        assert sum(len(stream.data) for stream in streams) <= 250_000 + 10 * 5_000
        # A newcomer among the starved is heard all the same.
        handle, _ = warden.spawn(sh("echo hello; echo err >&2"))
        assert warden.read_all(handle) == b"hello\n"
        assert warden.read_all(handle, 2) == b"err\n"
        assert warden.stream(handle).windowed == 0
        warden.credit(50_000, [])
        settle(warden)
        assert sum(stream.windowed for stream in streams) == 300_000
        warden.close()


def test_window_of_a_released_stream_is_given_back() -> None:
    with Warden(credit=100_000, floor=0, window=100_000, give_back=False) as warden:
        handle, _ = warden.spawn(sh(FLOOD))
        warden.until(lambda: warden.stream(handle).windowed >= 100_000, "the window is not used")
        settle(warden)
        assert warden.stream(handle).windowed == 100_000
        warden.kill_tree(handle)
        assert warden.status(d.RELEASE, u64(handle)) == 0
        other, _ = warden.spawn(sh("echo hi"))
        assert warden.wait_exit(other).output == (3, 0)
        settle(warden)
        assert warden.stream(other).data == b""
        warden.credit(100_000, [(handle, 1, 100_000)])
        assert warden.read_all(other) == b"hi\n"
        warden.close()


def test_the_end_comes_without_credit() -> None:
    """An empty stream, and one whose last byte took the last credit."""
    with Warden(credit=3, floor=0, window=3, give_back=False) as warden:
        handle, _ = warden.spawn(sh("printf abc"))
        assert warden.read_all(handle, 1) == b"abc"
        assert warden.read_all(handle, 2) == b""
        warden.close()


def test_a_flood_that_nobody_reads_stalls_nobody() -> None:
    with Warden(credit=1 << 20, floor=4096, window=1 << 20, give_back=False) as warden:
        for _ in range(20):
            warden.spawn(sh(FLOOD))
        settle(warden)
        handle, _ = warden.spawn(sh("cat", stdin=r.PIPE))
        stream = warden.stream(handle)
        for number in range(1, 50):
            assert warden.send(handle, b"0123456789") == 0
            warden.until(lambda wanted=number * 10: len(stream.data) == wanted, "no echo")  # type: ignore[misc]  # bound at once
            warden.credit(0, [(handle, 1, 10)])
        warden.close()


def test_a_hundred_megabytes_arrive_whole(warden: Warden) -> None:
    handle, _ = warden.spawn(sh("head -c 100000000 /dev/zero; echo end >&2"))
    output = warden.read_all(handle)
    assert len(output) == 100_000_000
    assert output.count(0) == len(output)
    assert warden.read_all(handle, 2) == b"end\n"
    assert warden.wait_exit(handle).raw == 0


def test_control_passes_bulk() -> None:
    """With the output full of data that the host does not read yet, an answer still comes before most of it."""
    with Warden(credit=1 << 24, floor=0, window=1 << 24, give_back=False) as warden:
        warden.spawn(sh(FLOOD))
        time.sleep(0.3)
        number = warden.request(d.PING)
        received = 0
        while number not in warden.replies:
            received += len(warden.socket.recv(4096, socket.MSG_PEEK))
            warden.read_some()
        total = sum(len(stream.data) for stream in warden.streams.values())
        # What lies in the socket, and one begun frame.
        assert total < 1_500_000
        warden.close()


def test_a_large_reply_lets_others_pass(warden: Warden, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(1 << 20))
    number = warden.submit(
        r.op_open(os.fsencode(tmp_path / "big")),
        *[r.op_read_at(Ref(0), 0, 1 << 20) for _ in range(15)],
        r.op_close(Ref(0)),
    )
    pings = [warden.request(d.PING) for _ in range(5)]
    for ping in pings:
        assert warden.reply(ping).take("H") == 0
    assert number not in warden.replies
    assert warden.outcome(number).status == 0


def test_a_host_that_reads_as_fast_as_it_is_written_to_is_heard(warden: Warden, tmp_path: Path) -> None:
    """The output never fills then, so nothing but the warden itself ends its writing."""
    (tmp_path / "big").write_bytes(bytes(1 << 20))
    number = warden.submit(
        r.op_open(os.fsencode(tmp_path / "big")),
        *[r.op_read_at(Ref(0), 0, 1 << 20) for _ in range(15)],
        r.op_close(Ref(0)),
    )
    warden.until(lambda: number in warden.partial, "nothing came")
    ping = warden.request(d.PING)
    warden.until(lambda: ping in warden.replies, "no answer")
    assert number not in warden.replies, "the answer came behind all of the large reply"
    assert warden.outcome(number).status == 0


@pytest.mark.skipif("sanitize" in d.BINARY.name, reason="sanitizers keep what was freed")
def test_memory_under_a_thousand_floods() -> None:
    with Warden(credit=256 * 1024, floor=8192, window=8 << 20, give_back=False) as warden:
        numbers = [warden.submit(r.op_spawn(b"/bin/cat", [b"cat", b"/dev/zero"])) for _ in range(1000)]
        for number in numbers:
            assert warden.outcome(number, 60).status == 0
        settle(warden)
        status = Path(f"/proc/{warden.pid}/status").read_text()
        peak = int(status.split("VmHWM:")[1].split()[0])
        assert peak < 16 * 1024, f"{peak} KiB"
        assert sum(len(stream.data) for stream in warden.streams.values()) <= (8 << 20) + 1000 * 8192
        warden.close()


def test_split_at_every_byte(tmp_path: Path) -> None:
    """Both directions, one byte at a time."""
    with Warden(split=1) as warden:
        name = os.fsencode(tmp_path / "f")
        results = warden.run(
            r.op_open(name, r.READ | r.WRITE | r.CREATE),
            r.op_write(Ref(0), b"abc"),
            r.op_read_at(Ref(0), 0, 9),
        )
        assert results[2] == b"abc"
        handle, _ = warden.spawn(sh("cat; echo err >&2; exit 9", stdin=r.PIPE))
        assert warden.send(handle, b"hello") == 0
        assert warden.status(d.CLOSE_INPUT, u64(handle)) == 0
        assert (warden.read_all(handle), warden.read_all(handle, 2)) == (b"hello", b"err\n")
        assert warden.wait_exit(handle).raw == 9 << 8
        assert warden.batch(r.op_stat(b"/nonexistent")).status == errno.ENOENT
        warden.close()
