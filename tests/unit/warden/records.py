"""The records of src/warden/protocol.md, written from that page alone."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

NULL, PIPE, MERGE = range(3)

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


def op_set_owner(
    what: Handle, uid: int = 0xFFFFFFFF, gid: int = 0xFFFFFFFF, owner_of: int | None = None
) -> Op:
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


def encode_batch(steps: Iterable[Op | Step]) -> bytes:
    encoded: list[bytes] = []
    for item in steps:
        step = item if isinstance(item, Step) else Step(item)
        data = u8(step.op[0]) + u8(step.undo is not None) + u16(len(step.tolerate))
        data += b"".join(u16(status) for status in step.tolerate) + step.op[1]
        if step.undo is not None:
            data += u8(step.undo[0]) + step.undo[1]
        encoded.append(data)
    return u16(0) + u16(len(encoded)) + b"".join(encoded)


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


def pair(value: object) -> tuple[int, int]:
    """Handle and pid, or the two sizes of a file system."""
    first, second = cast("tuple[int, int]", value)
    return first, second


def page(value: object) -> tuple[bool, list[Entry]]:
    """Of a listing."""
    return cast("tuple[bool, list[Entry]]", value)


def walk_page(value: object) -> tuple[bool, list[Entry], list[tuple[bytes, int]]]:
    return cast("tuple[bool, list[Entry], list[tuple[bytes, int]]]", value)


@dataclass(frozen=True)
class Failure:
    status: int
    detail: int


def take_stat(reader: Reader) -> Stat:
    return Stat(*(reader.take(form) for form in "HIIIQQQQqqq"))


def take_entries(reader: Reader) -> list[Entry]:
    return [Entry(reader.blob(), take_stat(reader), reader.take("H")) for _ in range(reader.take("I"))]


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
