"""A pipeline over a local world, and tools to call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pydantic import BaseModel

from execworld.kernel import WORLD, Context, ErrorReport, Next, open_kernel
from execworld.tools.calls import ToolContext, ToolResult
from execworld.tools.content import Text
from execworld.tools.decisions import POST_EXECUTE, PRE_EXECUTE, RESULT, PostDecision, PreDecision, Settled
from execworld.tools.definition import Tool
from execworld.tools.pipeline import PIPELINE, Pipeline, tool_pipeline
from execworld.tools.session import ToolSession
from execworld.world import open_world


class Say(BaseModel, extra="forbid", frozen=True):
    word: str = "hello"


class Said(BaseModel):
    word: str


Body: TypeAlias = Callable[[ToolContext, Say], Awaitable[Said]]


async def repeat(ctx: ToolContext, arguments: Say) -> Said:
    return Said(word=arguments.word)


class Bench:
    """A kernel with a pipeline, a world and a session.

    Attributes:
        trace: What happened, as tests note it.
        reports: What went wrong in plugins.
    """

    def __init__(self, root: Context, session: ToolSession, reports: list[ErrorReport]) -> None:
        self.root = root
        self.session = session
        self.reports = reports
        self.trace: list[str] = []
        self.pipeline: Pipeline = root.get(PIPELINE)

    def tool(
        self,
        name: str = "say",
        run: Body = repeat,
        *,
        parallel_safe: bool = False,
        timeout_s: float | None = None,
        limit_bytes: int = 65_536,
    ) -> None:
        async def noted(ctx: ToolContext, arguments: Say) -> Said:
            self.trace.append(f"body of {name}")
            return await run(ctx, arguments)

        self.pipeline.registry.add(
            self.root,
            Tool(
                name,
                "Says a word.",
                Say,
                Said,
                noted,
                lambda _, value: (Text(value.word),),
                parallel_safe=parallel_safe,
                timeout_s=timeout_s,
                limit_bytes=limit_bytes,
            ),
        )

    async def call(self, name: str = "say", arguments: object = "") -> ToolResult:
        return await self.pipeline.call(self.session, name, arguments)


class Broken(Exception):
    pass


def watch(bench: Bench) -> None:
    """Note that post-execute and the result were reached."""

    async def post(settled: Settled, go_on: Next[Settled, PostDecision]) -> PostDecision:
        bench.trace.append(f"post {settled.code}")
        return await go_on()

    bench.root.on(POST_EXECUTE, post)
    bench.root.on(RESULT, lambda result: bench.trace.append(f"result {result.code}"))


def decide(bench: Bench, decision: PreDecision) -> None:
    bench.root.on(PRE_EXECUTE, lambda call, go_on: decision)


def breaking(*_: object) -> Any:
    raise Broken("it broke")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncGenerator[Bench]:
    reports: list[ErrorReport] = []
    async with open_kernel(on_error=reports.append) as root, open_world("local", cwd=str(tmp_path)) as world:
        await root.plugin(tool_pipeline)
        root.provide(WORLD, world)
        async with ToolSession(str(tmp_path)) as session:
            yield Bench(root, session, reports)
