"""Speaks src/warden/protocol.md, written from that page alone and sharing nothing with the client of the project."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .records import (
    Failure,
    Op,
    Outcome,
    Reader,
    Step,
    encode_batch,
    listed,
    pair,
    take_value,
    u8,
    u16,
    u32,
    u64,
)

VERSION = 2
HELLO, BATCH, SEND, CLOSE_INPUT, SIGNAL, KILL_TREE, RESIZE, FOREGROUND = range(1, 9)
RELEASE, PING, FACTS, CREDIT, CANCEL, CLOSE = range(9, 15)
MAKE_CELL, DROP_CELL, RESTRICT = 0x10, 0x11, 0x12
FACTS_HELLO, REPLY, DATA, EXIT, TREE_GONE, INPUT_CLOSED, ENDING = range(0x80, 0x87)
MORE = 1
LEADER, TREE, FOREGROUND_GROUP = range(3)
DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("EXECWORLD_WARDEN", ROOT / "src" / "warden" / "build" / "warden"))


class Ended(Exception):
    """The warden closed its stream."""


@dataclass(frozen=True)
class Exit:
    handle: int
    raw: int
    has: int
    user_us: int
    system_us: int
    peak: int
    output: tuple[int, int]

    @property
    def tree_alive(self) -> bool:
        return bool(self.has & 8)


@dataclass
class Stream:
    data: bytearray = field(default_factory=bytearray)
    ended: bool = False
    status: int = 0
    taken: int = 0  # data from here on is not given back
    windowed: int = 0
    frames: int = 0


@dataclass(frozen=True)
class Report:
    gone: bool
    method: int
    survivors: tuple[int, ...]


class Warden:
    """One warden on a socketpair. Reads whenever it is asked something; gives credit back unless told not to."""

    def __init__(
        self,
        *,
        credit: int = 256 * 1024,
        floor: int = 16 * 1024,
        window: int = 4 * 1024 * 1024,
        lease_ms: int = 0,
        split: int = 0,
        give_back: bool = True,
        binary: Path = BINARY,
        preexec: Callable[[], None] | None = None,
        environment: dict[str, str] | None = None,
        hello: bool = True,
        flags: int = 0,
        stderr: int | None = None,
        command: Sequence[str] | None = None,
    ) -> None:
        ours, theirs = socket.socketpair()
        self.attach(ours, split=split, give_back=give_back)
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            command or [str(binary)],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=stderr,
            preexec_fn=preexec,
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.pid = self.process.pid
        if hello:
            self.greet(credit, floor, window, lease_ms, flags)

    def attach(self, ours: socket.socket, *, split: int = 0, give_back: bool = True) -> None:
        self.socket = ours
        self.split = split
        self.give_back = give_back
        self.received = bytearray()
        self.partial: dict[int, bytearray] = {}
        self.replies: dict[int, bytes] = {}
        self.opcodes: dict[int, list[int]] = {}
        self.streams: dict[tuple[int, int], Stream] = {}
        self.exits: dict[int, Exit] = {}
        self.gone: dict[int, int] = {}
        self.input_closed: dict[int, int] = {}
        self.ending: tuple[int, bytes] | None = None
        self.order: list[tuple[int, int]] = []  # type and id or handle of everything received
        self.next_id = 1
        self.owed: list[tuple[int, int, int, int]] = []  # window, handle, stream, bytes
        self.passed: list[int] = []  # passed, in order; whoever takes one closes it
        self.paying = False
        self.facts: Reader | None = None

    def greet(
        self,
        credit: int = 256 * 1024,
        floor: int = 16 * 1024,
        window: int = 4 * 1024 * 1024,
        lease_ms: int = 0,
        flags: int = 0,
    ) -> None:
        hello = self.hello(credit, floor, window, lease_ms, flags=flags)
        self.write(b"EXECWORLD-HOST\r\n" + self.frame(HELLO, 0, hello))
        self.until(lambda: self.facts is not None, "no HELLO came")

    @staticmethod
    def hello(
        credit: int, floor: int, window: int, lease_ms: int, version: int = VERSION, flags: int = 0
    ) -> bytes:
        return u16(version) + u16(flags) + u32(credit) + u32(floor) + u32(window) + u32(lease_ms)

    @staticmethod
    def frame(kind: int, number: int, body: bytes, flags: int = 0) -> bytes:
        return u32(len(body)) + u8(kind) + u8(flags) + u16(0) + u64(number) + body

    def descriptors(self) -> int:
        """How many it has open. Always 0 for anybody but root: others of its user may not look."""
        return len(os.listdir(f"/proc/{self.pid}/fd")) if os.geteuid() == 0 else 0

    # ---- bytes

    def write(self, data: bytes) -> None:
        step = self.split or len(data)
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            while piece:
                readable, writable, _ = select.select([self.socket], [self.socket], [], DEADLINE_S)
                if not readable and not writable:
                    raise AssertionError("the warden reads no more")
                if readable:
                    self.read_some()
                if writable:
                    piece = piece[self.socket.send(piece) :]

    def read_some(self) -> None:
        data, descriptors, _, _ = socket.recv_fds(self.socket, self.split or 1 << 18, 253)
        self.passed += descriptors
        if not data:
            raise Ended
        self.received += data
        self.parse()
        self.pay()

    def pay(self) -> None:
        """Gives credit back; not from within itself, which it would be when the warden has to be read to be written."""
        if self.paying:
            return
        self.paying = True
        try:
            while self.owed:
                owed, self.owed = self.owed, []
                self.credit(sum(window for window, *_ in owed), [entry[1:] for entry in owed])
        finally:
            self.paying = False

    def parse(self) -> None:
        if self.facts is None:
            if len(self.received) < 16:
                return
            if self.received.startswith(b"EXECWORLD-WARD"):
                assert self.received.startswith(b"EXECWORLD-WARD\r\n")
                del self.received[:16]
        at = 0
        while len(self.received) - at >= 16:
            length, kind, flags, zero, number = struct.unpack_from("<IBBHQ", self.received, at)
            assert length <= 1 << 20
            assert zero == 0
            if len(self.received) - at < 16 + length:
                break
            body = bytes(self.received[at + 16 : at + 16 + length])
            at += 16 + length
            self.message(kind, flags, number, body)
        if at:
            del self.received[:at]

    def message(self, kind: int, flags: int, number: int, body: bytes) -> None:
        if kind == REPLY:
            self.partial.setdefault(number, bytearray()).extend(body)
            if flags & MORE:
                return
            self.order.append((kind, number))
            assert number not in self.replies, "two replies to one request"
            self.replies[number] = bytes(self.partial.pop(number))
            return
        assert flags == 0
        assert number == 0
        reader = Reader(body)
        if kind == FACTS_HELLO:
            self.facts = reader
        elif kind == ENDING:
            self.ending = (reader.take("H"), reader.blob())
        else:
            name = reader.take("Q")
            self.order.append((kind, name))
            if kind == DATA:
                self.on_data(name, reader)
            elif kind == EXIT:
                fields = [reader.take(form) for form in "iBQQQQQ"]
                assert name not in self.exits
                raw, has, user, system, peak, first, second = fields
                self.exits[name] = Exit(name, raw, has, user, system, peak, (first, second))
            elif kind == TREE_GONE:
                assert name in self.exits, "TREE_GONE before EXIT"
                assert name not in self.gone
                self.gone[name] = reader.take("B")
            elif kind == INPUT_CLOSED:
                self.input_closed[name] = reader.take("H")
            else:
                raise AssertionError(f"unknown type {kind}")
            assert reader.done

    def on_data(self, name: int, reader: Reader) -> None:
        number, flags, status = reader.take("B"), reader.take("B"), reader.take("H")
        stream = self.streams.setdefault((name, number), Stream())
        assert not stream.ended, "data behind the end"
        data = reader.rest()
        if flags & 2:
            assert not data
            stream.ended, stream.status = True, status
            return
        assert data
        stream.data += data
        stream.frames += 1
        if flags & 1:
            stream.windowed += len(data)
        if self.give_back:
            self.owed.append((len(data) if flags & 1 else 0, name, number, len(data)))

    # ---- messages

    def credit(self, window: int, entries: Sequence[tuple[int, int, int]]) -> None:
        encoded = [u64(name) + u8(number) + u32(count) for name, number, count in entries]
        self.post(CREDIT, 0, u32(window) + listed(encoded))

    def post(self, kind: int, number: int, body: bytes = b"") -> None:
        if len(body) <= 1 << 20:
            self.write(self.frame(kind, number, body))
            return
        pieces = [body[at : at + 65536] for at in range(0, len(body), 65536)]
        for piece in pieces[:-1]:
            self.write(self.frame(kind, number, piece, MORE))
        self.write(self.frame(kind, number, pieces[-1]))

    def request(self, kind: int, body: bytes = b"") -> int:
        number = self.next_id
        self.next_id += 1
        self.post(kind, number, body)
        return number

    def until(self, condition: Callable[[], bool], message: str, deadline_s: float = DEADLINE_S) -> None:
        deadline = time.monotonic() + deadline_s
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0 or not self.readable(left):
                raise AssertionError(message)
            self.read_some()

    def readable(self, timeout_s: float) -> bool:
        return bool(select.select([self.socket], [], [], timeout_s)[0])

    def reply(self, number: int, deadline_s: float = DEADLINE_S) -> Reader:
        self.until(lambda: number in self.replies, f"no reply to {number}", deadline_s)
        return Reader(self.replies.pop(number))

    def call(self, kind: int, body: bytes = b"", deadline_s: float = DEADLINE_S) -> Reader:
        return self.reply(self.request(kind, body), deadline_s)

    def status(self, kind: int, body: bytes = b"") -> int:
        return self.call(kind, body).take("H")

    def submit(self, *steps: Op | Step) -> int:
        number = self.request(BATCH, encode_batch(steps))
        self.opcodes[number] = [step.op[0] if isinstance(step, Step) else step[0] for step in steps]
        return number

    def outcome(self, number: int, deadline_s: float = DEADLINE_S) -> Outcome:
        reader = self.reply(number, deadline_s)
        status, detail, step, count = (reader.take(form) for form in "HIHH")
        results: list[object] = []
        for opcode in self.opcodes.pop(number)[:count]:
            failed = reader.take("H")
            results.append(Failure(failed, reader.take("I")) if failed else take_value(opcode, reader))
        assert reader.done, "bytes are left over in the reply"
        return Outcome(status, detail, step, results)

    def batch(self, *steps: Op | Step) -> Outcome:
        return self.outcome(self.submit(*steps))

    def run(self, *steps: Op | Step) -> list[object]:
        """A batch that succeeds."""
        outcome = self.batch(*steps)
        assert outcome.status == 0, f"step {outcome.step} failed with {os.strerror(outcome.status)}"
        assert outcome.step == 0xFFFF
        return outcome.results

    def spawn(self, op: Op) -> tuple[int, int]:
        (value,) = self.run(op)
        return pair(value)

    def stream(self, name: int, number: int = 1) -> Stream:
        return self.streams.setdefault((name, number), Stream())

    def read_all(self, name: int, number: int = 1) -> bytes:
        stream = self.stream(name, number)
        self.until(lambda: stream.ended, "the stream does not end")
        return bytes(stream.data)

    def wait_exit(self, name: int, deadline_s: float = DEADLINE_S) -> Exit:
        self.until(lambda: name in self.exits, "no EXIT came", deadline_s)
        return self.exits[name]

    def wait_gone(self, name: int, deadline_s: float = DEADLINE_S) -> int:
        self.until(lambda: name in self.gone, "no TREE_GONE came", deadline_s)
        return self.gone[name]

    def output(self, op: Op, name: int = 1) -> tuple[int, str]:
        """Exit status and what the command wrote."""
        handle, _ = self.spawn(op)
        text = self.read_all(handle, name)
        ended = self.wait_exit(handle)
        self.wait_gone(handle)
        return ended.raw >> 8 if ended.raw & 0x7F == 0 else -(ended.raw & 0x7F), text.decode(errors="replace")

    def kill_tree(self, name: int) -> Report:
        reader = self.call(KILL_TREE, u64(name))
        assert reader.take("H") == 0
        return self.take_report(reader)

    @staticmethod
    def take_report(reader: Reader) -> Report:
        gone, method = bool(reader.take("B")), reader.take("B")
        survivors = tuple(reader.take("i") for _ in range(reader.take("I")))
        assert reader.done
        return Report(gone, method, survivors)

    def send(self, name: int, data: bytes) -> int:
        return self.status(SEND, u64(name) + data)

    def signal(self, name: int, number: int, target: int = LEADER) -> tuple[int, int]:
        reader = self.call(SIGNAL, u64(name) + u32(number) + u8(target))
        status = reader.take("H")
        return status, reader.take("i") if status == 0 else 0

    def close(self) -> Report:
        """Ends it in order; it exits with 0."""
        reader = self.call(CLOSE)
        assert reader.take("H") == 0
        report = self.take_report(reader)
        assert self.wait_process() == 0
        return report

    def wait_process(self, timeout_s: float = DEADLINE_S) -> int:
        """Reads what still comes, until the warden has exited."""
        deadline = time.monotonic() + timeout_s
        try:
            while time.monotonic() < deadline:
                if select.select([self.socket], [], [], 0.2)[0]:
                    self.read_some()
                elif self.process.poll() is not None:
                    break
        except (Ended, ConnectionError):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def __enter__(self) -> Warden:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        try:
            self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise
