"""The tool `grep`: find lines by an expression."""

from __future__ import annotations

import posixpath
from typing import Final

from pydantic import BaseModel, Field

from execworld.seams import (
    FileKind,
    FileMissing,
    NotRegularFile,
    SearchAborted,
    SearchFailed,
    SearchInvalidPattern,
)
from execworld.seams.paths import decode_path
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.search.matches import LONG_LINE_BYTES, PREVIEW_BYTES
from execworld.tools.search.parsing import PatternError
from execworld.tools.search.ripgrep import RipgrepFailed
from execworld.tools.search.searching import SearchTimeout, search_content
from execworld.tools.shown_paths import meant_path, shown_path
from execworld.tools.standard.glob import VERSION_CONTROL

SHOWN: Final = 250


class GrepConfig(BaseModel, extra="forbid", frozen=True):
    """What `grep` leaves out and shows."""

    prune: tuple[str, ...] = Field(
        default=VERSION_CONTROL, description="names of directories that are not searched"
    )
    shown: int = Field(default=SHOWN, gt=0, description="how many lines at most")
    timeout_s: float = Field(default=30, gt=0, description="how long a search may take")


class GrepArguments(BaseModel, extra="forbid", frozen=True):
    pattern: str = Field(
        description=(
            "A regular expression, matched line by line: sets, groups, `|`, `* + ? {n,m}`, `^ $ \\b`, "
            "`\\d \\w \\s` (ASCII), "
            "`(?i)` at the beginning. No look-around, no back-references."
        )
    )
    path: str = Field(
        default=".", min_length=1, description="A file or a directory; the working directory by default."
    )
    include: str | None = Field(
        default=None, min_length=1, description="Search only files of this name: `*.{c,h}`."
    )


class GrepMatch(BaseModel, frozen=True):
    """`text` is None where the line is not UTF-8."""

    path: str
    line_number: int
    text: str | None
    cut: bool = False


class GrepValue(BaseModel, frozen=True):
    path: str
    matches: tuple[GrepMatch, ...]
    total: int
    long_lines: int = 0
    unreadable: int = 0


def grep_tool(config: GrepConfig | None = None) -> Tool[GrepArguments, GrepValue]:
    """`grep`."""
    settings = config or GrepConfig()

    async def run(ctx: ToolContext, arguments: GrepArguments) -> GrepValue:
        world = ctx.world
        target = await world.fs.resolve(meant_path(arguments.path), cwd=ctx.session.cwd)
        shown = shown_path(target.display_path)
        info = await world.fs.stat(target)
        if info is None:
            raise FileMissing(f"{shown} does not exist", op="tools.grep", world=world.world_id)
        if info.kind not in (FileKind.FILE, FileKind.DIRECTORY):
            raise NotRegularFile(
                f"{shown} is neither file nor directory: {info.kind}", op="tools.grep", world=world.world_id
            )
        try:
            found = await search_content(
                world,
                arguments.pattern,
                target,
                info.kind,
                include=arguments.include if info.kind is FileKind.DIRECTORY else None,
                prune=settings.prune,
                limit=settings.shown,
                timeout_s=settings.timeout_s,
            )
        except PatternError as error:
            raise SearchInvalidPattern(
                f"pattern {arguments.pattern!r}: {error}",
                op="tools.grep",
                hint="a character with a meaning is taken literally behind a backslash",
            ) from error
        except SearchTimeout as error:
            raise SearchAborted(
                f"the search took longer than {settings.timeout_s:g} s and was ended",
                op="tools.grep",
                world=world.world_id,
                hint="name a narrower path, or an include",
            ) from error
        except RipgrepFailed as error:
            raise SearchFailed(f"the search broke: {error}", op="tools.grep", world=world.world_id) from error
        except ValueError as error:
            raise SearchInvalidPattern(f"include {arguments.include!r}: {error}", op="tools.grep") from error
        base = target.display_path
        if info.kind is not FileKind.DIRECTORY:
            base = posixpath.dirname(base)
        return GrepValue(
            path=shown,
            matches=tuple(
                GrepMatch(
                    path=shown_path(posixpath.join(base, decode_path(match.path))),
                    line_number=match.line_number,
                    text=match.text,
                    cut=match.cut,
                )
                for match in found.matches
            ),
            total=found.total,
            long_lines=found.long_lines,
            unreadable=found.unreadable,
        )

    return Tool(
        name="grep",
        description=(
            "Find lines that match a regular expression, in a file or in all text files below a directory, ordered by "
            "path. Hidden and ignored files are searched as well; binary files and what version control keeps for "
            "itself are not."
        ),
        arguments=GrepArguments,
        value=GrepValue,
        run=run,
        render=render,
        parallel_safe=True,
    )


def render(arguments: GrepArguments, value: GrepValue) -> Content:
    lines: list[str] = []
    if not value.total:
        lines.append("no matches")
    elif len(value.matches) < value.total:
        lines.append(f"{len(value.matches)} of {value.total} matching lines")
    else:
        lines.append("1 matching line" if value.total == 1 else f"{value.total} matching lines")
    path = None
    for match in value.matches:
        if match.path != path:
            path = match.path
            lines += ["", path]
        text = "[not UTF-8]" if match.text is None else match.text
        lines.append(f"{match.line_number}: {text}{f' [cut at {PREVIEW_BYTES} bytes]' if match.cut else ''}")
    if value.long_lines:
        lines.append(
            f"[{value.long_lines} matching lines are longer than {LONG_LINE_BYTES} bytes and not shown]"
        )
    if value.unreadable:
        lines.append(f"[{value.unreadable} files or directories could not be read]")
    return (Text("\n".join(lines)),)
