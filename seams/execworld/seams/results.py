"""Values of the subprocess and shell seams: limits, captured output, results."""

from __future__ import annotations

import codecs
from dataclasses import field
from enum import StrEnum

from execworld.seams.enforcement import Enforcement
from execworld.seams.values import value_class


@value_class
class OutputLimits:
    """How much of one stream is kept.

    Attributes:
        head_bytes: The first bytes, kept exactly.
        tail_bytes: The last bytes, kept exactly.
        spill_bytes: When more than head and tail arrives, all of the stream up to this size is also written to a
            private file inside the world; 0 for no file.
        stop_bytes: The command's tree is killed when the stream passes this size; None for never.
    """

    head_bytes: int = 16 * 1024
    tail_bytes: int = 48 * 1024
    spill_bytes: int = 0
    stop_bytes: int | None = None

    def __post_init__(self) -> None:
        for name in ("head_bytes", "tail_bytes", "spill_bytes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"{name} must be a non-negative integer, got {value!r}")
        if self.stop_bytes is not None and self.stop_bytes <= 0:
            raise ValueError(f"stop_bytes must be positive, got {self.stop_bytes!r}")


@value_class
class Output:
    """What is known of one stream: an exact head, an exact tail, and exact counts of what lies between them.

    Attributes:
        head: First bytes. Holds everything when nothing was dropped and the tail is empty.
        tail: Last bytes, directly after the head when ``dropped_bytes`` is 0.
        total_bytes: Length of the whole stream so far.
        dropped_bytes: Bytes between head and tail that are not here.
        dropped_lines: Line feeds among them.
        spill_path: Path inside the world of a file with every byte; None when there is none or it is incomplete.
        spill_error: Why there is no such file although one was asked for; empty otherwise.
        complete: The stream ended; False when something still held it when the result was made.
    """

    head: bytes = b""
    tail: bytes = b""
    total_bytes: int = 0
    dropped_bytes: int = 0
    dropped_lines: int = 0
    spill_path: str | None = None
    spill_error: str = ""
    complete: bool = True

    @property
    def truncated(self) -> bool:
        return self.dropped_bytes > 0

    @property
    def data(self) -> bytes:
        """Head and tail joined. Not the whole stream when `truncated`."""
        return self.head + self.tail

    @property
    def text(self) -> str:
        """The kept bytes as UTF-8 text. Where bytes were dropped, one line in square brackets says how many.

        Invalid bytes become U+FFFD. A character cut in two by the dropped part is left out of the text rather than
        shown as two replacement characters.
        """
        if not self.truncated:
            return self.data.decode("utf-8", "replace")
        where = f"; all of it: {self.spill_path}" if self.spill_path else ""
        marker = f"[{self.dropped_bytes} bytes, {self.dropped_lines} lines dropped{where}]"
        head, tail = _decode_without_cut_end(self.head), _decode_without_cut_start(self.tail)
        before = "" if not head or head.endswith("\n") else "\n"
        return f"{head}{before}{marker}\n{tail}"


def _decode_without_cut_end(data: bytes) -> str:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    return decoder.decode(data)  # an incomplete character at the end stays inside the decoder


def _decode_without_cut_start(data: bytes) -> str:
    start = 0
    while start < min(3, len(data)) and 0x80 <= data[start] <= 0xBF:
        start += 1
    return data[start:].decode("utf-8", "replace")


@value_class
class OutputSlice:
    """Answer of a non-consuming reader.

    Attributes:
        data: Bytes of the stream from ``offset`` on, as far as they are kept.
        offset: Position of the first byte of *data* in the whole stream.
        next_offset: Position to ask for next.
        lost_bytes: How many bytes lie between the position asked for and ``offset``, and are not kept.
        ended: The stream ended and *data* reaches its end.
    """

    data: bytes
    offset: int
    next_offset: int
    lost_bytes: int
    ended: bool


class KillMethod(StrEnum):
    """How a process tree was ended, strongest first."""

    NOT_NEEDED = "not-needed"
    CGROUP = "cgroup.kill"
    PID_NAMESPACE = "pid-namespace"
    SUBREAPER = "subreaper-sweep"
    MARKER_SWEEP = "session-and-marker-sweep"
    PROCESS_GROUP = "process-group"


@value_class
class TreeReport:
    """What became of a process tree.

    Attributes:
        gone: Every process of the tree is proven gone, as far as the method can see.
        method: How that was established.
        survivors: Process ids that were still there; empty when gone.
    """

    gone: bool
    method: KillMethod
    survivors: tuple[int, ...] = ()


@value_class
class ResourceUsage:
    """What the command and its waited-for children used (getrusage(2)).

    ``peak_memory_bytes`` of a small program can be that of the process which started it: the kernel carries the number
    over fork and exec.
    """

    user_s: float
    system_s: float
    peak_memory_bytes: int


class CommandStatus(StrEnum):
    """The one cause that ended a command."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    OUTPUT_LIMIT = "output-limit"


@value_class
class CommandResult:
    """Everything that is known about a finished command. The facts are independent of each other.

    Attributes:
        exit_code: 0 to 255 when the command exited by itself, even after a TERM of ours; None when a signal ended it.
        signal: Number of the signal that ended it, else None.
        timed_out: Our time limit fired. A program that exits with 124 by itself did not time out.
        cancelled: `Process.terminate` was called while it ran, before a time limit fired.
        output_limit_hit: It was killed because it wrote more than ``stop_bytes``.
        out_of_memory: The kernel killed a process of its tree for memory; None when the world cannot tell.
        background: The command itself ended, but processes that it started were still there. They go on running until
            the process handle or the world is closed.
        tree: What became of its process tree when we ended it; None when nothing had to be ended.
        timeout_s: The time limit that was in force; None for none.
        notes: Sentences that a reader of the result should see, for example that another directory was used.
    """

    exit_code: int | None
    signal: int | None
    stdout: Output
    stderr: Output
    duration_s: float
    world_id: str
    view_id: str
    enforcement: Enforcement
    timed_out: bool = False
    cancelled: bool = False
    output_limit_hit: bool = False
    out_of_memory: bool | None = None
    background: bool = False
    tree: TreeReport | None = None
    timeout_s: float | None = None
    usage: ResourceUsage | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def status(self) -> CommandStatus:
        if self.timed_out:
            return CommandStatus.TIMED_OUT
        if self.output_limit_hit:
            return CommandStatus.OUTPUT_LIMIT
        if self.cancelled:
            return CommandStatus.CANCELLED
        return CommandStatus.SIGNALLED if self.signal is not None else CommandStatus.EXITED

    @property
    def ok(self) -> bool:
        """It exited by itself with 0, in time."""
        return self.status is CommandStatus.EXITED and self.exit_code == 0
