"""A place that has everything, and an interpreter of classic BPF that shares nothing with the assembler."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from execworld.confinement import CellDirectories, Place

AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7, "i386": 0x40000003}
ALLOWED, KILLED = 0x7FFF0000, 0x80000000

RunFilter = Callable[..., int]


def interpret(program: bytes, number: int, arch: int, arguments: tuple[int, ...]) -> int:
    """What the kernel would return for a system call. A jump out of the program is an IndexError."""
    padded = (*arguments, *([0] * (6 - len(arguments))))
    data = struct.pack("<iIQ6Q", number, arch, 0, *(value & (2**64 - 1) for value in padded))
    instructions = [struct.unpack_from("<HBBI", program, at) for at in range(0, len(program), 8)]
    accumulator = at = 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        match code:
            case 0x20:
                assert value % 4 == 0
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                at += if_true if accumulator == value else if_false
            case 0x45:
                at += if_true if accumulator & value else if_false
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"unknown instruction {code:#x}")


@pytest.fixture
def run_filter() -> RunFilter:
    """Runs a program for a call by number: 0 when allowed, the errno when denied, -1 when killed."""

    def run(program: bytes, arch: str, number: int, *arguments: int) -> int:
        verdict = interpret(program, number, AUDIT[arch], arguments)
        if verdict == ALLOWED:
            return 0
        if verdict == KILLED:
            return -1
        assert verdict & 0xFFFF0000 == 0x00050000, hex(verdict)
        return verdict & 0xFFFF

    return run


@pytest.fixture
def place() -> Place:
    """An ordinary user on a kernel that has everything but the newest Landlock."""
    return Place(
        arch="x86_64", kernel="6.18", uid=1000, gid=1000, landlock_abi=7, namespaces=31, cgroup=16 | 32
    )


@pytest.fixture
def directories() -> CellDirectories:
    return CellDirectories(b"/tmp/execworld-temp", b"/home/user/.cache/execworld", b"/var/tmp/scratch")
