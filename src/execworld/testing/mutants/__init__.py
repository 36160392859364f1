"""Worlds that are wrong on purpose: each breaks one promise, and the contract must notice."""

from execworld.testing.mutants.commands import COMMAND_MUTANTS
from execworld.testing.mutants.files import FILE_MUTANTS
from execworld.testing.mutants.machines import MACHINE_MUTANTS
from execworld.testing.mutants.mutant import Mutant
from execworld.testing.mutants.whole import WORLD_MUTANTS

MUTANTS: tuple[Mutant, ...] = (*MACHINE_MUTANTS, *COMMAND_MUTANTS, *FILE_MUTANTS, *WORLD_MUTANTS)
"""All of them. Their names are distinct."""

__all__ = ["MUTANTS", "Mutant"]
