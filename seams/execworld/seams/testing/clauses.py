"""Clause ids: taken from the names of tests, so that a clause cannot exist without one."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Final

from execworld.seams.testing.filesystem import FileSystemContract
from execworld.seams.testing.loss import LossContract
from execworld.seams.testing.sandbox import SandboxContract
from execworld.seams.testing.shell import ShellContract
from execworld.seams.testing.subprocess import SubprocessContract
from execworld.seams.testing.suite import ContractSuite
from execworld.seams.testing.terminal import TerminalContract
from execworld.seams.testing.world import WorldContract

SUITES: Final[tuple[type[ContractSuite], ...]] = (
    WorldContract,
    FileSystemContract,
    SubprocessContract,
    TerminalContract,
    ShellContract,
    SandboxContract,
    LossContract,
)

_TEST_NAME: Final = re.compile(r"test_([A-Z]+)([0-9]+)_(\w+)")


@dataclass(frozen=True, slots=True)
class Clause:
    """One rule.

    Attributes:
        id: For example ``F-31``; never given to another rule.
        title: The test's name as words.
        rule: The test's docstring, as one line.
        test: Name of the test method.
    """

    id: str
    title: str
    rule: str
    test: str

    @property
    def sort_key(self) -> tuple[str, int]:
        letters, _, number = self.id.partition("-")
        return letters, int(number)


def clause_id(test_name: str) -> str | None:
    """The clause that a test function of this name tests: ``F-31`` for ``test_F31_...``."""
    match = _TEST_NAME.match(test_name)
    return None if match is None else f"{match[1]}-{match[2]}"


def clauses_of(suite: type[ContractSuite]) -> list[Clause]:
    """All clauses of *suite*, ordered by id."""
    found: list[Clause] = []
    for name, function in inspect.getmembers(suite, inspect.isfunction):
        match = _TEST_NAME.fullmatch(name)
        if match is not None:
            rule = " ".join((function.__doc__ or "").split())
            found.append(Clause(f"{match[1]}-{match[2]}", match[3].replace("_", " "), rule, name))
    return sorted(found, key=lambda clause: clause.sort_key)
