"""What is tried against a confined view: one table, which the world runs and the suite judges by.

Runs in the world on any Python 3.9 or newer with nothing beside its standard library: `attempt.py` is the program.
"""

from __future__ import annotations

from . import (
    controls,
    devices,
    handles,
    kernel,
    metadata,
    mounts,
    names,
    network,
    paths,
    processes,
    reading,
    signals,
    sockets,
    terminals,
    writing,
)
from .table import CONTROLS, PROBES, Judge, Probe, Targets, Twin, Void

__all__ = ["CONTROLS", "PROBES", "Judge", "Probe", "Targets", "Twin", "Void"]

_MODULES = (
    writing,
    names,
    paths,
    handles,
    mounts,
    devices,
    metadata,
    reading,
    processes,
    signals,
    kernel,
    sockets,
    network,
    terminals,
    controls,
)
