"""The suite of the subprocess seam, without terminals."""

from __future__ import annotations

from execworld.seams.testing.process_end import LimitClauses, StatusClauses, TreeClauses
from execworld.seams.testing.process_output import ReaderClauses, SpillClauses, WindowClauses
from execworld.seams.testing.process_start import InputClauses, LookupClauses, StartClauses


class SubprocessContract(
    LookupClauses,
    StartClauses,
    InputClauses,
    WindowClauses,
    ReaderClauses,
    SpillClauses,
    StatusClauses,
    LimitClauses,
    TreeClauses,
):
    """All clauses of `Subprocess` and `Process`."""
