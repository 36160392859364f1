"""The tool `list`: what a directory holds."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from execworld.seams import DirectoryEntry, FileKind, NotDirectory, WalkError
from execworld.seams.paths import encode_path
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.shown_paths import meant_path, shown_path

MAX_ENTRIES: Final = 1000
_SUFFIXES: Final = {
    FileKind.DIRECTORY: "/",
    FileKind.SYMLINK: "@",
    FileKind.FIFO: "|",
    FileKind.SOCKET: "=",
    FileKind.CHARACTER_DEVICE: "%",
    FileKind.BLOCK_DEVICE: "#",
}


class ListArguments(BaseModel, extra="forbid", frozen=True):
    path: str = Field(
        default=".", min_length=1, description="The directory; the working directory by default."
    )
    depth: int = Field(default=1, ge=1, le=10, description="How many levels.")
    limit: int = Field(default=MAX_ENTRIES, ge=1, le=MAX_ENTRIES, description="How many entries at most.")


class ListedEntry(BaseModel, frozen=True):
    """A path below the directory, and what it is."""

    path: str
    kind: FileKind


class ListValue(BaseModel, frozen=True):
    path: str
    entries: tuple[ListedEntry, ...]
    total: int
    unreadable: int = 0


def list_tool() -> Tool[ListArguments, ListValue]:
    """`list`."""

    async def run(ctx: ToolContext, arguments: ListArguments) -> ListValue:
        fs = ctx.world.fs
        target = await fs.resolve(meant_path(arguments.path), cwd=ctx.session.cwd)
        shown = shown_path(target.display_path)
        found: list[DirectoryEntry] = []
        unreadable = 0
        if arguments.depth == 1:
            found = await fs.list_directory(target)
        else:
            info = await fs.stat(target)
            if info is not None and info.kind is not FileKind.DIRECTORY:
                raise NotDirectory(f"{shown} is no directory", op="tools.list", world=ctx.world.world_id)
            async for entry in fs.walk(target, max_depth=arguments.depth):
                if isinstance(entry, WalkError):
                    unreadable += 1
                else:
                    found.append(entry)
        base = len(encode_path(target.display_path).rstrip(b"/")) + 1
        paths = sorted((encode_path(entry.path)[base:], entry.kind) for entry in found)
        entries = tuple(
            ListedEntry(path=shown_path(path), kind=kind) for path, kind in paths[: arguments.limit]
        )
        return ListValue(path=shown, entries=entries, total=len(paths), unreadable=unreadable)

    return Tool(
        name="list",
        description=(
            "List what a directory holds, hidden names too, in the order of the names. A directory ends in `/`, a link "
            "in `@`. Use glob to find files by name."
        ),
        arguments=ListArguments,
        value=ListValue,
        run=run,
        render=render,
        parallel_safe=True,
    )


def render(arguments: ListArguments, value: ListValue) -> Content:
    lines = [f"{entry.path}{_SUFFIXES.get(entry.kind, '')}" for entry in value.entries] or ["(empty)"]
    if value.total > len(value.entries):
        lines.append(f"[{len(value.entries)} of {value.total} entries]")
    if value.unreadable:
        lines.append(f"[{value.unreadable} directories could not be read]")
    return (Text("\n".join([f"directory: {value.path}", *lines])),)
