"""The search where the world has no program for it: the files of the world are read through the seam."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import anyio
import anyio.from_thread
import anyio.to_thread

from execworld.seams import (
    FileError,
    FileInfo,
    FileKind,
    FileMissing,
    FileSystem,
    FileTarget,
    NotRegularFile,
    TooLarge,
    WalkError,
)
from execworld.seams.paths import encode_path
from execworld.tools.search.automaton import Matcher
from execworld.tools.search.matches import MAX_FILE_BYTES, Collector, FileMatches
from execworld.tools.search.prefilter import prefilter
from execworld.tools.search.syntax import Node

_READERS: Final = 8
_BLOCK_BYTES: Final = 1024 * 1024


async def search(
    fs: FileSystem,
    node: Node,
    root: FileTarget,
    *,
    is_file: bool,
    accepts: Callable[[bytes], bool],
    prune: Iterable[str],
    collector: Collector,
    limit: int,
) -> None:
    """Search below *root* and hand what is found to *collector*."""
    lines = LineSearch(node)
    if is_file:
        path = encode_path(root.process_path).rpartition(b"/")[2]
        await _search_file(fs, root, path, lines, collector, limit)
        return
    base = len(encode_path(root.process_path).rstrip(b"/")) + 1
    send, receive = anyio.create_memory_object_stream[tuple[str, bytes, int]](4 * _READERS)
    absolute = root.process_path

    async def read_files() -> None:
        async for path, relative, size_bytes in receive:
            await _search_file(fs, path, relative, lines, collector, limit, size_bytes)

    async with receive, anyio.create_task_group() as group:
        for _ in range(_READERS):
            group.start_soon(read_files)
        async with send:
            async for entry in fs.walk(absolute, prune=prune):
                if isinstance(entry, WalkError):
                    collector.unreadable += 1
                elif entry.kind is FileKind.FILE and _is_small(entry.info):
                    relative = encode_path(entry.path)[base:]
                    if accepts(relative):
                        await send.send((entry.path, relative, entry.info.size_bytes))


def _is_small(info: FileInfo) -> bool:
    return info.size_bytes <= MAX_FILE_BYTES


async def _search_file(
    fs: FileSystem,
    path: str | FileTarget,
    relative: bytes,
    lines: LineSearch,
    collector: Collector,
    limit: int,
    size_bytes: int = 0,
) -> None:
    found = FileMatches(relative, limit)
    number, rest = 1, b""
    try:
        if 0 < size_bytes <= _BLOCK_BYTES:
            rest = await _whole(fs, path)
            if b"\0" in rest:
                return
        if rest:
            await lines.search(rest, number, found)
            collector.add_file(found)
            return
        async with fs.open_reader(path) as chunks:
            async for chunk in chunks:
                if b"\0" in chunk:
                    return
                rest += chunk
                if len(rest) < _BLOCK_BYTES or (end := rest.rfind(b"\n") + 1) == 0:
                    continue
                number = await lines.search(rest[:end], number, found)
                rest = rest[end:]
    except (FileMissing, NotRegularFile):
        return  # it went away, or is something else by now
    except FileError:
        collector.unreadable += 1
        return
    if rest:
        await lines.search(rest, number, found)
    collector.add_file(found)


async def _whole(fs: FileSystem, path: str | FileTarget) -> bytes:
    """A small file in one exchange; nothing when it has grown, so that it is streamed."""
    try:
        return await fs.read_bytes(path, max_bytes=_BLOCK_BYTES)
    except TooLarge:
        return b""


class LineSearch:
    """Finds the lines in which an expression occurs."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._prefilter = prefilter(node)
        self._matcher = Matcher(node, anyio.from_thread.check_cancelled)
        self._one_at_a_time = anyio.Lock()

    async def search(self, block: bytes, number: int, found: FileMatches) -> int:
        """Look at whole lines, of which the first has *number*; gives the number of the line behind them."""
        if self._prefilter is not None:
            text = block.decode("utf-8", "surrogateescape")
            expression, exact = self._prefilter
            if expression.search(text) is None:
                return number + block.count(b"\n")
            if exact and len(block) < _BLOCK_BYTES:
                self._by_prefilter(text, number, found)
                return number + block.count(b"\n")
        async with self._one_at_a_time:
            await anyio.to_thread.run_sync(self._scan, block, number, found)
        return number + block.count(b"\n")

    def _scan(self, block: bytes, number: int, found: FileMatches) -> None:
        text = block.decode("utf-8", "surrogateescape")
        if self._prefilter is not None:
            self._by_prefilter(text, number, found)
            return
        for offset, line in enumerate(_lines(text)):
            if self._matcher.occurs_in(line):
                found.add(number + offset, line.encode("utf-8", "surrogateescape"))

    def _by_prefilter(self, text: str, number: int, found: FileMatches) -> None:
        assert self._prefilter is not None
        expression, exact = self._prefilter
        position = counted = 0
        while (candidate := expression.search(text, position)) is not None:
            start = text.rfind("\n", 0, candidate.start()) + 1
            end = text.find("\n", candidate.start())
            end = len(text) if end < 0 else end
            number += text.count("\n", counted, start)
            counted = start
            line = text[start:end]
            if exact or self._matcher.occurs_in(line):
                found.add(number, line.encode("utf-8", "surrogateescape"))
            position = end + 1
            if position > len(text):
                break


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    if not lines[-1]:
        del lines[-1]
    return lines
