"""What a world asks for cells: the compiler, what is known of the place, and the link to a cell, in one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from execworld.confinement.explaining import explain, explain_as_dict, kept
from execworld.confinement.installation import NOT_HERE, Installation
from execworld.confinement.layers import Layer
from execworld.confinement.obstacle import Obstacle
from execworld.confinement.opening import open_cell
from execworld.confinement.place import CellDirectories, Place
from execworld.confinement.reporting import enforceable
from execworld.confinement.surroundings import NOTHING_GIVEN, Surroundings
from execworld.machine.base import Machine
from execworld.machine.confining import Cell, PrivateDirectories
from execworld.machine.warden import open_cell_machine
from execworld.machine.warden.facts import WardenFacts
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.policy import SandboxPolicy

_NOT_SHARED: Final = {
    Layer.PID_NAMESPACE: "pids",
    Layer.NETWORK_NAMESPACE: "loopback",
    Layer.IPC_NAMESPACE: "shared memory",
    Layer.TERMINALS: "terminals",
}


class CellConfiner:
    """A `Confiner` for the machines of one place. Remembers which layers cannot be had there.

    Args:
        surroundings: What holds for every program of the place whatever a cell does.
        installation: What the host runs, where it runs in the same place.
    """

    def __init__(
        self,
        facts: WardenFacts,
        surroundings: Surroundings | None = None,
        *,
        installation: Installation = NOT_HERE,
    ) -> None:
        self._place = replace(Place.of(facts), installation=installation)
        self._known: dict[Layer, Obstacle] = {}
        self._surroundings = surroundings

    @property
    def enforceable(self) -> frozenset[Dimension]:
        found = self.described()
        return frozenset(d for d, (state, _) in found.items() if state is EnforcementState.ENFORCED)

    def described(self) -> Mapping[Dimension, tuple[EnforcementState, str]]:
        """What the place could enforce, as far as its facts tell: state, and by what or why not."""
        return enforceable(
            replace(self._place, installation=NOT_HERE)
        )  # where it is says nothing of the place

    @asynccontextmanager
    async def open_cell(
        self, machine: Machine, policy: SandboxPolicy, directories: PrivateDirectories
    ) -> AsyncGenerator[Cell]:
        own = CellDirectories(directories.temp, directories.cache, directories.scratch)
        given = NOTHING_GIVEN if self._surroundings is None else self._surroundings(policy)
        async with open_cell(
            machine, policy, self._place, own, self._known, opener=open_cell_machine, given=given
        ) as cell:
            layers = cell.compiled.situation.layers
            temp = ("temp",) if "TMPDIR" in cell.environment else ()
            hidden = ("hidden paths",) if policy.hidden else ()
            yield Cell(
                machine=cell.machine,
                enforcement=cell.enforcement,
                environment=cell.environment,
                not_shared=(
                    *(name for layer, name in _NOT_SHARED.items() if layer in layers),
                    *temp,
                    *hidden,
                ),
                kept=kept(cell.compiled),
                explain=partial(explain, cell.compiled, cell.enforcement),
                describe=partial(explain_as_dict, cell.compiled, cell.enforcement),
            )
