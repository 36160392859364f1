"""A cell whose stream is passed to the host as a descriptor: nothing that ends a relayed one leaves this one alive."""

from __future__ import annotations

import errno
import os
import signal
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from . import driver as d
from . import plans as p
from .cells import Place, full, landlock_only, wait_until
from .plans import PassedCell, Plan
from .records import sh, u8, u32, u64
from .test_warden_cell_life import busy, gone, sleepers

TAKES_DESCRIPTORS = 2
MANY = 12  # more than go with one message


def test_a_cell_is_spoken_to_over_its_own_descriptor(place: Place) -> None:
    with place.warden(user=True, flags=TAKES_DESCRIPTORS) as warden:
        made = p.make(warden, full(place, warden, user=True))
        assert made.outcome == 0
        assert len(warden.passed) == 1
        cell = PassedCell(warden)
        handle, _ = cell.spawn(sh(f"echo inside; echo x > {place.secret}"))
        assert cell.read_all(handle, 1) == b"inside\n"
        assert cell.wait_exit(handle).raw != 0
        cell.wait_gone(handle)
        assert place.secret.read_text() == "secret"
        assert p.drop(warden, made.handle).gone
        cell.socket.close()
    place.wait_empty(warden)


def test_nothing_of_it_goes_through_the_first_warden(place: Place) -> None:
    with place.warden(flags=TAKES_DESCRIPTORS) as warden:
        made = p.make(warden, Plan())
        cell = PassedCell(warden)
        assert warden.status(d.SEND, u64(made.handle) + b"x") == errno.EBADF
        assert warden.status(d.CLOSE_INPUT, u64(made.handle)) == errno.EBADF
        warden.write(warden.frame(d.CREDIT, 0, u32(0) + u32(1) + u64(made.handle) + u8(1) + u32(100)))
        assert warden.status(d.PING) == 0
        assert cell.status(d.PING) == 0
        assert (made.handle, 1) not in warden.streams
        cell.socket.close()


def test_a_host_that_takes_no_descriptors_gets_none(place: Place) -> None:
    with place.warden() as warden:
        assert p.make(warden, Plan()).outcome == 0
        assert warden.passed == []


def test_a_stream_that_carries_no_descriptors_is_a_violation() -> None:
    hello = d.Warden.hello(1 << 18, 1 << 14, 1 << 20, 0, flags=TAKES_DESCRIPTORS)
    sent = b"EXECWORLD-HOST\r\n" + d.Warden.frame(d.HELLO, 0, hello)
    finished = subprocess.run([d.BINARY], input=sent, capture_output=True, timeout=20, check=False)
    assert finished.returncode == 1
    assert struct.pack("<BBHQH", d.ENDING, 0, 0, 0, 1) in finished.stdout


def test_the_descriptors_come_in_the_order_of_the_answers(place: Place) -> None:
    """Also when more are due than one message carries, because the host does not read."""
    with place.warden(flags=TAKES_DESCRIPTORS) as warden:
        flood, _ = warden.spawn(sh("exec yes"))
        warden.give_back = False

        def cells() -> int:
            commands = (Path(f"/proc/{pid}/cmdline") for pid in place.alive())
            return sum(b"warden\0cell" in path.read_bytes() for path in commands if path.exists())

        numbers = [warden.request(d.MAKE_CELL, Plan().encode()) for _ in range(MANY)]
        wait_until(lambda: cells() == MANY)
        replies = {number: p.take_made(warden.reply(number)) for number in numbers}
        arrived = [number for kind, number in warden.order if kind == d.REPLY and number in replies]
        assert len(warden.passed) == MANY
        streams = {replies[number].handle: PassedCell(warden) for number in arrived}
        for handle in sorted(streams, reverse=True):
            assert p.drop(warden, handle).gone
            stream = streams.pop(handle)
            assert stream.ended()
            stream.socket.close()
            assert not any(other.ended() for other in streams.values())
        warden.status(d.KILL_TREE, u64(flood))


@pytest.mark.parametrize("layers", ["namespaces", "landlock"])
@pytest.mark.parametrize("end", ["drop", "release", "cell-killed", "close", "end-of-input", "warden-killed"])
def test_nothing_survives_although_the_host_keeps_its_end_open(place: Place, layers: str, end: str) -> None:
    with place.warden(user=True, close=False, flags=TAKES_DESCRIPTORS) as warden:
        plan = full(place, warden, user=True) if layers == "namespaces" else landlock_only(place, warden)
        made = p.make(warden, replace(plan, processes=200))
        cell = PassedCell(warden)
        busy(cell)
        running = sleepers(warden)
        assert len(running) >= 5
        if end == "drop":
            assert p.drop(warden, made.handle).gone
        elif end == "release":
            assert warden.status(d.RELEASE, u64(made.handle)) == 0
        elif end == "cell-killed":
            for pid in running:
                if b"warden\0cell" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)
                    break
            wait_until(cell.ended)
            assert p.drop(warden, made.handle).gone
        elif end == "close":
            assert warden.close().gone
        elif end == "end-of-input":
            warden.socket.close()
        else:
            warden.process.kill()
        gone(running)
        if end in ("drop", "release", "cell-killed"):
            assert warden.status(d.PING) == 0
        wait_until(cell.ended)
        assert cell.ended()
        cell.socket.close()
    place.wait_empty(warden)
