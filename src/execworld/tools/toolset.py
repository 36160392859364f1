"""Tools over an open world, for whoever has no composition.

async with open_world("landlock") as world, toolset(world) as tools:
    result = await tools.functions["read"](path="notes.md")
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from execworld.kernel import FS, SANDBOX, SHELL, SUBPROCESS, WORLD, Context, OnError, open_kernel
from execworld.kernel.reporting import log_error
from execworld.seams import World, WorldClaims
from execworld.seams.floor import Floor
from execworld.tools.approval import APPROVAL, Answer, Approval, ApprovalRequest
from execworld.tools.calls import ToolResult
from execworld.tools.cancellation import Cancellation
from execworld.tools.escalation import WIDER_VIEWS, HostViews
from execworld.tools.pipeline import PIPELINE, Pipeline
from execworld.tools.session import ToolSession
from execworld.tools.standard import standard_tools
from execworld.world import root_sandbox

Approve: TypeAlias = Callable[[ApprovalRequest], Awaitable[Answer]]


class ToolFunction(Protocol):
    """One tool as a function of its arguments."""

    def __call__(self, **arguments: object) -> Awaitable[ToolResult]: ...


class Toolset:
    """The tools of one session.

    Attributes:
        session: Whose calls these are.
        pipeline: The road that they take; for calls of other sessions.
        context: Through which guards, policies and further tools are registered.
    """

    def __init__(self, context: Context, session: ToolSession) -> None:
        self.context: Final = context
        self.session: Final = session
        self.pipeline: Final[Pipeline] = context.get(PIPELINE)

    @property
    def schemas(self) -> list[dict[str, Any]]:
        """What an agent is told: name, description and the JSON Schema of the parameters, one entry a tool."""
        return self.pipeline.schemas(self.session)

    @property
    def functions(self) -> Mapping[str, ToolFunction]:
        """Each tool as a function."""
        return MappingProxyType({schema["name"]: self._function(schema["name"]) for schema in self.schemas})

    def _function(self, name: str) -> ToolFunction:
        async def function(**arguments: object) -> ToolResult:
            return await self.call(name, arguments)

        function.__name__ = function.__qualname__ = name
        return function

    async def call(
        self, name: str, arguments: object = "", *, cancellation: Cancellation | None = None
    ) -> ToolResult:
        """Call a tool with a mapping, or with JSON text as a model wrote it; as of `Pipeline.call`."""
        return await self.pipeline.call(self.session, name, arguments, cancellation=cancellation)


class AskingBy(Approval):
    """Asks a person by a function."""

    def __init__(self, approve: Approve) -> None:
        self._approve = approve

    async def ask(self, request: ApprovalRequest) -> Answer:
        return await self._approve(request)


@asynccontextmanager
async def toolset(
    world: World,
    *,
    approve: Approve | None = None,
    cwd: str | None = None,
    floor: Floor | None = None,
    claims: WorldClaims | None = None,
    plugins: Iterable[object] = (),
    on_error: OnError = log_error,
) -> AsyncGenerator[Toolset]:
    """All standard tools over *world*, with a session; leaving ends what the session owns, and not the world.

    Args:
        world: As `open_world` gave it.
        approve: Asks a person; without it whatever would have to be asked is denied.
        cwd: Where relative paths of the session start; None for that of the world.
        floor: What every wider sandbox must hold.
        claims: What is known of the images and hosts of the world, for the floor.
        plugins: Further ones: tools, guards, policies.
        on_error: As of `execworld.kernel.open_kernel`.
    """
    async with open_kernel(on_error=on_error) as root:
        root.provide(WORLD, world)
        root.provide(FS, world.fs)
        root.provide(SUBPROCESS, world.subprocess)
        root.provide(SHELL, world.shell)
        root.provide(SANDBOX, world.sandbox)
        if (sandbox := root_sandbox(world)) is not None:
            root.provide(WIDER_VIEWS, HostViews(world, sandbox, floor or Floor(), claims or WorldClaims()))
        if approve is not None:
            root.provide(APPROVAL, AskingBy(approve))
        root.plugin(standard_tools)
        for each in plugins:
            root.plugin(each)
        await root.settle()
        async with ToolSession(cwd or world.facts.cwd) as session:
            yield Toolset(root, session)
