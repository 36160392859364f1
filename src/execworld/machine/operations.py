"""The primitive operations of the narrow waist, as plain values.

Each operation is what one small C program can execute: integers, byte strings and references to earlier results; no
objects, no callbacks. They travel in a `Batch`.
"""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from execworld.machine.values import (
    MAX_LIST_ENTRIES,
    AddressKind,
    DirectoryPage,
    FileStat,
    FileSystemStat,
    Handle,
    KindMask,
    LockMode,
    OpenFlag,
    RawPath,
    Redirect,
    RenameMode,
    ResourceLimit,
    Spawned,
    WalkPage,
)
from execworld.seams.values import record

ResultT = TypeVar("ResultT", covariant=True)


class Operation(Generic[ResultT]):
    """Base of all operations; the type argument is what the step returns.

    Operations are values: nobody changes one. They are not frozen dataclasses only because those take three times as
    long to define (20 ms of the start of the command line for all of them) and to construct.
    """

    __slots__ = ()
    opcode: ClassVar[int]


@record
class Open(Operation[int]):
    opcode = 1
    path: RawPath
    flags: OpenFlag = OpenFlag.READ
    mode: int = 0o666
    base: Handle | None = None


@record
class Close(Operation[None]):
    opcode = 2
    handle: Handle


@record
class Read(Operation[bytes]):
    """Read up to *size* bytes from the position of the handle; less only at the end of the file.

    With *close_at_end* the handle is closed when the end was reached (fewer than *size* bytes came).
    """

    opcode = 3
    handle: Handle
    size: int
    close_at_end: bool = False


@record
class ReadAt(Operation[bytes]):
    opcode = 4
    handle: Handle
    offset: int
    size: int


@record
class Write(Operation[None]):
    """Write all of *data* or fail."""

    opcode = 5
    handle: Handle
    data: bytes


@record
class Seek(Operation[int]):
    """lseek(2); *whence* is 0 start, 1 current, 2 end."""

    opcode = 6
    handle: Handle
    offset: int
    whence: int = 0


@record
class Sync(Operation[None]):
    """fsync(2), of a file or a directory."""

    opcode = 7
    handle: Handle


@record
class Truncate(Operation[None]):
    opcode = 8
    handle: Handle
    size: int


@record
class Stat(Operation[FileStat]):
    opcode = 9
    path: RawPath
    follow: bool = True
    base: Handle | None = None


@record
class StatHandle(Operation[FileStat]):
    opcode = 10
    handle: Handle


@record
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


@record
class RealPath(Operation[bytes]):
    """Absolute path with every link resolved (realpath(3), at most 40 links, then ELOOP).

    With *missing_ok* a tail that does not exist is appended to the canonical form of what does; also behind a dangling
    link. A path through something that is neither a directory nor a link fails with ENOTDIR.
    """

    opcode = 12
    path: RawPath
    missing_ok: bool = False


@record
class ReadLink(Operation[bytes]):
    opcode = 13
    path: RawPath
    base: Handle | None = None


@record
class MakeSymlink(Operation[None]):
    opcode = 14
    target: bytes
    path: RawPath
    base: Handle | None = None


@record
class Link(Operation[None]):
    """linkat(2) without following a link."""

    opcode = 15
    source: RawPath
    target: RawPath
    source_base: Handle | None = None
    target_base: Handle | None = None


@record
class Rename(Operation[None]):
    opcode = 16
    source: RawPath
    target: RawPath
    how: RenameMode = RenameMode.REPLACE
    source_base: Handle | None = None
    target_base: Handle | None = None


@record
class Unlink(Operation[None]):
    opcode = 17
    path: RawPath
    base: Handle | None = None


@record
class MakeDirectory(Operation[None]):
    opcode = 18
    path: RawPath
    mode: int = 0o777
    base: Handle | None = None


@record
class RemoveDirectory(Operation[None]):
    opcode = 19
    path: RawPath
    base: Handle | None = None


@record
class SetMode(Operation[None]):
    """fchmod(2); of a handle that was opened ``PATH_ONLY`` by its link in /proc, or EBADF where there is none.

    With *mode_of*, the permission bits 0777 of that stat step are used when it succeeded, and *mode* otherwise. The
    umask of the machine is subtracted from *mode* when *apply_umask* is set, never from bits taken from a file.
    """

    opcode = 20
    handle: Handle
    mode: int
    mode_of: int | None = None
    apply_umask: bool = False


@record
class SetTimes(Operation[None]):
    """futimens(2); None leaves a time as it is."""

    opcode = 21
    handle: Handle
    accessed_ns: int | None = None
    modified_ns: int | None = None


@record
class SetOwner(Operation[None]):
    """fchown(2); -1 leaves an id as it is. With *owner_of*, both ids of that stat step; nothing when it failed."""

    opcode = 22
    handle: Handle
    uid: int = -1
    gid: int = -1
    owner_of: int | None = None


@record
class ListDirectory(Operation[DirectoryPage]):
    """The next at most *limit* entries of an open directory, without ``.`` and ``..``, in no particular order."""

    opcode = 23
    handle: Handle
    limit: int = MAX_LIST_ENTRIES


@record
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


@record
class ReadWalk(Operation[WalkPage]):
    opcode = 25
    handle: Handle
    limit: int = MAX_LIST_ENTRIES


@record
class Lock(Operation[None]):
    """flock(2), never waiting: EWOULDBLOCK when another holder is in the way."""

    opcode = 26
    handle: Handle
    mode: LockMode = LockMode.EXCLUSIVE


@record
class CopyRange(Operation[int]):
    """Copy up to *size* bytes between two open files from their positions (copy_file_range(2) or read and write).

    Returns what was copied; 0 at the end of the source.
    """

    opcode = 27
    source: Handle
    target: Handle
    size: int


@record
class StatFileSystem(Operation[FileSystemStat]):
    opcode = 28
    path: RawPath
    base: Handle | None = None


@record
class OpenWatch(Operation[int]):
    opcode = 29


@record
class AddWatch(Operation[int]):
    """Watch one directory, not what lies deeper; a link as last component is not followed. Returns a watch number."""

    opcode = 30
    handle: Handle
    path: RawPath
    base: Handle | None = None


@record
class RemoveWatch(Operation[None]):
    opcode = 31
    handle: Handle
    watch: int


@record
class FindExecutable(Operation[bytes]):
    """Path of the first *directories*/*name* that is an executable regular file.

    A *name* with a slash is taken as it is (absolute). ENOENT when there is none, EACCES when all that there are cannot
    be executed. A directory that cannot be searched holds nothing.
    """

    opcode = 32
    name: bytes
    directories: tuple[bytes, ...] = ()


@record
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


@record
class Connect(Operation[int]):
    """Open a stream connection from inside the world: numeric IP address and port, or the path of a socket.

    The handle is sent to and received from (stream 1) like a process.
    """

    opcode = 34
    kind: AddressKind
    host: bytes
    port: int = 0
