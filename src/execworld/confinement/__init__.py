"""From a policy to a cell: the compiler of plans, the report of what is enforced, and the probes that prove it."""

from execworld.confinement.compiler import CompiledCell, compile_cell
from execworld.confinement.explaining import explain, explain_as_dict
from execworld.confinement.layers import Layer
from execworld.confinement.obstacle import Obstacle
from execworld.confinement.opening import CellMaker, CellOpener, ConfinedCell, open_cell
from execworld.confinement.place import CellDirectories, PathKind, PathKinds, Place
from execworld.confinement.reporting import enforceable, report
from execworld.confinement.survey import survey

__all__ = [
    "CellDirectories",
    "CellMaker",
    "CellOpener",
    "CompiledCell",
    "ConfinedCell",
    "Layer",
    "Obstacle",
    "PathKind",
    "PathKinds",
    "Place",
    "compile_cell",
    "enforceable",
    "explain",
    "explain_as_dict",
    "open_cell",
    "report",
    "survey",
]
