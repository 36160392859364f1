"""Search by content: ripgrep where the world has it, else a reading of its files; the answer is the same."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from enum import StrEnum

import anyio

from execworld.seams import CommandStatus, FileKind, FileTarget, World
from execworld.seams.paths import decode_path
from execworld.seams.patterns import Glob
from execworld.tools.search import portable, ripgrep
from execworld.tools.search.matches import Collector, Found
from execworld.tools.search.parsing import parse


class Engine(StrEnum):
    RIPGREP = "ripgrep"
    PORTABLE = "portable"


class SearchTimeout(Exception):
    """The time limit passed before the search was over."""


async def search_content(
    world: World,
    pattern: str,
    root: FileTarget,
    kind: FileKind,
    *,
    include: str | None = None,
    prune: Sequence[str] = (),
    limit: int = 250,
    timeout_s: float | None = None,
    engine: Engine | None = None,
) -> Found:
    """Lines that match *pattern*, in the file *root* or in all regular files below it; no link is followed.

    Files that hold a NUL are no text and are skipped. Hidden and ignored files are searched like all others, but for
    what lies below a directory with a name in *prune*.

    Args:
        engine: None for the best one that the world has.

    Raises:
        PatternError, ValueError: *pattern* or *include* is malformed.
        RipgrepFailed, SearchTimeout
    """
    node = parse(pattern)
    glob = None if include is None else Glob(include if "/" in include else f"**/{include}")

    def accepts(path: bytes) -> bool:
        return glob is None or glob.matches(decode_path(path), is_directory=False)

    collector = Collector(limit)
    is_file = kind is not FileKind.DIRECTORY
    program = None if engine is Engine.PORTABLE else await ripgrep.find_ripgrep(world)
    if program is None and engine is Engine.RIPGREP:
        raise ripgrep.RipgrepFailed("the world has no ripgrep")
    if program is not None:
        result = await ripgrep.search(
            world,
            program,
            node,
            root,
            is_file=is_file,
            include=include,
            accepts=accepts,
            prune=prune,
            collector=collector,
            limit=limit,
            timeout_s=timeout_s,
        )
        if result.status is CommandStatus.TIMED_OUT:
            raise SearchTimeout
        if result.status is not CommandStatus.EXITED:
            raise ripgrep.RipgrepFailed(f"it was ended: {result.status}")
        return collector.found()
    try:
        with anyio.fail_after(timeout_s) if timeout_s is not None else nullcontext():
            await portable.search(
                world.fs,
                node,
                root,
                is_file=is_file,
                accepts=accepts,
                prune=prune,
                collector=collector,
                limit=limit,
            )
    except TimeoutError:
        raise SearchTimeout from None
    return collector.found()
