"""The file system seam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final

from execworld.seams.files import (
    DirectoryEntry,
    EditOutcome,
    Expectation,
    FileInfo,
    FileSystemSpace,
    FileTarget,
    WalkError,
    WatchEvent,
    WriteOutcome,
)
from execworld.seams.paths import WorldPath

DEFAULT_READ_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""How much `FileSystem.read_bytes` and `FileSystem.read_text` take into memory unless told otherwise."""


class FileSystem(ABC):
    """The files of one world, as seen through one view.

    Every path argument is a `WorldPath` or a `FileTarget` of the same world. Relative paths start at the world's
    ``facts.cwd``. Every failure is a `FileError` with a code, never a bare ``OSError``; a `FileTarget` of another world
    is a `WorldMismatch`. Operations have no time limit; cancelling one leaves neither a half-written target nor a
    temporary file. Further errors that any call may raise: `WorldClosed`, `WorldLost`, `OutcomeUnknown`,
    `SandboxUnavailable`, `SandboxDenied`, `AccessDenied`, `InvalidPath`.
    """

    @property
    @abstractmethod
    def world_id(self) -> str: ...

    @property
    @abstractmethod
    def view_id(self) -> str: ...

    # Paths

    @abstractmethod
    async def resolve(self, path: WorldPath | FileTarget, *, cwd: WorldPath | None = None) -> FileTarget:
        """Give *path* its identity. The target need not exist: its nearest existing ancestor is made canonical and the
        rest appended, so the key stays the same when the file is created later.

        Raises:
            FileMissing: the path is blank, or leads through a regular file.
        """

    @abstractmethod
    def file_url(self, target: FileTarget) -> str:
        """The ``file:`` URL of the process path, percent-encoded by the rules of the world (RFC 8089)."""

    @abstractmethod
    def contains(self, parent: FileTarget, child: FileTarget) -> bool:
        """Whether *child* is *parent* or lies below it. Compares components, so ``/w/ab`` is not inside ``/w/a``.

        Raises:
            WorldMismatch: a target is of another world.
        """

    # Metadata

    @abstractmethod
    async def stat(self, path: WorldPath | FileTarget) -> FileInfo | None:
        """Metadata with links followed; None when there is nothing, also when the path leads through a file."""

    @abstractmethod
    async def lstat(self, path: WorldPath | FileTarget) -> FileInfo | None:
        """Metadata of the final component itself; links before it are followed. None when there is nothing."""

    @abstractmethod
    async def read_link(self, path: WorldPath | FileTarget) -> str:
        """The text of a symbolic link.

        Raises:
            FileMissing: there is nothing.
            NotRegularFile: it is no symbolic link.
        """

    @abstractmethod
    async def space(self, path: WorldPath | FileTarget) -> FileSystemSpace: ...

    # Reads

    @abstractmethod
    async def read_bytes(
        self, path: WorldPath | FileTarget, *, max_bytes: int = DEFAULT_READ_LIMIT_BYTES
    ) -> bytes:
        """The whole content, read through one open handle, so never a mix of two atomic versions.

        The size is checked before any content is read, and a file that grows beyond it meanwhile fails as well. Files
        that state no size (/proc) are read to their end. Nothing that could block is ever opened.

        Raises:
            FileMissing, NotRegularFile
            TooLarge: more than *max_bytes*. Never truncated silently.
        """

    @abstractmethod
    async def read_range(self, path: WorldPath | FileTarget, *, offset: int, size_bytes: int) -> bytes:
        """At most *size_bytes* from *offset* on; shorter only at the end of the file."""

    @abstractmethod
    async def read_text(
        self,
        path: WorldPath | FileTarget,
        *,
        encoding: str = "utf-8",
        max_bytes: int = DEFAULT_READ_LIMIT_BYTES,
    ) -> str:
        """The exact content, strictly decoded. No line end is changed and a byte order mark stays (U+FEFF).

        Raises:
            NotText: a NUL among the first 8192 bytes, or a byte sequence that is invalid in *encoding*.
            FileMissing, NotRegularFile, TooLarge
        """

    @abstractmethod
    def open_reader(self, path: WorldPath | FileTarget) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Stream the content in chunks of no particular size, in bounded memory. Leaving early frees the handle."""

    @abstractmethod
    def open_text_reader(
        self, path: WorldPath | FileTarget, *, encoding: str = "utf-8"
    ) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Like `open_reader`, decoded: the joined chunks equal `read_text`, with the same errors."""

    # Listing

    @abstractmethod
    async def list_directory(self, path: WorldPath | FileTarget) -> list[DirectoryEntry]:
        """Direct children in the order of their names by code point, on every host and in every locale.

        Raises:
            FileMissing, NotDirectory
        """

    @abstractmethod
    def walk(
        self, path: WorldPath | FileTarget, *, prune: Iterable[str] = (), max_depth: int | None = None
    ) -> AsyncIterator[DirectoryEntry | WalkError]:
        """Everything below *path*, in bounded memory: a directory before its children, no link followed.

        Args:
            path: The directory to start from; it is not itself an entry.
            prune: Names of directories that are reported but not entered.
            max_depth: 1 for direct children only.

        A directory that cannot be read is reported as a `WalkError`, and the walk goes on. Order among siblings is not
        promised.
        """

    @abstractmethod
    async def glob(
        self, pattern: str, *, root: WorldPath | FileTarget = ".", prune: Iterable[str] = ()
    ) -> list[DirectoryEntry]:
        """Entries below *root* whose path relative to it matches, ordered by path.

        ``*`` and ``?`` match within one component, hidden names too, ``[...]`` a set, ``**`` any number of components,
        ``{a,b}`` either. A pattern is never taken for an option.

        Raises:
            ValueError: the pattern is malformed.
        """

    @abstractmethod
    def watch(
        self, path: WorldPath | FileTarget, *, recursive: bool = True
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Events below a directory, from the moment the context is entered. Losing events is itself an event.

        Raises:
            Unsupported: the world cannot watch.
        """

    # Writes

    @abstractmethod
    async def write_bytes(
        self,
        path: WorldPath | FileTarget,
        data: bytes,
        *,
        expected: Expectation = None,
        mode: int | None = None,
        parents: bool = True,
        break_hard_links: bool = False,
        diff_limit_bytes: int = 0,
    ) -> WriteOutcome:
        """Create or replace a file. Observers see the whole old or the whole new content, also after a crash.

        The content goes to a private sibling file, is flushed to disk, and takes the target's place by a rename. A link
        is followed to its target. Permission bits (and, where permitted, the owner) of a replaced file are kept; a new
        file gets ``0666`` without the umask of the world.

        Args:
            path: The file.
            data: Its new content.
            expected: A version: replace only that version. ``"absent"``: create only, judged at the moment of
                publication and without following a dangling link. None: no demand.
            mode: Permission bits to set instead.
            parents: Create missing directories; those are removed again when the write fails.
            break_hard_links: Replace a file that has further names; they keep the old content.
            diff_limit_bytes: Return old and new text when both are smaller than this.

        Raises:
            StaleVersion: *expected* is a version and the file is absent or different. A file that another writer put
                there at the same moment is put back.
            NotObserved: *expected* is ``"absent"`` and a regular file exists.
            NotRegularFile: a directory or special file is there.
            HardLinked: the file has further names.
            NoSpace, NotDirectory
        """

    @abstractmethod
    async def write_text(
        self,
        path: WorldPath | FileTarget,
        text: str,
        *,
        encoding: str = "utf-8",
        expected: Expectation = None,
        mode: int | None = None,
        parents: bool = True,
        break_hard_links: bool = False,
        diff_limit_bytes: int = 0,
    ) -> WriteOutcome:
        """`write_bytes` of *text*, with its line ends as given."""

    @abstractmethod
    async def write_stream(
        self,
        path: WorldPath | FileTarget,
        chunks: AsyncIterable[bytes],
        *,
        expected: Expectation = None,
        mode: int | None = None,
        parents: bool = True,
        break_hard_links: bool = False,
    ) -> WriteOutcome:
        """`write_bytes` of all that *chunks* yields, in bounded memory. An error of the source changes nothing."""

    @abstractmethod
    async def edit_text(
        self,
        path: WorldPath | FileTarget,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        expected: Expectation = None,
        encoding: str = "utf-8",
    ) -> EditOutcome:
        """Replace *old* by *new*, literally. All promises of `write_bytes` hold.

        CRLF in file and arguments matches LF. Bytes outside the replaced text stay as they are: byte order mark, line
        ends, a missing last line feed. Line ends inside the new text take the style of the text they replace, or that
        of the file. The guard is judged before the text, so a stale edit says stale.

        Raises:
            StaleVersion: the file is absent, or not in the expected version, or changed meanwhile.
            EditNotFound: *old* is empty or does not occur.
            AmbiguousEdit: *old* occurs more than once and *replace_all* is not set.
            NotText: the content cannot be decoded, or holds a NUL.
            NotRegularFile, HardLinked, TooLarge
        """

    # Tree changes

    @abstractmethod
    async def make_directory(
        self, path: WorldPath | FileTarget, *, parents: bool = True, exist_ok: bool = True, mode: int = 0o777
    ) -> None:
        """Create a directory.

        Raises:
            FileAlreadyExists: something is there (with *exist_ok*: something that is no directory).
            FileMissing: a parent is missing and *parents* is not set.
        """

    @abstractmethod
    async def remove(
        self,
        path: WorldPath | FileTarget,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        expected: Expectation = None,
    ) -> None:
        """Remove a file, a link (never what it leads to) or a directory.

        Recursion pins every directory by descriptor and follows no link, so a directory swapped for a link meanwhile
        is not descended into.

        Raises:
            DirectoryNotEmpty: a directory with content and *recursive* is not set.
            StaleVersion: *expected* is a version and the file is different.
            FileMissing: there is nothing and *missing_ok* is not set.
        """

    @abstractmethod
    async def rename(
        self, source: WorldPath | FileTarget, target: WorldPath | FileTarget, *, replace: bool = False
    ) -> None:
        """Rename atomically within one file system; a link is renamed itself.

        Raises:
            FileAlreadyExists: *target* exists and *replace* is not set; judged at the moment of the rename.
            FileError: ``errno`` EXDEV when the two lie on different file systems.
        """

    @abstractmethod
    async def copy(
        self,
        source: WorldPath | FileTarget,
        target: WorldPath | FileTarget,
        *,
        recursive: bool = False,
        replace: bool = False,
    ) -> None:
        """Copy inside the world. Content, permission bits and modification times are kept; links are copied as links.

        A single file appears at *target* atomically. A recursive copy is not atomic, and needs an absent *target*.

        Raises:
            FileAlreadyExists: *target* exists and *replace* is not set.
            NotRegularFile: *source* is a directory and *recursive* is not set, or a special file.
        """

    @abstractmethod
    async def make_symlink(self, path: WorldPath | FileTarget, target: WorldPath) -> None:
        """Create a symbolic link at *path* with the text *target*.

        Raises:
            FileAlreadyExists
        """

    @abstractmethod
    async def set_mode(self, path: WorldPath | FileTarget, mode: int) -> None:
        """Set the permission bits of a file or directory, through an open descriptor."""
