"""The tool `edit`: replace literal text in a file."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field, model_validator

from execworld.seams import EditOutcome, Expectation, FileSystem, FileTarget, NotText
from execworld.tools.calls import ToolContext
from execworld.tools.content import Content, Text
from execworld.tools.definition import Tool
from execworld.tools.escalation import Escalatable
from execworld.tools.observations import Observations, remedies, version_of
from execworld.tools.shown_paths import meant_path, shown_path


class EditArguments(Escalatable, extra="forbid", frozen=True):
    file_path: str = Field(
        min_length=1, description="The file; a relative path starts at the working directory."
    )
    old_string: str = Field(min_length=1, description="The exact text to replace, as in the file.")
    new_string: str = Field(description="What takes its place.")
    replace_all: bool = Field(default=False, description="Replace every occurrence instead of the only one.")

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if self.old_string == self.new_string:
            raise ValueError("old_string and new_string are the same")
        return self


class EditValue(BaseModel, frozen=True):
    path: str
    replacements: int


def edit_tool(observations: Observations | None = None) -> Tool[EditArguments, EditValue]:
    """`edit`, held to what *observations*, if there are any, say was seen."""

    async def run(ctx: ToolContext, arguments: EditArguments) -> EditValue:
        fs = ctx.world.fs
        target = await fs.resolve(meant_path(arguments.file_path), cwd=ctx.session.cwd)
        await version_of(ctx.world, target)  # says that nothing is there, where the guard would say stale
        with remedies():
            expected: Expectation = None
            if observations is not None:
                expected = await observations.expectation(ctx.session, ctx.world, target)
            outcome = await _edit(fs, target, arguments, expected)
        if observations is not None:
            observations.record(ctx.session, target, outcome.version)
        return EditValue(path=shown_path(target.display_path), replacements=outcome.replacements)

    return Tool(
        name="edit",
        description=(
            "Replace literal text in a file. old_string must occur exactly once, unless replace_all is set; take in "
            "enough of the text around it. Everything else stays byte for byte. Read the file first."
        ),
        arguments=EditArguments,
        value=EditValue,
        run=run,
        render=render,
    )


async def _edit(
    fs: FileSystem, target: FileTarget, arguments: EditArguments, expected: Expectation
) -> EditOutcome:
    async def edit(encoding: str) -> EditOutcome:
        return await fs.edit_text(
            target,
            arguments.old_string,
            arguments.new_string,
            replace_all=arguments.replace_all,
            expected=expected,
            encoding=encoding,
        )

    try:
        return await edit("utf-8")
    except NotText:
        if not (arguments.old_string.isascii() and arguments.new_string.isascii()):
            raise
    # In an encoding that nobody named ASCII text can still be replaced: Latin-1 gives every other byte back as it was.
    return await edit("latin-1")


def render(arguments: EditArguments, value: EditValue) -> Content:
    if arguments.replace_all:
        return (Text(f"replaced {value.replacements} occurrences in {value.path}"),)
    return (Text(f"edited {value.path}"),)
