"""An agent that calls the standard tools in one world."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from execworld.seams import World
from execworld.tools.calls import ToolCall, ToolContext, ToolResult
from execworld.tools.content import Content, Text, cap_text, text_of
from execworld.tools.definition import AnyTool
from execworld.tools.jobs import Jobs
from execworld.tools.json_values import freeze
from execworld.tools.observations import Observations
from execworld.tools.session import ToolSession
from execworld.tools.standard.bash import bash_tool
from execworld.tools.standard.edit import edit_tool
from execworld.tools.standard.glob import glob_tool
from execworld.tools.standard.grep import grep_tool
from execworld.tools.standard.job_tools import job_kill_tool, job_list_tool, job_output_tool
from execworld.tools.standard.listing import list_tool
from execworld.tools.standard.read import read_tool
from execworld.tools.standard.write import write_tool


@dataclass
class Answer:
    """What a call came to. The value is that of the tool, checked to survive a way through JSON."""

    value: Any
    content: Content

    @property
    def text(self) -> str:
        return text_of(self.content)


class Agent:
    """Calls bodies and renderers of tools as a pipeline without policies would."""

    def __init__(self, world: World, session: ToolSession, jobs: Jobs, directory: Path) -> None:
        self.world = world
        self.session = session
        self.jobs = jobs
        self.directory = directory
        observations = Observations()
        tools: tuple[AnyTool, ...] = (
            bash_tool(jobs=jobs),
            read_tool(observations=observations),
            write_tool(observations),
            edit_tool(observations),
            list_tool(),
            glob_tool(),
            grep_tool(),
            job_output_tool(jobs),
            job_list_tool(jobs),
            job_kill_tool(jobs),
        )
        self.tools: dict[str, AnyTool] = {tool.name: tool for tool in tools}

    async def call(self, name: str, **arguments: object) -> Answer:
        tool = self.tools[name]
        validated = tool.arguments.model_validate(arguments, strict=True)
        call = ToolCall("token", name, freeze(arguments), None, self.session)
        value: BaseModel = await tool.run(ToolContext(call, self.world, call_tool=_no_calls), validated)
        again = tool.value.model_validate_json(value.model_dump_json())
        assert again == value
        content = tool.render(validated, value)
        capped = tuple(
            Text(cap_text(part.text, tool.limit_bytes, tool.keep)) if isinstance(part, Text) else part
            for part in content
        )
        return Answer(value, capped)

    def put(self, name: bytes, content: bytes) -> None:
        """Make a file whose name may be any bytes."""
        Path(os.fsdecode(os.fsencode(self.directory) + b"/" + name)).write_bytes(content)

    async def bash(self, command: str, **arguments: object) -> Answer:
        return await self.call("bash", command=command, **arguments)

    async def read(self, path: str, **arguments: object) -> Answer:
        return await self.call("read", file_path=path, **arguments)

    async def write(self, path: str, content: str) -> Answer:
        return await self.call("write", file_path=path, content=content)

    async def edit(self, path: str, old: str, new: str, **arguments: object) -> Answer:
        return await self.call("edit", file_path=path, old_string=old, new_string=new, **arguments)

    async def list(self, path: str = ".", **arguments: object) -> Answer:
        return await self.call("list", path=path, **arguments)

    async def glob(self, pattern: str, path: str = ".") -> Answer:
        return await self.call("glob", pattern=pattern, path=path)

    async def grep(self, pattern: str, path: str = ".", **arguments: object) -> Answer:
        return await self.call("grep", pattern=pattern, path=path, **arguments)


async def _no_calls(name: str, arguments: object) -> ToolResult:
    raise AssertionError(f"{name} was called by a body")
