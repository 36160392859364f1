"""Batches and their replies, against a decoder and an encoder that are made from the tables of the protocol's page.

Nothing of the codec under test is used on the other side: the layout comes from `src/warden/protocol.md`.
"""

from __future__ import annotations

import errno
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from execworld.machine import operations as ops
from execworld.machine import values as waist
from execworld.machine.batch import Batch, BatchFailed, Results, StepError
from execworld.machine.operations import Operation
from execworld.machine.values import (
    FileStat,
    FileSystemStat,
    HandleRef,
    KindMask,
    ListedEntry,
    PathPart,
    PathRef,
    Spawned,
)
from execworld.machine.warden.decoding import decode_batch_reply
from execworld.machine.warden.encoding import encode_batch
from execworld.machine.warden.wire import Malformed

PAGE = Path(__file__).resolve().parents[4] / "src/warden/protocol.md"
ROW = re.compile(r"^\| (\d+) \| (\w+) \| (.*) \| (.*) \|$", re.MULTILINE)
OPERATIONS = PAGE.read_text().partition("\n## 7. ")[2].partition("\n## ")[0]
ROWS = {int(number): (name, fields, value) for number, name, fields, value in ROW.findall(OPERATIONS)}
SPAWN = "path; [bytes]; [bytes, bytes]; path; u8; u8; u8; u8; u16; u16; u32; u32; u32; [u32]; [u32, u64, u64]"
STAT = ["u16", "u32", "u32", "u32", "u64", "u64", "u64", "u64", "i64", "i64", "i64"]
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i32": "i", "i64": "q"}
SEEDS = range(30)


class Reader:
    """Takes fields off the front, by the names of their types."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def number(self, kind: str) -> int:
        size = struct.calcsize("<" + CODES[kind])
        (value,) = struct.unpack("<" + CODES[kind], self.data[:size])
        self.data = self.data[size:]
        return int(value)

    def raw(self) -> bytes:
        size = self.number("u32")
        value, self.data = self.data[:size], self.data[size:]
        assert len(value) == size
        return value

    def field(self, kind: str) -> object:
        if kind.startswith("["):
            parts = [part.strip() for part in kind[1:-1].split(",")]
            return [tuple(self.field(part) for part in parts) for _ in range(self.number("u32"))]
        if kind == "bytes":
            return self.raw()
        if kind == "path":
            tag = self.number("u8")
            return self.raw() if tag == 0 else (tag, self.number("u16"))
        if kind == "handle":
            tag = self.number("u8")
            return None if tag == 0 else self.number("u64") if tag == 1 else ("step", self.number("u16"))
        return self.number(kind)


def kinds_of(fields: str) -> list[str]:
    """`path; u16 flags; [bytes] prune; base` as a list of types."""
    kinds: list[str] = []
    for field in fields.split(";"):
        text = re.sub(r"\(.*?\)", "", field).strip()
        if not text or text == "-":
            continue
        kind = text if text.startswith("[") and text.endswith("]") else text.split(" ")[0]
        kinds.append("handle" if kind == "base" else kind)
    return kinds


def read_operation(reader: Reader, opcode: int) -> list[object]:
    fields = SPAWN if opcode == 33 else ROWS[opcode][1]
    return [reader.field(kind) for kind in kinds_of(fields)]


class Maker:
    """Random operations, what their fields must be on the wire, and random values of their results."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def raw(self) -> bytes:
        return self.random.choice([b"/", b"/a/b", b"\xff\xfe x", b"n" * 300, b"-rf"])

    def path(self) -> bytes | PathRef:
        return self.raw() if self.chance() else PathRef(self.index(), self.random.choice(list(PathPart)))

    def handle(self) -> int | HandleRef:
        return self.random.randrange(1, 1 << 64) if self.chance() else HandleRef(self.index())

    def base(self) -> int | HandleRef | None:
        return self.handle() if self.chance() else None

    def index(self) -> int:
        return self.random.randrange(0xFFFF)

    def chance(self) -> bool:
        return self.random.random() < 0.5

    def number(self, bits: int) -> int:
        return self.random.choice([0, 1, self.random.getrandbits(bits), (1 << bits) - 1])

    def signed(self, bits: int) -> int:
        return self.number(bits) - (1 << (bits - 1))

    def maybe(self, value: Any) -> Any:
        return value if self.chance() else None

    def many(self, make: Callable[[], Any]) -> tuple[Any, ...]:
        return tuple(make() for _ in range(self.random.randrange(4)))

    def operation(self, opcode: int) -> Operation[Any]:
        path, handle, base, raw, number = self.path, self.handle, self.base, self.raw, self.number
        makers: dict[int, Callable[[], Operation[Any]]] = {
            1: lambda: ops.Open(path(), waist.OpenFlag(number(11)), number(32), base()),
            2: lambda: ops.Close(handle()),
            3: lambda: ops.Read(handle(), number(32), self.chance()),
            4: lambda: ops.ReadAt(handle(), number(64), number(32)),
            5: lambda: ops.Write(handle(), raw()),
            6: lambda: ops.Seek(handle(), self.signed(64), number(2)),
            7: lambda: ops.Sync(handle()),
            8: lambda: ops.Truncate(handle(), number(64)),
            9: lambda: ops.Stat(path(), self.chance(), base()),
            10: lambda: ops.StatHandle(handle()),
            11: self.check,
            12: lambda: ops.RealPath(path(), self.chance()),
            13: lambda: ops.ReadLink(path(), base()),
            14: lambda: ops.MakeSymlink(raw(), path(), base()),
            15: lambda: ops.Link(path(), path(), base(), base()),
            16: lambda: ops.Rename(
                path(), path(), self.random.choice(list(waist.RenameMode)), base(), base()
            ),
            17: lambda: ops.Unlink(path(), base()),
            18: lambda: ops.MakeDirectory(path(), number(32), base()),
            19: lambda: ops.RemoveDirectory(path(), base()),
            20: lambda: ops.SetMode(handle(), number(32), self.maybe(self.index()), self.chance()),
            21: lambda: ops.SetTimes(handle(), self.maybe(self.signed(64)), self.maybe(self.signed(64))),
            22: lambda: ops.SetOwner(
                handle(), self.maybe(7) or -1, self.maybe(9) or -1, self.maybe(self.index())
            ),
            23: lambda: ops.ListDirectory(handle(), number(32)),
            24: lambda: ops.OpenWalk(path(), self.many(raw), number(32), base()),
            25: lambda: ops.ReadWalk(handle(), number(32)),
            26: lambda: ops.Lock(handle(), self.random.choice(list(waist.LockMode))),
            27: lambda: ops.CopyRange(handle(), handle(), number(64)),
            28: lambda: ops.StatFileSystem(path(), base()),
            29: ops.OpenWatch,
            30: lambda: ops.AddWatch(handle(), path(), base()),
            31: lambda: ops.RemoveWatch(handle(), self.signed(32)),
            32: lambda: ops.FindExecutable(raw(), self.many(raw)),
            33: self.spawn,
            34: lambda: ops.Connect(self.random.choice(list(waist.AddressKind)), raw(), number(16)),
        }
        return makers[opcode]()

    def check(self) -> ops.Check:
        number = self.number
        version = (number(64), number(64), number(64), self.signed(64), self.maybe(self.signed(64)))
        kinds = KindMask(number(9))
        return ops.Check(self.index(), kinds, self.maybe(version), number(64), self.maybe(number(64)))

    def spawn(self) -> ops.Spawn:
        number = self.number
        limits = self.many(lambda: waist.ResourceLimit(number(32), number(64), number(64)))
        return ops.Spawn(
            path=self.path(),
            argv=self.many(self.raw),
            environment=self.many(lambda: (self.raw(), self.raw())),
            cwd=self.path(),
            stdin=self.random.choice([waist.Redirect.NULL, waist.Redirect.PIPE]),
            stdout=self.random.choice([waist.Redirect.NULL, waist.Redirect.PIPE]),
            stderr=self.random.choice(list(waist.Redirect)),
            terminal=self.maybe((number(16), number(16))),
            uid=self.maybe(number(32)),
            gid=self.maybe(number(32)),
            groups=self.maybe(self.many(lambda: number(32))),
            limits=limits,
            umask=self.maybe(number(9)),
        )

    # Results

    def stat(self) -> FileStat:
        number = self.number
        signed = [self.signed(64) for _ in range(3)]
        unsigned = [number(12), number(32), number(32), *(number(64) for _ in range(4))]
        return FileStat(self.random.choice(list(KindMask)), *unsigned, *signed)

    def entry(self, *, deep: bool) -> ListedEntry:
        names = [b"a", b".hidden", b"\xff", b"n" * 255]
        name = self.random.choice([*names, b"a/b/c"] if deep else names)
        return ListedEntry(name, self.stat(), self.random.choice(list(KindMask)))

    def result(self, operation: Operation[Any]) -> object:
        handles = (1, 24, 29, 34)
        opcode = operation.opcode
        if opcode in handles:
            return self.number(63) + 1
        makers: dict[int, Callable[[], object]] = {
            3: self.raw,
            4: self.raw,
            6: lambda: self.signed(64),
            9: self.stat,
            10: self.stat,
            12: lambda: b"/some/path",
            13: self.raw,
            23: lambda: waist.DirectoryPage(self.many(lambda: self.entry(deep=False)), self.chance()),
            25: lambda: waist.WalkPage(
                self.many(lambda: self.entry(deep=True)),
                self.many(lambda: (b"a/b", self.random.choice([errno.EACCES, errno.ENOENT]))),
                self.chance(),
            ),
            27: lambda: self.number(16),
            28: lambda: FileSystemStat(self.number(64), self.number(64)),
            30: lambda: self.signed(32),
            32: lambda: b"/bin/x",
            33: lambda: Spawned(self.number(63) + 1, self.number(31)),
        }
        return makers[opcode]() if opcode in makers else None


def wire_reference(value: object) -> object:
    if isinstance(value, HandleRef):
        return ("step", value.step)
    if isinstance(value, PathRef):
        return (1 + value.part, value.step)
    return value


def wire_fields(op: Any) -> list[object]:
    """What the fields of *op* must be on the wire, in the order of the page."""
    absent = 0xFFFF
    special: dict[type[Any], Callable[[], list[Any]]] = {
        ops.Check: lambda: [
            op.step,
            op.kinds,
            (op.version is not None)
            + 2 * (op.version is not None and op.version[4] is not None)
            + 4 * (op.max_size is not None),
            *((*op.version[:4], op.version[4] or 0) if op.version else (0, 0, 0, 0, 0)),
            op.max_links,
            op.max_size or 0,
        ],
        ops.MakeSymlink: lambda: [op.target, op.path, op.base],
        ops.Link: lambda: [op.source, op.target, op.source_base, op.target_base],
        ops.Rename: lambda: [op.source, op.target, op.how, op.source_base, op.target_base],
        ops.SetMode: lambda: [
            op.handle,
            op.mode,
            absent if op.mode_of is None else op.mode_of,
            op.apply_umask,
        ],
        ops.SetTimes: lambda: [
            op.handle,
            (op.accessed_ns is not None) + 2 * (op.modified_ns is not None),
            op.accessed_ns or 0,
            op.modified_ns or 0,
        ],
        ops.SetOwner: lambda: [
            op.handle,
            op.uid & 0xFFFFFFFF,
            op.gid & 0xFFFFFFFF,
            absent if op.owner_of is None else op.owner_of,
        ],
        ops.OpenWalk: lambda: [op.path, [(name,) for name in op.prune], op.max_depth, op.base],
        ops.FindExecutable: lambda: [op.name, [(name,) for name in op.directories]],
        ops.Spawn: lambda: [
            op.path,
            [(argument,) for argument in op.argv],
            list(op.environment),
            op.cwd,
            op.stdin,
            op.stdout,
            op.stderr,
            (op.terminal is not None)
            + 2 * (op.uid is not None)
            + 4 * (op.gid is not None)
            + 8 * (op.groups is not None or op.uid is not None)
            + 16 * (op.umask is not None),
            *(op.terminal or (0, 0)),
            op.uid or 0,
            op.gid or 0,
            op.umask or 0,
            [(group,) for group in op.groups or ()],
            [(limit.resource, limit.soft, limit.hard) for limit in op.limits],
        ],
    }
    values: Callable[[], list[Any]] | None = special.get(op.__class__)
    fields = [getattr(op, name) for name in op.__slots__] if values is None else values()
    return [wire_reference(field) for field in fields]


def write_value(kind: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        assert kind == "bytes"
        return struct.pack("<I", len(value)) + value
    return struct.pack("<" + CODES[kind], value)


def write_stat(stat: FileStat) -> bytes:
    values = [getattr(stat, name) for name in FileStat.__slots__]
    values[1] |= 0o100000  # of a regular file: the type travels with the mode
    return b"".join(write_value(kind, value) for kind, value in zip(STAT, values, strict=True))


def write_entries(entries: tuple[ListedEntry, ...]) -> bytes:
    return struct.pack("<I", len(entries)) + b"".join(
        write_value("bytes", entry.path) + write_stat(entry.stat) + write_value("u16", entry.target_kind)
        for entry in entries
    )


def write_result(operation: Operation[Any], value: Any) -> bytes:
    if isinstance(value, FileStat):
        return write_stat(value)
    if isinstance(value, waist.DirectoryPage):
        return write_value("u8", value.end) + write_entries(value.entries)
    if isinstance(value, waist.WalkPage):
        errors = b"".join(
            write_value("bytes", path) + write_value("u16", status) for path, status in value.errors
        )
        return (
            write_value("u8", value.end)
            + write_entries(value.entries)
            + struct.pack("<I", len(value.errors))
            + errors
        )
    kinds = kinds_of(ROWS[operation.opcode][2]) if operation.opcode != 33 else ["u64", "i32"]
    values: list[Any]
    if isinstance(value, Spawned):
        values = [value.handle, value.pid]
    elif isinstance(value, FileSystemStat):
        values = [value.total_bytes, value.available_bytes]
    else:
        values = [] if value is None else [value]
    return b"".join(write_value(kind, item) for kind, item in zip(kinds, values, strict=True))


def write_reply(batch: Batch, values: list[object]) -> bytes:
    results = b"".join(
        struct.pack("<HI", value.status, value.detail)
        if isinstance(value, StepError)
        else struct.pack("<H", 0) + write_result(step.operation, value)
        for step, value in zip(batch.steps, values, strict=False)
    )
    return struct.pack("<HIHH", 0, 0, 0xFFFF, len(values)) + results


def read_size_of(operation: Operation[Any]) -> Operation[Any]:
    """Reads ask for enough that any of the made-up data fits."""
    if isinstance(operation, ops.Read):
        return ops.Read(operation.handle, 4096)
    if isinstance(operation, ops.ReadAt):
        return ops.ReadAt(operation.handle, operation.offset, 4096)
    if isinstance(operation, ops.CopyRange):
        return ops.CopyRange(operation.source, operation.target, 1 << 20)
    if isinstance(operation, ops.ListDirectory | ops.ReadWalk):
        return type(operation)(operation.handle, 100)
    return operation


def operation_types() -> list[type[Operation[Any]]]:
    return cast("list[type[Operation[Any]]]", Operation.__subclasses__())


def test_the_page_names_every_operation() -> None:
    classes: dict[int, str] = {kind.opcode: kind.__name__ for kind in operation_types()}
    assert classes == {number: name for number, (name, _, _) in ROWS.items()}
    assert sorted(classes) == list(range(1, 35))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_operation_arrives_field_for_field(seed: int) -> None:
    """Steps, tolerated errors and undo operations too; nothing is left over."""
    maker = Maker(seed)
    batch = Batch()
    for opcode in range(1, 35):
        undo = maker.operation(maker.random.choice([2, 17, 19, 16])) if maker.chance() else None
        tolerate = (errno.ENOENT, waist.CheckStatus.LINKS) if maker.chance() else ()
        batch.add(maker.operation(opcode), tolerate=tolerate, undo=undo)
    reader = Reader(encode_batch(batch, 1024))
    assert (reader.number("u16"), reader.number("u16")) == (0, 34)
    for step in batch.steps:
        opcode, flags = reader.number("u8"), reader.number("u8")
        assert opcode == step.operation.opcode
        assert flags == (step.undo is not None)
        assert {reader.number("u16") for _ in range(reader.number("u16"))} == step.tolerate
        assert read_operation(reader, opcode) == wire_fields(step.operation)
        if step.undo is not None:
            assert reader.number("u8") == step.undo.opcode
            assert read_operation(reader, step.undo.opcode) == wire_fields(step.undo)
    assert reader.data == b""


def made_reply(seed: int) -> tuple[Batch, list[object], bytes]:
    maker = Maker(seed)
    batch, values = Batch(), list[object]()
    for opcode in range(1, 35):
        operation = read_size_of(maker.operation(opcode))
        fails = maker.random.random() < 0.2
        batch.add(operation, tolerate={errno.EACCES} if fails else ())
        values.append(StepError(errno.EACCES) if fails else maker.result(operation))
    return batch, values, write_reply(batch, values)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_result_arrives_value_for_value(seed: int) -> None:
    batch, values, body = made_reply(seed)
    outcome = decode_batch_reply(batch, body)
    assert isinstance(outcome, Results)
    assert list(outcome.values) == values


@pytest.mark.parametrize("seed", range(3))
def test_a_reply_that_is_cut_or_too_long_ends_the_world(seed: int) -> None:
    batch, _, body = made_reply(seed)
    for length in range(len(body)):
        with pytest.raises(Malformed):
            decode_batch_reply(batch, body[:length])
    with pytest.raises(Malformed):
        decode_batch_reply(batch, body + b"\0")


@pytest.mark.parametrize("seed", range(3))
def test_no_damage_to_a_reply_surprises_the_decoder(seed: int) -> None:
    """Whatever the bytes are, the answer is a value or `Malformed`."""
    batch, _, body = made_reply(seed)
    noise = random.Random(seed)
    for _ in range(3000):
        damaged = bytearray(body)
        for _ in range(noise.randrange(1, 4)):
            damaged[noise.randrange(len(body))] = noise.choice([0, 1, 0xFF, noise.randrange(256)])
        try:
            decode_batch_reply(batch, bytes(damaged))
        except Malformed:
            continue


def one(operation: Operation[Any], tolerate: tuple[int, ...] = ()) -> Batch:
    batch = Batch()
    batch.add(operation, tolerate=tolerate)
    return batch


HEAD = struct.Struct("<HIHH")


@pytest.mark.parametrize(
    "body",
    [
        HEAD.pack(0, 0, 0xFFFF, 0),  # fewer results than steps
        HEAD.pack(0, 0, 0, 1) + b"\0\0" + bytes(8),  # a failed step in a success
        HEAD.pack(0, 7, 0xFFFF, 1) + b"\0\0" + bytes(8),  # a detail in a success
        HEAD.pack(2, 0, 1, 1) + b"\0\0" + bytes(8),  # a failed step that is not there
        HEAD.pack(2, 1, 0, 0),  # a detail that only a spawn has
        HEAD.pack(4096, 0, 0, 0),  # between the errors and the checks
        HEAD.pack(4101, 0, 0, 0),
        HEAD.pack(13, 0, 0xFFFF, 0),  # a refusal that the page does not have
        HEAD.pack(0, 0, 0xFFFF, 1) + struct.pack("<HI", 2, 0),  # a failure that was not tolerated
        HEAD.pack(0, 0, 0xFFFF, 1) + b"\0\0" + bytes(8),  # handle 0
        HEAD.pack(errno.EACCES, 0, 0, 0),  # stopped at what was tolerated
    ],
)
def test_a_reply_that_contradicts_its_batch_ends_the_world(body: bytes) -> None:
    with pytest.raises(Malformed):
        decode_batch_reply(one(ops.Open(b"/x"), (errno.EACCES,)), body)


@pytest.mark.parametrize("name", [b"", b".", b"..", b"a/b", b"/a", b"a\0b", b"a/../../etc"])
def test_a_listing_cannot_lead_out_of_its_directory(name: bytes) -> None:
    stat = write_stat(Maker(1).stat())
    body = HEAD.pack(0, 0, 0xFFFF, 1) + b"\0\0\1" + struct.pack("<I", 1)
    body += struct.pack("<I", len(name)) + name + stat + struct.pack("<H", 2)
    with pytest.raises(Malformed):
        decode_batch_reply(one(ops.ListDirectory(1)), body)


def test_more_data_than_was_asked_for_ends_the_world() -> None:
    body = HEAD.pack(0, 0, 0xFFFF, 1) + b"\0\0" + struct.pack("<I", 5) + b"12345"
    with pytest.raises(Malformed):
        decode_batch_reply(one(ops.Read(1, 4)), body)


def test_a_failed_step_carries_what_came_before() -> None:
    batch = one(ops.Seek(1, 0))
    batch.add(ops.Spawn(b"/x", (b"x",), (), b"/"))
    outcome = decode_batch_reply(batch, HEAD.pack(2, 2, 1, 1) + b"\0\0" + struct.pack("<q", 5))
    assert isinstance(outcome, BatchFailed)
    assert (outcome.step, outcome.error, outcome.results.values) == (1, StepError(2, 2), (5,))


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        (ops.ReadAt(1, -1, 5), errno.EINVAL),
        (ops.Seek(1, 1 << 63), errno.EINVAL),
        (ops.Connect(waist.AddressKind.TCP, b"::1", 70000), errno.EINVAL),
        (ops.Write(1, bytes(17 * 1024 * 1024)), errno.EMSGSIZE),
    ],
)
def test_what_does_not_fit_fails_like_any_step(operation: Operation[Any], status: int) -> None:
    with pytest.raises(BatchFailed) as caught:
        encode_batch(one(operation), 1024)
    assert caught.value.error == StepError(status)
