"""MAKE_CELL and DROP_CELL of src/warden/protocol.md section 12, written from that page alone; and a cell to talk to.

The plans are those that the tests need, not those that anybody should use.
"""

from __future__ import annotations

import os
import platform
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from . import driver as d
from .driver import Report, Warden
from .records import Reader, blob, listed, u8, u16, u32, u64

NEWNS, NEWIPC, NEWUSER, NEWNET = 0x0002_0000, 0x0800_0000, 0x1000_0000, 0x4000_0000
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXECUTE = 1, 2, 4, 8
START, STEP, LOCK, TARGETS = 1, 2, 3, 4
NO_LIMIT, CGROUP_V2, CGROUP_V1 = range(3)
WRITE, TRUNCATE, CREATE, REMOVE, CHANGE_MODE, READ, WRITE_BELOW = range(1, 8)
CONNECT_TCP, FAST_OPEN, MULTIPATH_TCP, SEND_UDP, VSOCK = range(8, 13)
SIGNAL, SET_LIMIT, TRACE, READ_ENVIRONMENT, CONNECT_UNIX, CONNECT_ABSTRACT, SEE_PROCESS = range(13, 20)
NETLINK, OWN_TCP, OWN_UDP, OWN_SIGNAL, OWN_TRACE, OWN_UNIX, OWN_PAIR, GRANTED_PORT = range(20, 28)

# ---- steps


def unshare(flags: int) -> bytes:
    return u8(1) + u32(flags)


def map_ids() -> bytes:
    return u8(2)


def pid_namespace() -> bytes:
    return u8(3)


def private_mounts() -> bytes:
    return u8(4)


def pin(path: str | Path, directory: bool = True) -> bytes:
    return u8(5) + blob(os.fsencode(path)) + u8(directory)


def clone_tree(number: int) -> bytes:
    return u8(6) + u16(number)


def set_attributes(attributes: int) -> bytes:
    return u8(7) + u64(attributes)


def attach_tree(tree: int, number: int, attributes: int = 0) -> bytes:
    return u8(8) + u16(tree) + u16(number) + u64(attributes)


def new_file_system(
    kind: bytes, number: int, options: Sequence[tuple[bytes, bytes]] = (), attributes: int = 0
) -> bytes:
    return (
        u8(9)
        + blob(kind)
        + u16(number)
        + listed([blob(key) + blob(value) for key, value in options])
        + u64(attributes)
    )


def loopback_up() -> bytes:
    return u8(10)


def restrict(rules: bytes) -> bytes:
    return u8(11) + rules


def keep_capabilities(mask: int) -> bytes:
    return u8(12) + u64(mask)


def filter_step(program: bytes) -> bytes:
    return u8(13) + blob(program)


# ---- Landlock and seccomp

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
ABI_BITS = (0x1FFF, 0x1FFF, 0x3FFF, 0x7FFF, 0x7FFF, 0xFFFF, 0xFFFF)  # by version of Landlock
REFER, IOCTL_DEV = 0x2000, 0x8000
DEVICE = WRITE_FILE | READ_FILE
READ_ALL = EXECUTE | READ_FILE | READ_DIR


def handled(abi: int) -> int:
    """All rights to files that this version knows."""
    return ABI_BITS[min(abi, len(ABI_BITS) - 1)] if abi else 0


def scopes(abi: int) -> int:
    return 3 if abi >= 6 else 0


def ruleset(
    fs: int,
    paths: Sequence[tuple[int, int]] = (),
    net: int = 0,
    scoped: int = 0,
    ports: Sequence[tuple[int, int]] = (),
) -> bytes:
    return (
        u64(fs)
        + u64(net)
        + u64(scoped)
        + listed([u16(number) + u64(access) for number, access in paths])
        + listed([u16(number) + u64(access) for number, access in ports])
    )


def instruction(code: int, yes: int, no: int, value: int) -> bytes:
    return struct.pack("<HBBI", code, yes, no, value)


def deny(*numbers: int, action: int = 0x0005_0001) -> bytes:
    """A filter that gives EPERM for these system calls."""
    program = instruction(0x20, 0, 0, 0)
    for number in numbers:
        program += instruction(0x15, 0, 1, number) + instruction(0x06, 0, 0, action)
    return program + instruction(0x06, 0, 0, 0x7FFF_0000)


UNSHARE_CALL = {"x86_64": 272, "aarch64": 97}[platform.machine()]
PROCESS_VM_READV_CALL = {"x86_64": 310, "aarch64": 270}[platform.machine()]


# ---- the messages


@dataclass
class Plan:
    steps: Sequence[bytes] = ()
    rules: bytes | None = None
    capabilities: int | None = None
    filter: bytes = b""
    limits: Sequence[tuple[int, int, int]] = ()
    processes: int = 0
    memory: int = 0
    probes: Sequence[tuple[int, bytes]] = ()
    scratch: bytes = b""
    timeout_ms: int = 10_000

    def encode(self) -> bytes:
        lock = (self.rules is not None) | (self.capabilities is not None) << 1
        return (
            u32(self.timeout_ms)
            + u64(self.processes)
            + u64(self.memory)
            + blob(self.scratch)
            + listed(list(self.steps))
            + u8(lock)
            + (self.rules or b"")
            + (b"" if self.capabilities is None else u64(self.capabilities))
            + blob(self.filter)
            + listed([u32(number) + u64(soft) + u64(hard) for number, soft, hard in self.limits])
            + listed([u8(kind) + blob(target) for kind, target in self.probes])
        )


@dataclass(frozen=True)
class Made:
    outcome: int
    step: int
    error: int
    handle: int = 0
    methods: tuple[int, int] = (0, 0)
    errors: tuple[int, int] = (0, 0)
    probes: tuple[tuple[int, int], ...] = ()


def take_made(reader: Reader) -> Made:
    assert reader.take("H") == 0
    outcome, step, error = (reader.take(form) for form in "BHH")
    if outcome:
        assert reader.done
        return Made(outcome, step, error)
    handle = reader.take("Q")
    methods = reader.take("B"), reader.take("B")
    errors = reader.take("H"), reader.take("H")
    probes = tuple((reader.take("H"), reader.take("H")) for _ in range(reader.take("I")))
    assert reader.done
    return Made(outcome, step, error, handle, methods, errors, probes)


def make(warden: Warden, plan: Plan, deadline_s: float = d.DEADLINE_S) -> Made:
    return take_made(warden.call(d.MAKE_CELL, plan.encode(), deadline_s))


def drop(warden: Warden, handle: int) -> Report:
    reader = warden.call(d.DROP_CELL, u64(handle))
    assert reader.take("H") == 0
    return Warden.take_report(reader)


# ---- talking to one


class PassedCell(Warden):
    """The warden at the other end of a descriptor that was passed."""

    def __init__(self, outer: Warden) -> None:
        self.attach(socket.socket(fileno=outer.passed.pop(0)))
        self.greet()

    def ended(self) -> bool:
        """Reads until nothing comes, or the end."""
        try:
            while self.readable(0):
                self.read_some()
        except (d.Ended, ConnectionResetError):
            return True
        return False


class Cell(Warden):
    """The warden at the other end of a handle. It reads by making the outer one read."""

    def __init__(self, outer: Warden, handle: int) -> None:
        self.outer = outer
        self.cell_handle = handle
        ours, self.unused = socket.socketpair()
        self.attach(ours)
        self.greet()

    def write(self, data: bytes) -> None:
        for at in range(0, len(data), 65536):
            assert self.outer.send(self.cell_handle, data[at : at + 65536]) == 0

    def read_some(self) -> None:
        stream = self.outer.stream(self.cell_handle)
        if not stream.data:
            if stream.ended:
                raise d.Ended
            self.outer.read_some()
        self.received += stream.data
        stream.data.clear()
        self.parse()
        self.pay()

    def readable(self, timeout_s: float) -> bool:
        stream = self.outer.stream(self.cell_handle)
        return bool(stream.data) or stream.ended or self.outer.readable(timeout_s)

    def close_ends(self) -> None:
        self.socket.close()
        self.unused.close()
