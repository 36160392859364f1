"""`Machine`: executes primitive operations in one place. No policy, no opinion, no semantics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from execworld.machine.batch import Batch, Results
from execworld.machine.cell import CellPlan, CellReport
from execworld.seams.results import KillMethod, ResourceUsage, TreeReport

STDOUT: Final = 1
STDERR: Final = 2


class SignalTarget(IntEnum):
    """Whom a signal goes to: the spawned process, every process of its tree, or a terminal's foreground group."""

    LEADER = 0
    TREE = 1
    FOREGROUND = 2


@dataclass(frozen=True, slots=True)
class ExitStatus:
    """How a spawned process ended.

    Attributes:
        raw: Wait status as of wait(2).
        usage: Resources of the process and its waited-for children.
        out_of_memory: The kernel killed something in the tree for memory; None when that cannot be known.
        output_bytes: For stream 1 and 2, how many bytes had been written to it when the process ended. Everything that
            the process itself wrote lies before that position.
        tree_alive: Other processes of its tree were left.
    """

    raw: int
    usage: ResourceUsage | None
    out_of_memory: bool | None
    output_bytes: tuple[int, int]
    tree_alive: bool


@dataclass(frozen=True, slots=True)
class ForegroundState:
    """Foreground group of a terminal, and whether a member is proven to wait for input from it."""

    group_id: int
    waits_for_input: bool


@dataclass(frozen=True, slots=True)
class WatchRecord:
    """One raw event: watch number (-1 for an overflow), mask as of inotify(7), name of the child or empty."""

    watch: int
    mask: int
    name: bytes


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What the machine knows of the place that it runs in.

    Attributes:
        host_instance: Changes when the place is another one: host id and boot id, container start and so on.
        kill_method: The strongest way that it has to end a tree.
        temp_roots: Directories for temporary files, the preferred one first.
        environment: The environment that commands start from, before the allow-list.
    """

    os: str
    arch: str
    kernel: str
    user: str
    uid: int
    gid: int
    home: bytes
    cwd: bytes
    temp_roots: tuple[bytes, ...]
    host_instance: str
    kill_method: KillMethod
    environment: tuple[tuple[bytes, bytes], ...]
    clock_offset_s: float = 0.0


class StreamClosed(Exception):
    """The other end of a stream was closed; what was sent after that is lost (EPIPE)."""


class NoSuchHandle(Exception):
    """The handle was released, or never was one of that kind."""


class SignalFailed(Exception):
    """The signal could not be delivered: there is no such group, or it may not be sent."""


class Machine(ABC):
    """Primitive operations in one place, over whatever lies between.

    Safe to use from many tasks. Cancelling a call leaves nothing half-done that the machine does not undo. Errors of
    the link are `WorldLost` when the operation is known not to have happened, `OutcomeUnknown` when that is not known.
    """

    @property
    @abstractmethod
    def facts(self) -> MachineFacts: ...

    @property
    @abstractmethod
    def lost(self) -> bool:
        """Whether the link is known to be lost. Nothing works any more then; False proves nothing."""

    @abstractmethod
    async def run(self, batch: Batch) -> Results:
        """Execute the steps in order.

        Raises:
            BatchFailed: a step failed; the undo operations ran and the batch's handles are closed.
        """

    @abstractmethod
    async def receive(self, handle: int, stream: int, max_bytes: int) -> bytes:
        """The next bytes of an output stream, at least one; empty at its end.

        Not reading slows down whoever writes, and nobody else. On a terminal the stream ends when the leader ended and
        all that it wrote has been delivered.
        """

    @abstractmethod
    async def send(self, handle: int, data: bytes) -> None:
        """Write all of *data* to the input of a process, a terminal or a connection.

        Returns when all of it was taken while there was a reader.

        Raises:
            StreamClosed: the reader is gone; some of it may have been taken before.
        """

    @abstractmethod
    async def close_input(self, handle: int) -> None:
        """End of input. Idempotent; no effect on a terminal."""

    @abstractmethod
    async def signal(self, handle: int, number: int, target: SignalTarget) -> int:
        """Send a signal. Returns the number of the foreground group, else how many processes got it (0 is no error).

        Raises:
            SignalFailed: there is no foreground group.
        """

    @abstractmethod
    async def wait(self, handle: int) -> ExitStatus:
        """Wait for the leader; any number of callers, also after the fact."""

    @abstractmethod
    async def wait_tree(self, handle: int) -> None:
        """Wait until nothing of the tree is left."""

    @abstractmethod
    async def kill_tree(self, handle: int) -> TreeReport:
        """KILL everything in the tree and sweep until it is proven empty or cannot be emptied; reaps the leader."""

    @abstractmethod
    async def resize(self, handle: int, rows: int, columns: int) -> None: ...

    @abstractmethod
    async def foreground(self, handle: int) -> ForegroundState | None: ...

    @abstractmethod
    async def read_watch(self, handle: int) -> tuple[WatchRecord, ...]:
        """Wait for the next events of a watch."""

    @abstractmethod
    async def make_cell(self, plan: CellPlan) -> CellReport:
        """Make a second machine in the same place, which has locked itself in.

        Raises:
            CellFailed: a step failed; nothing is left of the cell.
            CellsUnsupported: this machine makes none.
        """

    @abstractmethod
    async def drop_cell(self, handle: int) -> TreeReport:
        """End a cell and all that runs in it; tells whether nothing of it is left."""

    @abstractmethod
    async def release(self, handle: int) -> None:
        """Forget a process (its tree is left alone), a connection, a watch or an open file. Idempotent."""

    @abstractmethod
    async def ping(self) -> None:
        """One round trip."""

    @abstractmethod
    async def aclose(self) -> TreeReport:
        """Kill every tree, close everything. Idempotent. Reports what could not be proven gone."""
