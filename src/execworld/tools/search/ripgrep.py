"""The search by ripgrep, where the world has it."""

from __future__ import annotations

import base64
import json
import posixpath
import re
from collections.abc import Callable, Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from execworld.seams import (
    CommandNotExecutable,
    CommandNotFound,
    CommandResult,
    CommandStatus,
    FileTarget,
    OutputLimits,
    OutputStream,
    World,
)
from execworld.seams.paths import encode_path
from execworld.tools.search import syntax
from execworld.tools.search.matches import LONG_LINE_BYTES, MAX_FILE_BYTES, Collector, FileMatches
from execworld.tools.search.syntax import Node

OLDEST_VERSION: Final = (13, 0, 0)
_VERSION: Final = re.compile(rb"ripgrep (\d+)\.(\d+)\.(\d+)\b")
# A message holds a line twice, each byte written with at most six characters; a longer one holds a long line for sure.
_MAX_MESSAGE_BYTES: Final = 2 * 6 * LONG_LINE_BYTES + 64 * 1024
_STDERR_BYTES: Final = 64 * 1024
_OPTIONS: Final = (
    "--json",
    "--no-config",
    "--no-ignore",
    "--hidden",
    "--no-follow",
    "--no-mmap",  # so that all of a file is looked at for NUL, not just its beginning
    "--encoding=none",
    "--case-sensitive",
    "--no-crlf",
    "--regex-size-limit=100M",
    f"--max-filesize={MAX_FILE_BYTES}",
)
_PLAIN_SUFFIX: Final = re.compile(r"\*(?:\.[A-Za-z0-9_]+)+")

_FOUND: Final[WeakKeyDictionary[World, str | None]] = WeakKeyDictionary()


class RipgrepFailed(Exception):
    """It did not finish its work; the text is what it said."""


async def find_ripgrep(world: World) -> str | None:
    """Path of a ripgrep in the world that is new enough; None when there is none. Asked once of each view."""
    if world in _FOUND:
        return _FOUND[world]
    try:
        program = await world.subprocess.resolve_executable("rg")
        result = await world.subprocess.run([program, "--no-config", "--version"], timeout_s=10)
    except (CommandNotFound, CommandNotExecutable):
        return _FOUND.setdefault(world, None)
    match = _VERSION.match(result.stdout.head)
    is_usable = result.ok and match is not None and tuple(map(int, match.groups())) >= OLDEST_VERSION
    return _FOUND.setdefault(world, program if is_usable else None)


async def search(
    world: World,
    program: str,
    node: Node,
    root: FileTarget,
    *,
    is_file: bool,
    include: str | None,
    accepts: Callable[[bytes], bool],
    prune: Iterable[str],
    collector: Collector,
    limit: int,
    timeout_s: float | None,
) -> CommandResult:
    """Search below *root* and hand what is found to *collector*.

    Raises:
        RipgrepFailed
    """
    directory = posixpath.dirname(root.process_path) if is_file else root.process_path
    place = "./" + posixpath.basename(root.process_path) if is_file else "."
    # What follows the match is taken as well, so that a line is one match, however often the expression occurs in it.
    expression = f"(?:{syntax.as_rust(node)})(?-u:[^\\n])*"
    argv = [program, *_OPTIONS, f"--regexp={expression}"]
    if not is_file:
        argv += [f"--glob=!{name}/" for name in prune]
        if include is not None and _PLAIN_SUFFIX.fullmatch(include):
            argv.append(f"--glob={include}")  # spares it most files; `accepts` decides
    reader = _Messages(accepts, collector, limit)
    result = await world.subprocess.run(
        [*argv, "--", place],
        cwd=directory,
        limits=OutputLimits(head_bytes=0, tail_bytes=_STDERR_BYTES),
        timeout_s=timeout_s,
        on_output=reader.take,
        env={"RIPGREP_CONFIG_PATH": None},
    )
    collector.unreadable = reader.complaints
    if result.status is CommandStatus.EXITED and not reader.finished:
        raise RipgrepFailed(result.stderr.text.strip())
    return result


class _Messages:
    """Reads the messages, one a line, in bounded memory."""

    def __init__(self, accepts: Callable[[bytes], bool], collector: Collector, limit: int) -> None:
        self._accepts = accepts
        self._collector = collector
        self._limit = limit
        self._pending = bytearray()
        self._too_long = False
        self._file: FileMatches | None = None
        self.complaints = 0
        self.finished = False

    async def take(self, stream: OutputStream, chunk: bytes) -> None:
        if stream is OutputStream.STDERR:
            self.complaints += chunk.count(b"\n")  # one line for each thing that could not be read
            return
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            self._keep(chunk[start:end])
            self._message()
            start = end + 1
        self._keep(chunk[start:])

    def _keep(self, data: bytes) -> None:
        if len(self._pending) + len(data) > _MAX_MESSAGE_BYTES:
            self._too_long = True
        if not self._too_long:
            self._pending += data

    def _message(self) -> None:
        data, self._pending = self._pending, bytearray()
        too_long, self._too_long = self._too_long, False
        if too_long:
            if self._file is not None:
                self._file.total += 1
                self._file.long_lines += 1
            return
        if len(data) <= LONG_LINE_BYTES and self._is_only_counted(data):
            return
        message: dict[str, Any] = json.loads(data)
        content: dict[str, Any] = message["data"]
        match message["type"]:
            case "begin":
                path = _bytes(content["path"]).removeprefix(b"./")
                self._file = FileMatches(path, self._limit) if self._accepts(path) else None
            case "match" if self._file is not None:
                self._file.add(content["line_number"], _bytes(content["lines"]))
            case "end":
                if self._file is not None and content["binary_offset"] is None:
                    self._collector.add_file(self._file)
                self._file = None
            case "summary":
                self.finished = True
            case _:
                pass

    def _is_only_counted(self, data: bytearray) -> bool:
        """Whether *data* tells of a match of which no more is needed than that it is there; taken in then."""
        if not data.startswith(b'{"type":"match",') or (self._file is not None and not self._file.full):
            return False
        if self._file is not None:
            self._file.total += 1
        return True


def _bytes(field: dict[str, str]) -> bytes:
    return encode_path(field["text"]) if "text" in field else base64.b64decode(field["bytes"])
