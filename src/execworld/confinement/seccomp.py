"""Seccomp filters: a list of rules, and the classic BPF that says the same (seccomp(2), linux/bpf_common.h).

What no rule denies is allowed. The first rule that matches decides.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import Final

from execworld.confinement.syscalls import ARCHITECTURES, COMPATIBLE, ONLY_ON_X86, Architecture
from execworld.seams.values import record

_LOAD_WORD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP: Final = 0x05  # BPF_JMP | BPF_JA
_JUMP_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_SET: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K
_KILL_PROCESS: Final = 0x8000_0000
_ERRNO: Final = 0x0005_0000
_ALLOW: Final = 0x7FFF_0000
_NUMBER, _ARCH, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_WORD: Final = 0xFFFF_FFFF
_ENOSYS: Final = 38
_INSTRUCTION: Final = struct.Struct("<HBBI")


class Comparison(Enum):
    EQUAL = "=="
    NOT_EQUAL = "!="
    NOT_NULL = "is not null"
    """Of all 64 bits; the others look at the 32 bits that the kernel takes of an `int`."""


@record
class ArgumentTest:
    """Attributes:
    argument: Counted from 0.
    mask: Applied to it before it is compared.
    """

    argument: int
    comparison: Comparison
    value: int = 0
    mask: int = _WORD

    def __str__(self) -> str:
        name = f"argument {self.argument}"
        if self.mask != _WORD:
            name += f" & {self.mask:#x}"
        end = "" if self.comparison is Comparison.NOT_NULL else f" {self.value:#x}"
        return f"{name} {self.comparison.value}{end}"


@record
class Rule:
    """Deny *syscall* with *error* (number on the target, the same on all its architectures) when all tests hold."""

    syscall: str
    error: int
    tests: tuple[ArgumentTest, ...] = ()

    def __str__(self) -> str:
        when = f" when {' and '.join(str(test) for test in self.tests)}" if self.tests else ""
        return f"{self.syscall}{when}"


def equal(argument: int, value: int, mask: int = _WORD) -> ArgumentTest:
    return ArgumentTest(argument, Comparison.EQUAL, value, mask)


def different(argument: int, value: int, mask: int = _WORD) -> ArgumentTest:
    return ArgumentTest(argument, Comparison.NOT_EQUAL, value, mask)


def any_bit(argument: int, bits: int) -> ArgumentTest:
    return ArgumentTest(argument, Comparison.NOT_EQUAL, 0, bits)


def not_null(argument: int) -> ArgumentTest:
    return ArgumentTest(argument, Comparison.NOT_NULL)


def assemble(rules: Sequence[Rule], arch: str) -> bytes:
    """The filter as `struct sock_filter` in sequence.

    A program of another architecture is killed: its numbers mean something else. Numbers of x32 do not exist.
    """
    architecture = ARCHITECTURES[arch]
    program = [
        (_LOAD_WORD, 0, 0, _ARCH),
        (_JUMP_EQUAL, 1, 0, architecture.audit),
        (_RETURN, 0, 0, _KILL_PROCESS),
        (_LOAD_WORD, 0, 0, _NUMBER),
    ]
    if architecture.foreign_bit:
        program += [
            (_JUMP_SET, 0, 1, architecture.foreign_bit),
            (_RETURN, 0, 0, _ERRNO | _ENOSYS),
        ]
    for rule in rules:
        program += _assembled(rule, architecture)
    program.append((_RETURN, 0, 0, _ALLOW))
    return _packed(program)


def assemble_for_all(rules: Sequence[Rule], arch: str) -> bytes:
    """A filter that also lets programs of the compatible architectures run, under the same *rules*.

    Numbers of x32 mean what those of x86_64 mean. Rules look at no argument.
    """
    program: list[_Instruction] = []
    for architecture in (ARCHITECTURES[arch], *COMPATIBLE[arch]):
        own = [(_LOAD_WORD, 0, 0, _NUMBER)]
        if architecture.foreign_bit:
            own.append((_AND, 0, 0, _WORD & ~architecture.foreign_bit))
        for rule in rules:
            if rule.tests:
                raise ValueError(f"a rule for all architectures looks at no argument: {rule}")
            own += _assembled(rule, architecture)
        own.append((_RETURN, 0, 0, _ALLOW))
        program += [
            (_LOAD_WORD, 0, 0, _ARCH),
            (_JUMP_EQUAL, 1, 0, architecture.audit),
            (_JUMP, 0, 0, len(own)),
            *own,
        ]
    program.append((_RETURN, 0, 0, _KILL_PROCESS))
    return _packed(program)


_Instruction = tuple[int, int, int, int]


def _packed(program: Sequence[_Instruction]) -> bytes:
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in program)


def _assembled(rule: Rule, architecture: Architecture) -> list[_Instruction]:
    """Expects the number of the system call in the accumulator, and leaves it there when the rule does not match."""
    number = architecture.numbers.get(rule.syscall)
    if number is None:
        if rule.syscall in ONLY_ON_X86:
            return []
        raise KeyError(f"no number for {rule.syscall}")
    deny: _Instruction = (_RETURN, 0, 0, _ERRNO | rule.error)
    if not rule.tests:
        return [(_JUMP_EQUAL, 0, 1, number), deny]
    restore: _Instruction = (_LOAD_WORD, 0, 0, _NUMBER)
    body = [deny, restore]
    for test in reversed(rule.tests):
        # Every failed test jumps to the restoring load, the last instruction of the body.
        body = [*_tested(test, len(body) - 1), *body]
    return [(_JUMP_EQUAL, 0, len(body), number), *body]


def _tested(test: ArgumentTest, to_restore: int) -> list[_Instruction]:
    """Falls through when the test holds, else jumps over *to_restore* instructions behind it."""
    low = _ARGUMENTS + 8 * test.argument
    if test.comparison is Comparison.NOT_NULL:
        return [
            (_LOAD_WORD, 0, 0, low),
            (_JUMP_EQUAL, 0, 2, 0),
            (_LOAD_WORD, 0, 0, low + 4),
            (_JUMP_EQUAL, to_restore, 0, 0),
        ]
    masked = [(_AND, 0, 0, test.mask)] if test.mask != _WORD else []
    if test.comparison is Comparison.EQUAL:
        jump = (_JUMP_EQUAL, 0, to_restore, test.value)
    else:
        jump = (_JUMP_EQUAL, to_restore, 0, test.value)
    return [(_LOAD_WORD, 0, 0, low), *masked, jump]
