"""Speaks src/warden/protocol.md, written from that page alone and sharing nothing with the client of the project."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HELLO, BATCH, SEND, CLOSE_INPUT, SIGNAL, KILL_TREE, RESIZE, FOREGROUND = range(1, 9)
RELEASE, PING, FACTS, CREDIT, CANCEL, CLOSE = range(9, 15)
MAKE_CELL = 0x10
FACTS_HELLO, REPLY, DATA, EXIT, TREE_GONE, INPUT_CLOSED, ENDING = range(0x80, 0x87)
MORE = 1
LEADER, TREE, FOREGROUND_GROUP = range(3)
NULL, PIPE, MERGE = range(3)
DEADLINE_S = 20.0
ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("EXECWORLD_WARDEN", ROOT / "src" / "warden" / "build" / "warden"))


class Ended(Exception):
    """The warden closed its stream."""


# ---- fields


def u8(value: int) -> bytes:
    return struct.pack("<B", value)


def u16(value: int) -> bytes:
    return struct.pack("<H", value)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def i64(value: int) -> bytes:
    return struct.pack("<q", value)


def blob(value: bytes) -> bytes:
    return u32(len(value)) + value


def listed(items: Sequence[bytes]) -> bytes:
    return u32(len(items)) + b"".join(items)


@dataclass(frozen=True)
class Ref:
    """Result of an earlier step; *part* 1 whole, 2 parent, 3 name."""

    step: int
    part: int = 1


Handle = int | Ref | None
Path_ = bytes | Ref


def handle(value: Handle) -> bytes:
    if value is None:
        return u8(0)
    if isinstance(value, Ref):
        return u8(2) + u16(value.step)
    return u8(1) + u64(value)


def path(value: Path_) -> bytes:
    if isinstance(value, Ref):
        return u8(value.part) + u16(value.step)
    return u8(0) + blob(value)


# ---- operations: (opcode, fields)

Op = tuple[int, bytes]
READ, WRITE, CREATE, EXCLUSIVE, TRUNCATE, APPEND, DIRECTORY = 1, 2, 4, 8, 16, 32, 64
NO_FOLLOW, PATH_ONLY, BENEATH, NO_SYMLINKS = 128, 256, 512, 1024


def op_open(where: Path_, flags: int = READ, mode: int = 0o666, base: Handle = None) -> Op:
    return 1, path(where) + u16(flags) + u32(mode) + handle(base)


def op_close(what: Handle) -> Op:
    return 2, handle(what)


def op_read(what: Handle, size: int, close_at_end: bool = False) -> Op:
    return 3, handle(what) + u32(size) + u8(close_at_end)


def op_read_at(what: Handle, offset: int, size: int) -> Op:
    return 4, handle(what) + u64(offset) + u32(size)


def op_write(what: Handle, data: bytes) -> Op:
    return 5, handle(what) + blob(data)


def op_seek(what: Handle, offset: int, whence: int = 0) -> Op:
    return 6, handle(what) + i64(offset) + u8(whence)


def op_sync(what: Handle) -> Op:
    return 7, handle(what)


def op_truncate(what: Handle, size: int) -> Op:
    return 8, handle(what) + u64(size)


def op_stat(where: Path_, follow: bool = True, base: Handle = None) -> Op:
    return 9, path(where) + u8(follow) + handle(base)


def op_stat_handle(what: Handle) -> Op:
    return 10, handle(what)


def op_check(
    step: int,
    kinds: int,
    version: tuple[int, int, int, int, int | None] | None = None,
    max_links: int = 0,
    max_size: int | None = None,
) -> Op:
    has = 0
    numbers = (0, 0, 0, 0, 0)
    if version is not None:
        has |= 1
        numbers = (*version[:4], version[4] or 0)
        if version[4] is not None:
            has |= 2
    if max_size is not None:
        has |= 4
    fields = u16(step) + u16(kinds) + u8(has) + struct.pack("<QQQqq", *numbers)
    return 11, fields + u64(max_links) + u64(max_size or 0)


def op_real_path(where: Path_, missing_ok: bool = False) -> Op:
    return 12, path(where) + u8(missing_ok)


def op_read_link(where: Path_, base: Handle = None) -> Op:
    return 13, path(where) + handle(base)


def op_symlink(target: bytes, where: Path_, base: Handle = None) -> Op:
    return 14, blob(target) + path(where) + handle(base)


def op_link(source: Path_, target: Path_, source_base: Handle = None, target_base: Handle = None) -> Op:
    return 15, path(source) + path(target) + handle(source_base) + handle(target_base)


def op_rename(
    source: Path_, target: Path_, how: int = 0, source_base: Handle = None, target_base: Handle = None
) -> Op:
    return 16, path(source) + path(target) + u8(how) + handle(source_base) + handle(target_base)


def op_unlink(where: Path_, base: Handle = None) -> Op:
    return 17, path(where) + handle(base)


def op_mkdir(where: Path_, mode: int = 0o777, base: Handle = None) -> Op:
    return 18, path(where) + u32(mode) + handle(base)


def op_rmdir(where: Path_, base: Handle = None) -> Op:
    return 19, path(where) + handle(base)


def op_set_mode(what: Handle, mode: int, mode_of: int | None = None, apply_umask: bool = False) -> Op:
    return 20, handle(what) + u32(mode) + u16(0xFFFF if mode_of is None else mode_of) + u8(apply_umask)


def op_set_times(what: Handle, accessed: int | None, modified: int | None) -> Op:
    has = (accessed is not None) | (modified is not None) << 1
    return 21, handle(what) + u8(has) + i64(accessed or 0) + i64(modified or 0)


def op_set_owner(what: Handle, uid: int = 0xFFFFFFFF, gid: int = 0xFFFFFFFF, owner_of: int | None = None) -> Op:
    return 22, handle(what) + u32(uid) + u32(gid) + u16(0xFFFF if owner_of is None else owner_of)


def op_list(what: Handle, limit: int = 1024) -> Op:
    return 23, handle(what) + u32(limit)


def op_open_walk(where: Path_, prune: Iterable[bytes] = (), max_depth: int = 0, base: Handle = None) -> Op:
    return 24, path(where) + listed([blob(name) for name in prune]) + u32(max_depth) + handle(base)


def op_read_walk(what: Handle, limit: int = 1024) -> Op:
    return 25, handle(what) + u32(limit)


def op_lock(what: Handle, mode: int = 2) -> Op:
    return 26, handle(what) + u8(mode)


def op_copy(source: Handle, target: Handle, size: int) -> Op:
    return 27, handle(source) + handle(target) + u64(size)


def op_stat_fs(where: Path_, base: Handle = None) -> Op:
    return 28, path(where) + handle(base)


def op_open_watch() -> Op:
    return 29, b""


def op_add_watch(what: Handle, where: Path_, base: Handle = None) -> Op:
    return 30, handle(what) + path(where) + handle(base)


def op_remove_watch(what: Handle, watch: int) -> Op:
    return 31, handle(what) + u32(watch)


def op_find(name: bytes, directories: Iterable[bytes] = ()) -> Op:
    return 32, blob(name) + listed([blob(directory) for directory in directories])


def op_spawn(
    program: Path_,
    argv: Sequence[bytes],
    environment: dict[bytes, bytes] | None = None,
    cwd: Path_ = b"/",
    stdin: int = NULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
    terminal: tuple[int, int] | None = None,
    uid: int | None = None,
    gid: int | None = None,
    groups: Sequence[int] | None = None,
    limits: Sequence[tuple[int, int, int]] = (),
    umask: int | None = None,
) -> Op:
    if environment is None:
        environment = {b"PATH": b"/usr/bin:/bin"}
    has = 0
    for bit, value in ((1, terminal), (2, uid), (4, gid), (8, groups), (16, umask)):
        if value is not None:
            has |= bit
    rows, columns = terminal or (0, 0)
    fields = path(program) + listed([blob(argument) for argument in argv])
    fields += listed([blob(name) + blob(value) for name, value in environment.items()]) + path(cwd)
    fields += u8(stdin) + u8(stdout) + u8(stderr) + u8(has) + u16(rows) + u16(columns)
    fields += u32(uid or 0) + u32(gid or 0) + u32(umask or 0) + listed([u32(group) for group in groups or ()])
    return 33, fields + listed([u32(resource) + u64(soft) + u64(hard) for resource, soft, hard in limits])


def sh(script: str, **options: object) -> Op:
    return op_spawn(b"/bin/sh", [b"sh", b"-c", script.encode()], **options)  # type: ignore[arg-type]  # passed through


def op_connect(kind: int, host: bytes, port: int = 0) -> Op:
    return 34, u8(kind) + blob(host) + u16(port)


@dataclass(frozen=True)
class Step:
    op: Op
    tolerate: tuple[int, ...] = ()
    undo: Op | None = None


def encode_batch(steps: Iterable[Op | Step], view: int = 0) -> bytes:
    encoded = []
    for item in steps:
        step = item if isinstance(item, Step) else Step(item)
        data = u8(step.op[0]) + u8(step.undo is not None) + u16(len(step.tolerate))
        data += b"".join(u16(status) for status in step.tolerate) + step.op[1]
        if step.undo is not None:
            data += u8(step.undo[0]) + step.undo[1]
        encoded.append(data)
    return u32(view) + u16(0) + u16(len(encoded)) + b"".join(encoded)


# ---- results


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def take(self, form: str) -> int:
        size = struct.calcsize("<" + form)
        (value,) = struct.unpack_from("<" + form, self.data, self.at)
        self.at += size
        return int(value)

    def blob(self) -> bytes:
        size = self.take("I")
        value = self.data[self.at : self.at + size]
        assert len(value) == size
        self.at += size
        return value

    def rest(self) -> bytes:
        value = self.data[self.at :]
        self.at = len(self.data)
        return value

    @property
    def done(self) -> bool:
        return self.at == len(self.data)


@dataclass(frozen=True)
class Stat:
    kind: int
    mode: int
    uid: int
    gid: int
    links: int
    size: int
    device: int
    inode: int
    accessed_ns: int
    modified_ns: int
    changed_ns: int


@dataclass(frozen=True)
class Entry:
    path: bytes
    stat: Stat
    target_kind: int


@dataclass(frozen=True)
class Failure:
    status: int
    detail: int


def take_stat(reader: Reader) -> Stat:
    return Stat(*(reader.take(form) for form in "HIIIQQQQqqq"))


def take_entries(reader: Reader) -> list[Entry]:
    return [
        Entry(reader.blob(), take_stat(reader), reader.take("H")) for _ in range(reader.take("I"))
    ]


def take_value(opcode: int, reader: Reader) -> object:
    if opcode in (1, 24, 29, 34):
        return reader.take("Q")
    if opcode in (3, 4, 12, 13, 32):
        return reader.blob()
    if opcode == 6:
        return reader.take("q")
    if opcode in (9, 10):
        return take_stat(reader)
    if opcode == 23:
        end = reader.take("B")
        return bool(end), take_entries(reader)
    if opcode == 25:
        end = reader.take("B")
        entries = take_entries(reader)
        errors = [(reader.blob(), reader.take("H")) for _ in range(reader.take("I"))]
        return bool(end), entries, errors
    if opcode == 27:
        return reader.take("Q")
    if opcode == 28:
        return reader.take("Q"), reader.take("Q")
    if opcode == 30:
        return reader.take("i")
    if opcode == 33:
        return reader.take("Q"), reader.take("i")
    return None


@dataclass
class Outcome:
    status: int
    detail: int
    step: int
    results: list[object]

    def __getitem__(self, index: int) -> object:
        return self.results[index]


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
        self.socket = ours
        self.split = split
        self.give_back = give_back
        self.process = subprocess.Popen(
            command or [str(binary)],
            stdin=theirs,
            stdout=theirs,
            stderr=stderr,
            preexec_fn=preexec,
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self.pid = self.process.pid
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
        self.paying = False
        self.facts: Reader | None = None
        if hello:
            self.write(b"EXECWORLD-HOST\r\n" + self.frame(HELLO, 0, self.hello(credit, floor, window, lease_ms, flags=flags)))
            self.until(lambda: self.facts is not None, "no HELLO came")

    @staticmethod
    def hello(credit: int, floor: int, window: int, lease_ms: int, version: int = 1, flags: int = 0) -> bytes:
        return u16(version) + u16(flags) + u32(credit) + u32(floor) + u32(window) + u32(lease_ms)

    @staticmethod
    def frame(kind: int, number: int, body: bytes, flags: int = 0) -> bytes:
        return u32(len(body)) + u8(kind) + u8(flags) + u16(0) + u64(number) + body

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
        data = self.socket.recv(self.split or 1 << 18)
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
            if self.received[:14] == b"EXECWORLD-WARD":
                assert self.received[:16] == b"EXECWORLD-WARD\r\n"
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
                self.exits[name] = Exit(name, *fields[:5], (fields[5], fields[6]))
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
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise AssertionError(message)
            self.read_some()

    def reply(self, number: int, deadline_s: float = DEADLINE_S) -> Reader:
        self.until(lambda: number in self.replies, f"no reply to {number}", deadline_s)
        return Reader(self.replies.pop(number))

    def call(self, kind: int, body: bytes = b"", deadline_s: float = DEADLINE_S) -> Reader:
        return self.reply(self.request(kind, body), deadline_s)

    def status(self, kind: int, body: bytes = b"") -> int:
        return self.call(kind, body).take("H")

    def submit(self, *steps: Op | Step, view: int = 0) -> int:
        number = self.request(BATCH, encode_batch(steps, view))
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

    def batch(self, *steps: Op | Step, view: int = 0) -> Outcome:
        return self.outcome(self.submit(*steps, view=view))

    def run(self, *steps: Op | Step) -> list[object]:
        """A batch that succeeds."""
        outcome = self.batch(*steps)
        assert outcome.status == 0, f"step {outcome.step} failed with {os.strerror(outcome.status)}"
        assert outcome.step == 0xFFFF
        return outcome.results

    def spawn(self, op: Op) -> tuple[int, int]:
        (value,) = self.run(op)
        assert isinstance(value, tuple)
        return value

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
