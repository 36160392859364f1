"""The tool `read`: a window of lines of a text file, or an image."""

from __future__ import annotations

import base64
from typing import Final, Literal

from pydantic import BaseModel, Field

from execworld.seams import FileMissing, FileTarget, NotText, TooLarge
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Image, Text
from execworld.tools.definition import Tool
from execworld.tools.observations import Observations, version_of
from execworld.tools.shown_paths import meant_path, shown_path
from execworld.tools.standard.windows import LineWindow

MAX_LINES: Final = 2000
LINE_CHARACTERS: Final = 2000
_BINARY_WINDOW_BYTES: Final = 8192
_COUNT_BYTES: Final = 64 * 1024 * 1024
"""How far beyond the window a file is read to count its lines."""
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", b"", "image/png"),
    (b"\xff\xd8\xff", b"", "image/jpeg"),
    (b"GIF87a", b"", "image/gif"),
    (b"GIF89a", b"", "image/gif"),
    (b"RIFF", b"WEBP", "image/webp"),
)


class ReadConfig(BaseModel, extra="forbid", frozen=True):
    """Limits of `read`."""

    window_bytes: int = Field(default=51_200, gt=0, description="of text in one window")
    image_bytes: int = Field(default=5 * 1024 * 1024, ge=0, description="of an image; 0 for no images")


class ReadArguments(BaseModel, extra="forbid", frozen=True):
    file_path: str = Field(
        min_length=1, description="The file; a relative path starts at the working directory."
    )
    offset: int = Field(default=1, ge=1, description="First line, from 1.")
    limit: int = Field(default=MAX_LINES, ge=1, le=MAX_LINES, description="How many lines at most.")


class ReadLine(BaseModel, frozen=True):
    number: int
    text: str
    cut: bool = False


class ReadImage(BaseModel, frozen=True):
    media_type: str
    base64: str


class ReadValue(BaseModel, frozen=True):
    """What was read. `total_lines` is None where the file is too large to count them."""

    path: str
    kind: Literal["text", "image"]
    lines: tuple[ReadLine, ...] = ()
    total_lines: int | None = None
    next_offset: int | None = None
    byte_capped: bool = False
    invalid_lines: int = 0
    image: ReadImage | None = None


def read_tool(
    config: ReadConfig | None = None, observations: Observations | None = None
) -> Tool[ReadArguments, ReadValue]:
    """`read`, which tells *observations*, if there are any, what was seen."""
    limits = config or ReadConfig()

    async def run(ctx: ToolContext, arguments: ReadArguments) -> ReadValue:
        fs = ctx.world.fs
        target = await fs.resolve(meant_path(arguments.file_path), cwd=ctx.session.cwd)
        try:
            version = await version_of(ctx.world, target)
        except FileMissing:
            if observations is not None:
                observations.forget(ctx.session, target)
            raise
        value = await _read(ctx, target, arguments, limits)
        if observations is not None:
            observations.record(ctx.session, target, version)
        return value

    return Tool(
        name="read",
        description=(
            "Read a text file as numbered lines, or look at an image (PNG, JPEG, GIF, WebP). Use offset and limit for "
            f"another part of a long file. A line is cut at {LINE_CHARACTERS} characters. Read a file before you "
            "change it."
        ),
        arguments=ReadArguments,
        value=ReadValue,
        run=run,
        render=render,
        parallel_safe=True,
        limit_bytes=limits.window_bytes + 64 * 1024,
    )


async def _read(
    ctx: ToolContext, target: FileTarget, arguments: ReadArguments, limits: ReadConfig
) -> ReadValue:
    shown = shown_path(target.display_path)
    window = LineWindow(arguments.offset, arguments.limit, LINE_CHARACTERS, limits.window_bytes)
    seen = 0
    counted = True
    async with ctx.world.fs.open_reader(target) as chunks:
        async for chunk in chunks:
            if seen == 0 and limits.image_bytes and (media_type := _image_type(chunk)):
                return await _read_image(ctx, target, media_type, limits)
            if seen < _BINARY_WINDOW_BYTES and b"\0" in chunk[: _BINARY_WINDOW_BYTES - seen]:
                raise NotText(
                    f"{shown} holds NUL bytes: it is no text",
                    op="tools.read",
                    world=ctx.world.world_id,
                    hint="look at it with a program that knows its format",
                )
            window.feed(chunk)
            seen += len(chunk)
            if window.complete and seen > _COUNT_BYTES:
                counted = False
                break
    window.end()
    total = window.line_count if counted else None
    if total is not None and arguments.offset > max(total, 1):
        raise FileMissing(
            f"{shown} has {total} lines, none from {arguments.offset} on",
            op="tools.read",
            world=ctx.world.world_id,
        )
    following = arguments.offset + len(window.lines)
    return ReadValue(
        path=shown,
        kind="text",
        lines=tuple(ReadLine(number=line.number, text=line.text, cut=line.cut) for line in window.lines),
        total_lines=total,
        next_offset=following if total is None or following <= total else None,
        byte_capped=window.byte_capped,
        invalid_lines=window.invalid_lines,
    )


async def _read_image(ctx: ToolContext, target: FileTarget, media_type: str, limits: ReadConfig) -> ReadValue:
    try:
        data = await ctx.world.fs.read_bytes(target, max_bytes=limits.image_bytes)
    except TooLarge as error:
        error.hint = "make a smaller copy of the image"
        raise
    image = ReadImage(media_type=media_type, base64=base64.b64encode(data).decode("ascii"))
    return ReadValue(path=shown_path(target.display_path), kind="image", image=image)


def _image_type(head: bytes) -> str | None:
    for first, eighth, media_type in _SIGNATURES:
        if head.startswith(first) and head[8:].startswith(eighth):
            return media_type
    return None


def render(arguments: ReadArguments, value: ReadValue) -> Content:
    """The lines with their numbers, and at the end what follows."""
    if value.image is not None:
        data = base64.b64decode(value.image.base64)
        return (
            Text(f"{value.path}: {value.image.media_type}, {len(data)} bytes"),
            Image(value.image.media_type, data),
        )
    cut = f" [line cut at {LINE_CHARACTERS} characters]"
    shown = [f"{line.number}: {line.text}{cut if line.cut else ''}" for line in value.lines]
    if value.invalid_lines:
        shown.append(
            f"[bytes that are not UTF-8 are shown as \ufffd in {value.invalid_lines} of these lines]"
        )
    return (Text("\n".join([f"file: {value.path}", *shown, _footer(value)])),)


def _footer(value: ReadValue) -> str:
    total = "more lines" if value.total_lines is None else f"{value.total_lines} lines in all"
    if value.next_offset is None:
        return f"[end of file, {total}]"
    why = "as many bytes as are shown at once; " if value.byte_capped else ""
    return f"[{why}{total}; go on with offset {value.next_offset}]"
