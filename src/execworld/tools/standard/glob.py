"""The tool `glob`: find files by name."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, Field

from execworld.seams import FileKind, InvalidPath, SearchInvalidPattern
from execworld.seams.paths import encode_path
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.shown_paths import meant_path, shown_path

SHOWN: Final = 100
VERSION_CONTROL: Final = (".git", ".hg", ".svn", ".jj", ".bzr", "CVS")


class GlobConfig(BaseModel, extra="forbid", frozen=True):
    """What `glob` leaves out and shows."""

    prune: tuple[str, ...] = Field(
        default=VERSION_CONTROL, description="names of directories that are not entered"
    )
    shown: int = Field(default=SHOWN, gt=0, description="how many files at most")


class GlobArguments(BaseModel, extra="forbid", frozen=True):
    pattern: str = Field(
        min_length=1,
        description="`*` and `?` match within a name, `**` any number of directories, `[...]` a set, `{a,b}` either.",
    )
    path: str = Field(
        default=".", min_length=1, description="Where to search; the working directory by default."
    )


class GlobValue(BaseModel, frozen=True):
    """The newest files first; `files` holds as many as are shown."""

    path: str
    files: tuple[str, ...]
    total: int


def glob_tool(config: GlobConfig | None = None) -> Tool[GlobArguments, GlobValue]:
    """`glob`."""
    settings = config or GlobConfig()

    async def run(ctx: ToolContext, arguments: GlobArguments) -> GlobValue:
        fs = ctx.world.fs
        target = await fs.resolve(meant_path(arguments.path), cwd=ctx.session.cwd)
        shown = shown_path(target.display_path)
        if not set(settings.prune).isdisjoint(target.process_path.split("/")):
            return GlobValue(path=shown, files=(), total=0)
        try:
            found = await fs.glob(arguments.pattern, root=target, prune=settings.prune)
        except InvalidPath:
            raise
        except ValueError as error:
            raise SearchInvalidPattern(f"{arguments.pattern!r}: {error}", op="tools.glob") from error
        files = [
            entry for entry in found if entry.kind is FileKind.FILE or entry.target_kind is FileKind.FILE
        ]
        files.sort(key=lambda entry: (-entry.info.modified_ns, encode_path(entry.path)))
        paths = tuple(shown_path(entry.path) for entry in files[: settings.shown])
        return GlobValue(path=shown, files=paths, total=len(files))

    return Tool(
        name="glob",
        description=(
            "Find files by a pattern of their path below a directory, the most recently changed first. Hidden and "
            "ignored files are found as well; what version control keeps for itself is not."
        ),
        arguments=GlobArguments,
        value=GlobValue,
        run=run,
        render=render,
        parallel_safe=True,
    )


def render(arguments: GlobArguments, value: GlobValue) -> Content:
    if not value.files:
        return (Text("no files found"),)
    lines = list(value.files)
    if value.total > len(lines):
        lines.append(
            f"[the newest {len(lines)} of {value.total} files; a narrower pattern or path shows the others]"
        )
    return (Text("\n".join(lines)),)
