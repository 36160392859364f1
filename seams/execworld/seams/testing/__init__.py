"""The published contract suites: pytest classes that any provider can run against its own worlds.

    from execworld.seams.testing import FileSystemContract

    class TestMyFileSystem(FileSystemContract):
        @pytest.fixture(scope="class")
        def world_maker(self) -> WorldMaker:
            return open_my_world

The suites know contracts alone and import no provider. `docs/reference/contract.md` lists their clauses.
"""

import pkgutil

import pytest

# Before the modules are imported, or their assertions would say nothing when they fail.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in pkgutil.iter_modules(__path__)))

from execworld.seams.testing.clauses import SUITES, Clause, clause_id, clauses_of  # noqa: E402 - see above
from execworld.seams.testing.deviations import DEVIATIONS_FILE, Deviations, read_deviations  # noqa: E402 - see above
from execworld.seams.testing.filesystem import FileSystemContract  # noqa: E402 - see above
from execworld.seams.testing.loss import LossContract  # noqa: E402 - see above
from execworld.seams.testing.sandbox import SandboxContract  # noqa: E402 - see above
from execworld.seams.testing.shell import ShellContract  # noqa: E402 - see above
from execworld.seams.testing.subprocess import SubprocessContract  # noqa: E402 - see above
from execworld.seams.testing.suite import (  # noqa: E402 - see above
    BreakableWorld,
    BrokenWorldMaker,
    ContractSuite,
    WorldMaker,
)
from execworld.seams.testing.terminal import TerminalContract  # noqa: E402 - see above
from execworld.seams.testing.world import WorldContract  # noqa: E402 - see above

__all__ = [
    "DEVIATIONS_FILE",
    "SUITES",
    "BreakableWorld",
    "BrokenWorldMaker",
    "Clause",
    "ContractSuite",
    "Deviations",
    "FileSystemContract",
    "LossContract",
    "SandboxContract",
    "ShellContract",
    "SubprocessContract",
    "TerminalContract",
    "WorldContract",
    "WorldMaker",
    "clause_id",
    "clauses_of",
    "read_deviations",
]
