"""The assembled filters say what the rules say, and no instruction of them is idle."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence

import pytest

from execworld.confinement import CellDirectories, Layer, Obstacle, Place, compile_cell
from execworld.confinement.seccomp import ArgumentTest, Comparison, Rule, assemble
from execworld.confinement.syscalls import ARCHITECTURES, ONLY_ON_X86
from execworld.seams.policy import NetworkMode, NetworkPolicy, SandboxPolicy

from .conftest import ALLOWED, AUDIT, interpret

Call = tuple[int, tuple[int, ...]]
WORD = 0xFFFFFFFF


def rule_sets(place: Place, directories: CellDirectories) -> Iterator[tuple[Rule, ...]]:
    none, ports = NetworkPolicy(NetworkMode.NONE), NetworkPolicy(NetworkMode.PORTS, (443,))
    bare = {Layer.INNER_LANDLOCK: Obstacle("left out"), Layer.NETWORK_NAMESPACE: Obstacle("left out")}
    nothing: dict[Layer, Obstacle] = {}
    for network, without in ((none, nothing), (none, bare), (ports, nothing)):
        policy = SandboxPolicy.workspace_write("/project", network=network)
        compiled = compile_cell(policy, place, directories, without)
        yield compiled.cell_rules
        yield compiled.program_rules


def holds(test: ArgumentTest, arguments: Sequence[int]) -> bool:
    value = arguments[test.argument]
    if test.comparison is Comparison.NOT_NULL:
        return value != 0
    return (value & WORD & test.mask == test.value) == (test.comparison is Comparison.EQUAL)


def denied(rules: Sequence[Rule], arch: str, number: int, arguments: Sequence[int]) -> int:
    for rule in rules:
        if ARCHITECTURES[arch].numbers.get(rule.syscall) == number and all(
            holds(t, arguments) for t in rule.tests
        ):
            return rule.error
    return 0


def calls(rules: Sequence[Rule], arch: str) -> Iterator[Call]:
    """Every value that a rule names, its neighbours, and what differs in bits that nobody looks at."""
    numbers = ARCHITECTURES[arch].numbers
    values: dict[str, list[set[int]]] = {}
    for rule in rules:
        lists = values.setdefault(rule.syscall, [{0} for _ in range(6)])
        for test in rule.tests:
            named = test.value or (0 if test.mask == WORD else test.mask)
            lists[test.argument] |= {named, named ^ 1, named | 1 << 32, (named | 0x80000) & WORD, 1 << 32, 7}
    for name, lists in values.items():
        if name in numbers:
            for arguments in itertools.product(*(sorted(chosen) for chosen in lists)):
                yield numbers[name], arguments
    for number in range(470):
        yield number, (0,) * 6


@pytest.mark.slow
@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_the_program_says_what_the_rules_say(place: Place, directories: CellDirectories, arch: str) -> None:
    for rules in rule_sets(place, directories):
        program = assemble(rules, arch)
        for number, arguments in calls(rules, arch):
            verdict = interpret(program, number, AUDIT[arch], arguments)
            expected = denied(rules, arch, number, arguments)
            assert verdict == (0x50000 | expected if expected else ALLOWED), (number, arguments)


def mutants(program: bytes) -> Iterator[tuple[str, bytes]]:
    for at in range(0, len(program), 8):
        code, if_true, if_false, value = struct.unpack_from("<HBBI", program, at)
        changed: dict[str, tuple[int, int, int, int]] = {
            "another value": (code, if_true, if_false, value ^ 1)
        }
        if if_true != if_false:
            changed["inverted"] = (code, if_false, if_true, value)
        if code == 0x06 and value != ALLOWED:
            changed["allowed"] = (code, 0, 0, ALLOWED)
        for what, instruction in changed.items():
            yield f"{at // 8} {what}", program[:at] + struct.pack("<HBBI", *instruction) + program[at + 8 :]


@pytest.mark.slow
@pytest.mark.parametrize("arch", sorted(ARCHITECTURES))
def test_a_mistake_in_any_instruction_is_seen(place: Place, directories: CellDirectories, arch: str) -> None:
    for rules in list(rule_sets(place, directories))[2:5:2]:
        program = assemble(rules, arch)
        tried = [(number, AUDIT[arch], arguments) for number, arguments in calls(rules, arch)]
        tried += [(0, AUDIT[other], (0,) * 6) for other in AUDIT]
        tried += [(0x40000000 | number, AUDIT[arch], (0,) * 6) for number in (0, 41)]
        verdicts = [interpret(program, *call) for call in tried]
        unseen = [
            what
            for what, mutant in mutants(program)
            if not any(differs(mutant, call, verdict) for call, verdict in zip(tried, verdicts, strict=True))
        ]
        assert unseen == []


def differs(mutant: bytes, call: tuple[int, int, tuple[int, ...]], verdict: int) -> bool:
    try:
        return interpret(mutant, *call) != verdict
    except (IndexError, AssertionError, struct.error):
        return True  # the kernel would not load it


def test_rules_that_have_no_number_somewhere_are_named() -> None:
    """Everything else has one on each architecture; a wrong name is an error."""
    x86, arm = (set(ARCHITECTURES[arch].numbers) for arch in ("x86_64", "aarch64"))
    assert x86 ^ arm == ONLY_ON_X86
    with pytest.raises(KeyError, match="no number for moumt"):
        assemble([Rule("moumt", 1)], "aarch64")
