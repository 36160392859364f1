"""The primitive operations of the narrow waist, as plain values.

Each operation is what one small C program can execute: integers, byte strings and references to earlier results; no
objects, no callbacks. Operations come in a `Batch`. A batch stops at its first failing step; then the undo operations
of the steps that had succeeded run in reverse, their errors ignored, and every handle opened by the batch is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar, cast

ResultT = TypeVar("ResultT", covariant=True)

MAX_TRANSFER_BYTES: Final = 1024 * 1024
"""Largest amount of data that one read or write step may carry."""

MAX_LIST_ENTRIES: Final = 1024
"""Largest number of entries that one listing or walking step may return."""


@dataclass(frozen=True, slots=True)
class HandleRef:
    """The handle that an earlier step of the same batch opened."""

    step: int


class PathPart(IntEnum):
    WHOLE = 0
    PARENT = 1
    NAME = 2


@dataclass(frozen=True, slots=True)
class PathRef:
    """The path, or its parent directory, or its last component, that an earlier step of the same batch returned.

    The parent of ``/`` is ``/`` and its name is ``.``.
    """

    step: int
    part: PathPart = PathPart.WHOLE


Handle: TypeAlias = "int | HandleRef"
RawPath: TypeAlias = "bytes | PathRef"


class Operation(Generic[ResultT]):
    """Base of all operations; the type argument is what the step returns.

    Operations are values: nobody changes one. They are not frozen dataclasses only because those take three times as
    long to define (20 ms of the start of the command line for all of them) and to construct.
    """

    __slots__ = ()
    opcode: ClassVar[int]


class OpenFlag(IntFlag):
    """How to open. Close-on-exec, no controlling terminal and non-blocking are always set (open(2), openat2(2))."""

    READ = 1
    WRITE = 2
    CREATE = 4
    EXCLUSIVE = 8
    TRUNCATE = 16
    APPEND = 32
    DIRECTORY = 64
    NO_FOLLOW = 128
    PATH_ONLY = 256
    BENEATH = 512
    NO_SYMLINKS = 1024


class KindMask(IntFlag):
    """Sets of file types, and of "nothing there"."""

    ABSENT = 1
    FILE = 2
    DIRECTORY = 4
    SYMLINK = 8
    FIFO = 16
    SOCKET = 32
    CHARACTER_DEVICE = 64
    BLOCK_DEVICE = 128
    OTHER = 256


class RenameMode(IntEnum):
    """renameat2(2). ``NO_REPLACE`` fails with EEXIST; ``EXCHANGE`` needs both names to exist."""

    REPLACE = 0
    NO_REPLACE = 1
    EXCHANGE = 2


class CheckStatus(IntEnum):
    """Status numbers of a failed `Check`; above every error number of a kernel."""

    KIND = 4097
    VERSION = 4098
    LINKS = 4099
    SIZE = 4100


@dataclass(frozen=True, slots=True)
class FileStat:
    """stat(2), times in nanoseconds. ``kind`` has exactly one bit set."""

    kind: KindMask
    mode: int
    uid: int
    gid: int
    links: int
    size: int
    device: int
    inode: int
    accessed_ns: int
    modified_ns: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """One entry of a listing or walk.

    Attributes:
        path: Name in a listing; path relative to the start in a walk.
        stat: The entry itself, links not followed.
        target_kind: What a link leads to, `KindMask.ABSENT` for a dangling one; the own kind for everything else.
    """

    path: bytes
    stat: FileStat
    target_kind: KindMask


@dataclass(frozen=True, slots=True)
class DirectoryPage:
    entries: tuple[ListedEntry, ...]
    end: bool


@dataclass(frozen=True, slots=True)
class WalkPage:
    """Entries, and directories that could not be read with the error number."""

    entries: tuple[ListedEntry, ...]
    errors: tuple[tuple[bytes, int], ...]
    end: bool


@dataclass(frozen=True, slots=True)
class FileSystemStat:
    total_bytes: int
    available_bytes: int


@dataclass(frozen=True, slots=True)
class Spawned:
    handle: int
    pid: int


# Handles and content


@dataclass(slots=True)
class Open(Operation[int]):
    opcode = 1
    path: RawPath
    flags: OpenFlag = OpenFlag.READ
    mode: int = 0o666
    base: Handle | None = None


@dataclass(slots=True)
class Close(Operation[None]):
    opcode = 2
    handle: Handle


@dataclass(slots=True)
class Read(Operation[bytes]):
    """Read up to *size* bytes from the position of the handle; less only at the end of the file.

    With *close_at_end* the handle is closed when the end was reached (fewer than *size* bytes came).
    """

    opcode = 3
    handle: Handle
    size: int
    close_at_end: bool = False


@dataclass(slots=True)
class ReadAt(Operation[bytes]):
    opcode = 4
    handle: Handle
    offset: int
    size: int


@dataclass(slots=True)
class Write(Operation[None]):
    """Write all of *data* or fail."""

    opcode = 5
    handle: Handle
    data: bytes


@dataclass(slots=True)
class Seek(Operation[int]):
    """lseek(2); *whence* is 0 start, 1 current, 2 end."""

    opcode = 6
    handle: Handle
    offset: int
    whence: int = 0


@dataclass(slots=True)
class Sync(Operation[None]):
    """fsync(2), of a file or a directory."""

    opcode = 7
    handle: Handle


@dataclass(slots=True)
class Truncate(Operation[None]):
    opcode = 8
    handle: Handle
    size: int


# Metadata


@dataclass(slots=True)
class Stat(Operation[FileStat]):
    opcode = 9
    path: RawPath
    follow: bool = True
    base: Handle | None = None


@dataclass(slots=True)
class StatHandle(Operation[FileStat]):
    opcode = 10
    handle: Handle


@dataclass(slots=True)
class Check(Operation[None]):
    """Fail with a `CheckStatus` unless the `FileStat` of an earlier step is as demanded.

    A tolerated failure with ENOENT or ENOTDIR of that step counts as kind ``ABSENT``; then the other demands are void.

    Attributes:
        step: Index of a `Stat` or `StatHandle` step.
        kinds: Acceptable kinds.
        version: Device, inode, size, modified_ns, changed_ns; a changed_ns of None is not compared (a rename sets it).
        max_links: Largest acceptable number of hard links; 0 for any. Not applied to directories.
        max_size: Largest acceptable size; None for any.
    """

    opcode = 11
    step: int
    kinds: KindMask
    version: tuple[int, int, int, int, int | None] | None = None
    max_links: int = 0
    max_size: int | None = None


@dataclass(slots=True)
class RealPath(Operation[bytes]):
    """Absolute path with every link resolved (realpath(3), at most 40 links, then ELOOP).

    With *missing_ok* a tail that does not exist is appended to the canonical form of what does; also behind a dangling
    link. A path through something that is neither a directory nor a link fails with ENOTDIR.
    """

    opcode = 12
    path: RawPath
    missing_ok: bool = False


@dataclass(slots=True)
class ReadLink(Operation[bytes]):
    opcode = 13
    path: RawPath
    base: Handle | None = None


# Names


@dataclass(slots=True)
class MakeSymlink(Operation[None]):
    opcode = 14
    target: bytes
    path: RawPath
    base: Handle | None = None


@dataclass(slots=True)
class Link(Operation[None]):
    """linkat(2) without following a link."""

    opcode = 15
    source: RawPath
    target: RawPath
    source_base: Handle | None = None
    target_base: Handle | None = None


@dataclass(slots=True)
class Rename(Operation[None]):
    opcode = 16
    source: RawPath
    target: RawPath
    how: RenameMode = RenameMode.REPLACE
    source_base: Handle | None = None
    target_base: Handle | None = None


@dataclass(slots=True)
class Unlink(Operation[None]):
    opcode = 17
    path: RawPath
    base: Handle | None = None


@dataclass(slots=True)
class MakeDirectory(Operation[None]):
    opcode = 18
    path: RawPath
    mode: int = 0o777
    base: Handle | None = None


@dataclass(slots=True)
class RemoveDirectory(Operation[None]):
    opcode = 19
    path: RawPath
    base: Handle | None = None


# Attributes, on descriptors only: path-based calls are not governed by Landlock and can be raced


@dataclass(slots=True)
class SetMode(Operation[None]):
    """fchmod(2).

    With *mode_of*, the permission bits 0777 of that stat step are used when it succeeded, and *mode* otherwise. The
    umask of the machine is subtracted from *mode* when *apply_umask* is set, never from bits taken from a file.
    """

    opcode = 20
    handle: Handle
    mode: int
    mode_of: int | None = None
    apply_umask: bool = False


@dataclass(slots=True)
class SetTimes(Operation[None]):
    """futimens(2); None leaves a time as it is."""

    opcode = 21
    handle: Handle
    accessed_ns: int | None = None
    modified_ns: int | None = None


@dataclass(slots=True)
class SetOwner(Operation[None]):
    """fchown(2); -1 leaves an id as it is. With *owner_of*, both ids of that stat step; nothing when it failed."""

    opcode = 22
    handle: Handle
    uid: int = -1
    gid: int = -1
    owner_of: int | None = None


# Directories


@dataclass(slots=True)
class ListDirectory(Operation[DirectoryPage]):
    """The next at most *limit* entries of an open directory, without ``.`` and ``..``, in no particular order."""

    opcode = 23
    handle: Handle
    limit: int = MAX_LIST_ENTRIES


@dataclass(slots=True)
class OpenWalk(Operation[int]):
    """Begin a walk below a directory; no link is followed, a directory comes before its content.

    Directories whose name is in *prune* are reported but not entered. *max_depth* 1 is direct children only, 0 no
    bound.
    """

    opcode = 24
    path: RawPath
    prune: tuple[bytes, ...] = ()
    max_depth: int = 0
    base: Handle | None = None


@dataclass(slots=True)
class ReadWalk(Operation[WalkPage]):
    opcode = 25
    handle: Handle
    limit: int = MAX_LIST_ENTRIES


class LockMode(IntEnum):
    UNLOCK = 0
    SHARED = 1
    EXCLUSIVE = 2


@dataclass(slots=True)
class Lock(Operation[None]):
    """flock(2), never waiting: EWOULDBLOCK when another holder is in the way."""

    opcode = 26
    handle: Handle
    mode: LockMode = LockMode.EXCLUSIVE


@dataclass(slots=True)
class CopyRange(Operation[int]):
    """Copy up to *size* bytes between two open files from their positions (copy_file_range(2) or read and write).

    Returns what was copied; 0 at the end of the source.
    """

    opcode = 27
    source: Handle
    target: Handle
    size: int


@dataclass(slots=True)
class StatFileSystem(Operation[FileSystemStat]):
    opcode = 28
    path: RawPath
    base: Handle | None = None


# Watching (inotify(7))


@dataclass(slots=True)
class OpenWatch(Operation[int]):
    opcode = 29


@dataclass(slots=True)
class AddWatch(Operation[int]):
    """Watch one directory, not what lies deeper; a link as last component is not followed. Returns a watch number."""

    opcode = 30
    handle: Handle
    path: RawPath
    base: Handle | None = None


@dataclass(slots=True)
class RemoveWatch(Operation[None]):
    opcode = 31
    handle: Handle
    watch: int


# Processes and connections


@dataclass(slots=True)
class FindExecutable(Operation[bytes]):
    """Path of the first *directories*/*name* that is an executable regular file.

    A *name* with a slash is taken as it is (absolute). ENOENT when there is none, EACCES when all that there are cannot
    be executed.
    """

    opcode = 32
    name: bytes
    directories: tuple[bytes, ...] = ()


class Redirect(IntEnum):
    """What a standard stream of a child is. ``MERGE`` (stderr only) duplicates stdout."""

    NULL = 0
    PIPE = 1
    MERGE = 2


@dataclass(frozen=True, slots=True)
class ResourceLimit:
    """setrlimit(2) by the number of the kernel's generic ABI; both values in the unit of the resource."""

    resource: int
    soft: int
    hard: int


class SpawnStage(IntEnum):
    """Where a spawn failed: before exec (fork, pipes, ids, limits), entering the directory, or in execve(2)."""

    SETUP = 0
    DIRECTORY = 1
    EXEC = 2


@dataclass(slots=True)
class Spawn(Operation[Spawned]):
    """Start a program in a new session.

    Argument, environment and directory arrive byte for byte. No descriptor but 0, 1 and 2 is inherited, no signal is
    blocked or ignored. A failed exec is an error of this step with its `SpawnStage`, never output of the child.

    Attributes:
        path: Absolute path of the program.
        argv: All arguments, the program's own name first.
        environment: Name and value pairs; the complete environment.
        cwd: Working directory.
        terminal: Rows and columns of a new terminal that becomes the controlling one and all three streams; the
            redirects are then void and output comes on stream 1.
        uid: User id to take; None for the machine's own. *gid* and *groups* likewise; with a uid and no groups, none.
    """

    opcode = 33
    path: RawPath
    argv: tuple[bytes, ...]
    environment: tuple[tuple[bytes, bytes], ...]
    cwd: RawPath
    stdin: Redirect = Redirect.NULL
    stdout: Redirect = Redirect.PIPE
    stderr: Redirect = Redirect.PIPE
    terminal: tuple[int, int] | None = None
    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None
    limits: tuple[ResourceLimit, ...] = ()
    umask: int | None = None


class AddressKind(IntEnum):
    TCP = 0
    UNIX = 1


@dataclass(slots=True)
class Connect(Operation[int]):
    """Open a stream connection from inside the world: numeric IP address and port, or the path of a socket.

    The handle is sent to and received from (stream 1) like a process.
    """

    opcode = 34
    kind: AddressKind
    host: bytes
    port: int = 0


@dataclass(frozen=True)  # no slots: they break Step[...](...) of a frozen generic (python/cpython issue 90562)
class Step(Generic[ResultT]):
    """A step of a batch under construction; refers to its result in later steps and picks it from the results."""

    index: int

    @property
    def handle(self) -> HandleRef:
        return HandleRef(self.index)

    @property
    def path(self) -> PathRef:
        return PathRef(self.index)

    @property
    def parent(self) -> PathRef:
        return PathRef(self.index, PathPart.PARENT)

    @property
    def name(self) -> PathRef:
        return PathRef(self.index, PathPart.NAME)


@dataclass(frozen=True, slots=True)
class BatchStep:
    """One operation, the error numbers after which the batch goes on, and what undoes it."""

    operation: Operation[Any]
    tolerate: frozenset[int] = frozenset()
    undo: Operation[Any] | None = None


@dataclass(slots=True)
class Batch:
    """A sequence of dependent operations that is one round trip."""

    steps: list[BatchStep] = field(default_factory=list[BatchStep])

    def add(
        self,
        operation: Operation[ResultT],
        *,
        tolerate: Iterable[int] = (),
        undo: Operation[Any] | None = None,
    ) -> Step[ResultT]:
        self.steps.append(BatchStep(operation, frozenset(tolerate), undo))
        return Step(len(self.steps) - 1)


@dataclass(frozen=True, slots=True)
class StepError:
    """A failed step: error number of this host's ``errno`` module or a `CheckStatus`, and a detail (`SpawnStage`)."""

    status: int
    detail: int = 0


@dataclass(frozen=True, slots=True)
class Results:
    """What the steps returned; a `StepError` where a failure was tolerated."""

    values: Sequence[object]

    def __getitem__(self, step: Step[ResultT]) -> ResultT:
        value = self.values[step.index]
        if isinstance(value, StepError):
            raise KeyError(f"step {step.index} failed with {value.status}")
        return cast(ResultT, value)

    def get(self, step: Step[ResultT]) -> ResultT | None:
        """The result, None when the step failed in a tolerated way."""
        value = self.values[step.index]
        return None if isinstance(value, StepError) else cast(ResultT, value)


class BatchFailed(Exception):
    """A step failed and was not tolerated. Undo has run.

    Attributes:
        step: Index of the failed step.
        error: Why.
        results: What the steps before it returned; handles among them are closed.
    """

    def __init__(self, step: int, error: StepError, results: Results) -> None:
        super().__init__(f"step {step} failed with status {error.status}")
        self.step = step
        self.error = error
        self.results = results
