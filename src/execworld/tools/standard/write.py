"""The tool `write`: create a file or replace its whole content."""

from __future__ import annotations

from pydantic import BaseModel, Field

from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.escalation import Escalatable
from execworld.tools.observations import Observations, remedies
from execworld.tools.shown_paths import meant_path, shown_path


class WriteArguments(Escalatable, extra="forbid", frozen=True):
    file_path: str = Field(
        min_length=1, description="The file; a relative path starts at the working directory."
    )
    content: str = Field(description="Its whole new content.")


class WriteValue(BaseModel, frozen=True):
    path: str
    created: bool
    size_bytes: int


def write_tool(observations: Observations | None = None) -> Tool[WriteArguments, WriteValue]:
    """`write`, held to what *observations*, if there are any, say was seen."""

    async def run(ctx: ToolContext, arguments: WriteArguments) -> WriteValue:
        fs = ctx.world.fs
        target = await fs.resolve(meant_path(arguments.file_path), cwd=ctx.session.cwd)
        with remedies():
            expected = None
            if observations is not None:
                expected = await observations.expectation(ctx.session, ctx.world, target)
            outcome = await fs.write_text(target, arguments.content, expected=expected)
        if observations is not None:
            observations.record(ctx.session, target, outcome.version)
        return WriteValue(
            path=shown_path(target.display_path),
            created=outcome.created,
            size_bytes=outcome.version.size_bytes,
        )

    return Tool(
        name="write",
        description=(
            "Create a file, or replace all of its content. Missing directories are made. Read an existing file first, "
            "and prefer edit for changing a part of it."
        ),
        arguments=WriteArguments,
        value=WriteValue,
        run=run,
        render=render,
    )


def render(arguments: WriteArguments, value: WriteValue) -> Content:
    done = "created" if value.created else "updated"
    return (Text(f"{done} {value.path} ({value.size_bytes} bytes)"),)
