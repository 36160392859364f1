"""The file system seam, blocking."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from execworld.seams import (
    DEFAULT_READ_LIMIT_BYTES,
    DirectoryEntry,
    EditOutcome,
    Expectation,
    FileInfo,
    FileSystem,
    FileSystemSpace,
    FileTarget,
    WalkError,
    WatchEvent,
    WorldPath,
    WriteOutcome,
)
from execworld.sync.bridge import Bridge


class SyncFileSystem:
    """The files of one world. Every method promises what the one of `FileSystem` with its name does."""

    def __init__(self, bridge: Bridge, fs: FileSystem) -> None:
        self._bridge = bridge
        self._fs = fs

    @property
    def world_id(self) -> str:
        return self._fs.world_id

    @property
    def view_id(self) -> str:
        return self._fs.view_id

    def resolve(self, path: WorldPath | FileTarget, *, cwd: WorldPath | None = None) -> FileTarget:
        return self._bridge.call(lambda: self._fs.resolve(path, cwd=cwd))

    def file_url(self, target: FileTarget) -> str:
        return self._fs.file_url(target)

    def contains(self, parent: FileTarget, child: FileTarget) -> bool:
        return self._fs.contains(parent, child)

    def stat(self, path: WorldPath | FileTarget) -> FileInfo | None:
        return self._bridge.call(lambda: self._fs.stat(path))

    def lstat(self, path: WorldPath | FileTarget) -> FileInfo | None:
        return self._bridge.call(lambda: self._fs.lstat(path))

    def read_link(self, path: WorldPath | FileTarget) -> str:
        return self._bridge.call(lambda: self._fs.read_link(path))

    def space(self, path: WorldPath | FileTarget) -> FileSystemSpace:
        return self._bridge.call(lambda: self._fs.space(path))

    def read_bytes(self, path: WorldPath | FileTarget, *, max_bytes: int = DEFAULT_READ_LIMIT_BYTES) -> bytes:
        return self._bridge.call(lambda: self._fs.read_bytes(path, max_bytes=max_bytes))

    def read_range(self, path: WorldPath | FileTarget, *, offset: int, size_bytes: int) -> bytes:
        return self._bridge.call(lambda: self._fs.read_range(path, offset=offset, size_bytes=size_bytes))

    def read_text(
        self,
        path: WorldPath | FileTarget,
        *,
        encoding: str = "utf-8",
        max_bytes: int = DEFAULT_READ_LIMIT_BYTES,
    ) -> str:
        return self._bridge.call(lambda: self._fs.read_text(path, encoding=encoding, max_bytes=max_bytes))

    @contextmanager
    def open_reader(self, path: WorldPath | FileTarget) -> Generator[Iterator[bytes]]:
        with self._bridge.enter(self._fs.open_reader(path)) as chunks:
            yield self._bridge.iterate(chunks)

    @contextmanager
    def open_text_reader(
        self, path: WorldPath | FileTarget, *, encoding: str = "utf-8"
    ) -> Generator[Iterator[str]]:
        with self._bridge.enter(self._fs.open_text_reader(path, encoding=encoding)) as chunks:
            yield self._bridge.iterate(chunks)

    def list_directory(self, path: WorldPath | FileTarget) -> list[DirectoryEntry]:
        return self._bridge.call(lambda: self._fs.list_directory(path))

    def walk(
        self, path: WorldPath | FileTarget, *, prune: Iterable[str] = (), max_depth: int | None = None
    ) -> Iterator[DirectoryEntry | WalkError]:
        return self._bridge.iterate(self._fs.walk(path, prune=prune, max_depth=max_depth))

    def glob(
        self, pattern: str, *, root: WorldPath | FileTarget = ".", prune: Iterable[str] = ()
    ) -> list[DirectoryEntry]:
        return self._bridge.call(lambda: self._fs.glob(pattern, root=root, prune=prune))

    @contextmanager
    def watch(
        self, path: WorldPath | FileTarget, *, recursive: bool = True
    ) -> Generator[Iterator[WatchEvent]]:
        with self._bridge.enter(self._fs.watch(path, recursive=recursive)) as events:
            yield self._bridge.iterate(events)

    def write_bytes(
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
        return self._bridge.call(
            lambda: self._fs.write_bytes(
                path,
                data,
                expected=expected,
                mode=mode,
                parents=parents,
                break_hard_links=break_hard_links,
                diff_limit_bytes=diff_limit_bytes,
            )
        )

    def write_text(
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
        return self._bridge.call(
            lambda: self._fs.write_text(
                path,
                text,
                encoding=encoding,
                expected=expected,
                mode=mode,
                parents=parents,
                break_hard_links=break_hard_links,
                diff_limit_bytes=diff_limit_bytes,
            )
        )

    def write_stream(
        self,
        path: WorldPath | FileTarget,
        chunks: Iterable[bytes],
        *,
        expected: Expectation = None,
        mode: int | None = None,
        parents: bool = True,
        break_hard_links: bool = False,
    ) -> WriteOutcome:
        """As `FileSystem.write_stream`; *chunks* is iterated in the calling thread."""
        return self._bridge.feed(
            lambda source: self._fs.write_stream(
                path,
                source,
                expected=expected,
                mode=mode,
                parents=parents,
                break_hard_links=break_hard_links,
            ),
            chunks,
        )

    def edit_text(
        self,
        path: WorldPath | FileTarget,
        old: str,
        new: str,
        *,
        replace_all: bool = False,
        expected: Expectation = None,
        encoding: str = "utf-8",
    ) -> EditOutcome:
        return self._bridge.call(
            lambda: self._fs.edit_text(
                path, old, new, replace_all=replace_all, expected=expected, encoding=encoding
            )
        )

    def make_directory(
        self, path: WorldPath | FileTarget, *, parents: bool = True, exist_ok: bool = True, mode: int = 0o777
    ) -> None:
        self._bridge.call(
            lambda: self._fs.make_directory(path, parents=parents, exist_ok=exist_ok, mode=mode)
        )

    def remove(
        self,
        path: WorldPath | FileTarget,
        *,
        recursive: bool = False,
        missing_ok: bool = False,
        expected: Expectation = None,
    ) -> None:
        self._bridge.call(
            lambda: self._fs.remove(path, recursive=recursive, missing_ok=missing_ok, expected=expected)
        )

    def rename(
        self, source: WorldPath | FileTarget, target: WorldPath | FileTarget, *, replace: bool = False
    ) -> None:
        self._bridge.call(lambda: self._fs.rename(source, target, replace=replace))

    def copy(
        self,
        source: WorldPath | FileTarget,
        target: WorldPath | FileTarget,
        *,
        recursive: bool = False,
        replace: bool = False,
    ) -> None:
        self._bridge.call(lambda: self._fs.copy(source, target, recursive=recursive, replace=replace))

    def make_symlink(self, path: WorldPath | FileTarget, target: WorldPath) -> None:
        self._bridge.call(lambda: self._fs.make_symlink(path, target))

    def set_mode(self, path: WorldPath | FileTarget, mode: int) -> None:
        self._bridge.call(lambda: self._fs.set_mode(path, mode))
