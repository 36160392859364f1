"""Values of the file system seam."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from execworld.seams.values import value_class


class FileKind(StrEnum):
    """Type of a directory entry (inode(7))."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    FIFO = "fifo"
    SOCKET = "socket"
    CHARACTER_DEVICE = "character-device"
    BLOCK_DEVICE = "block-device"
    OTHER = "other"


_VERSION_FORM: Final = re.compile(r"v1-([0-9a-f]+)-([0-9a-f]+)-([0-9a-f]+)-(-?[0-9a-f]+)-(-?[0-9a-f]+)")


@value_class
class FileVersion:
    """Identifies one state of one file: equal exactly when the file was not replaced or changed in between.

    Made of device, inode, size, modification and change time in nanoseconds, so it notices a rewrite of the same size
    with the old modification time restored. Two rewrites of equal size within one tick of the file system's clock can
    stay unseen on file systems with coarse timestamps.
    """

    device: int
    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    def __str__(self) -> str:
        return (
            f"v1-{self.device:x}-{self.inode:x}-{self.size_bytes:x}-{self.modified_ns:x}-{self.changed_ns:x}"
        )

    @classmethod
    def parse(cls, text: str) -> FileVersion:
        """The inverse of ``str``.

        Raises:
            ValueError: *text* is not a version.
        """
        match = _VERSION_FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"not a file version: {text!r}")
        return cls(*(int(number, 16) for number in match.groups()))


Expectation: TypeAlias = "FileVersion | Literal['absent'] | None"
"""What a write demands of the target: a version, that it does not exist, or nothing."""


@value_class
class FileTarget:
    """A resolved path.

    Attributes:
        display_path: Absolute and lexically normalised; symbolic links are not resolved.
        process_path: Canonical path that a process of the same world can open, whatever links lead to it.
        key: Opaque identity: equal for all spellings of one file. Never parse it.
        world_id: The world that the target belongs to.
    """

    display_path: str
    process_path: str
    key: str
    world_id: str


@value_class
class FileInfo:
    """Metadata of one file.

    Attributes:
        path: Absolute path as asked for, lexically normalised.
        kind: Type; never ``symlink`` when links were followed.
        size_bytes: As stated by the kernel; 0 for files under /proc that do have content.
        mode: The twelve permission bits.
        links: Number of hard links.
        version: Equal exactly when unchanged.
    """

    path: str
    kind: FileKind
    size_bytes: int
    mode: int
    uid: int
    gid: int
    links: int
    modified_ns: int
    version: FileVersion


@value_class
class DirectoryEntry:
    """One child found by a listing or a walk.

    Attributes:
        name: The last component, every byte kept (PEP 383).
        path: Display path: that of the listed directory plus the name.
        kind: Type of the entry itself.
        target_kind: For a link, the type of what it leads to, None when that does not exist; else equal to *kind*.
        info: Metadata of the entry itself, links not followed.
    """

    name: str
    path: str
    kind: FileKind
    target_kind: FileKind | None
    info: FileInfo


@value_class
class WalkError:
    """A directory that a walk could not read, and why (an error code of the fs family)."""

    path: str
    code: str


@value_class
class WriteOutcome:
    """A finished write.

    Attributes:
        created: The file did not exist before.
        version: Version of what was written; a stat right afterwards gives the same.
        path: Canonical path that was written (a link was followed to it).
        before: Old text with LF line ends when a diff was asked for and is available, else None.
        after: New text likewise.
    """

    created: bool
    version: FileVersion
    path: str
    before: str | None = None
    after: str | None = None


@value_class
class EditOutcome:
    """A finished edit.

    Attributes:
        replacements: How many occurrences were replaced.
        before: Old text with LF line ends.
        after: New text with LF line ends.
    """

    replacements: int
    version: FileVersion
    path: str
    before: str
    after: str


class WatchEventKind(StrEnum):
    CREATED = "created"
    CHANGED = "changed"
    REMOVED = "removed"
    OVERFLOW = "overflow"


@value_class
class WatchEvent:
    """Something changed below a watched directory.

    ``overflow`` means that events were lost, path is then the watched directory: list it again.
    """

    kind: WatchEventKind
    path: str


@value_class
class FileSystemSpace:
    """Capacity of the file system that a path lies on, as for an unprivileged user (statvfs(3))."""

    total_bytes: int
    available_bytes: int
