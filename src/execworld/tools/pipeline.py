"""The one road of every call of a tool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from execworld.kernel import WORLD, Context, Key, plugin
from execworld.seams import ContextInactive, SandboxMode
from execworld.tools.calls import ToolResult
from execworld.tools.cancellation import Cancellation
from execworld.tools.decisions import RESULT
from execworld.tools.definition import AnyTool
from execworld.tools.escalation import WIDER_VIEWS
from execworld.tools.guards import GUARDS, GuardRegistry
from execworld.tools.registry import TOOLS, ToolRegistry
from execworld.tools.running import CallRun
from execworld.tools.session import ToolSession


def _ignore(_: str) -> None:
    pass


class Pipeline:
    """Calls tools.

    A call is judged by policies (`PRE_EXECUTE`), by a person if one of them asks, and by guards; then runs inside
    wrappers (`EXECUTE`); then its outcome is looked at (`POST_EXECUTE`), shown, and told (`RESULT`). There is no other
    way to the body of a tool.

    Attributes:
        registry: The tools.
        guards: Whose no is final.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.registry: Final = ToolRegistry()
        self.guards: Final = GuardRegistry()

    def begin(
        self,
        session: ToolSession,
        name: str,
        arguments: object,
        *,
        parent: str | None = None,
        cancellation: Cancellation | None = None,
        on_progress: Callable[[str], None] = _ignore,
    ) -> CallRun:
        """A call of which nothing was done yet, for who runs its phases one by one; all others use `call`."""
        return CallRun(
            self,
            self._ctx.scoped(session.scope),
            session,
            name,
            arguments,
            cancellation or Cancellation(),
            parent,
            on_progress,
        )

    async def call(
        self,
        session: ToolSession,
        name: str,
        arguments: object,
        *,
        parent: str | None = None,
        cancellation: Cancellation | None = None,
        on_progress: Callable[[str], None] = _ignore,
    ) -> ToolResult:
        """Call the tool *name*. Whatever goes wrong is a result with a code; nothing is raised.

        Only a cancellation of the calling task passes, after the body is over and those who watch were told.

        Args:
            session: Whose call it is.
            name: Of the tool.
            arguments: A mapping, or JSON text as a model wrote it. It is copied before anybody sees it.
            parent: Token of the call whose body makes this one.
            cancellation: Ends the call in order, with a result.
            on_progress: Gets what the body says while it works.
        """
        run = self.begin(
            session, name, arguments, parent=parent, cancellation=cancellation, on_progress=on_progress
        )
        await run.judge()
        await run.execute()
        return await run.settle()

    def tool(self, session: ToolSession, name: str) -> AnyTool | None:
        """The tool that *session* sees under this name."""
        return self.registry.get(self._ctx.scoped(session.scope), name)

    def schemas(self, session: ToolSession) -> list[dict[str, Any]]:
        """What an agent is told of the tools of *session*, by name: copies, without callbacks and budgets."""
        escalation = self.escalates
        visible = self.registry.view(self._ctx.scoped(session.scope))
        return [visible[name].schema(escalation=escalation) for name in sorted(visible)]

    @property
    def escalates(self) -> bool:
        """Whether calls may ask for a wider sandbox."""
        world = self._ctx.find(WORLD)
        return (
            world is not None
            and world.policy.mode is not SandboxMode.FULL_ACCESS
            and self._ctx.find(WIDER_VIEWS) is not None
        )

    def tell(self, ctx: Context, result: ToolResult) -> None:
        """Those who watch. What one of them raises is reported, and changes nothing."""
        try:
            ctx.emit(RESULT, result)
        except ContextInactive:
            pass  # the pipeline ends, and those who watch with it


PIPELINE: Final = Key[Pipeline]("pipeline")


@plugin(name="tools", provides=(PIPELINE, TOOLS, GUARDS))
def tool_pipeline(ctx: Context) -> None:
    """Provide the pipeline, and where tools and guards are registered.

    It needs no world: each call runs in the one that there is then, so that another world row moves every tool.
    """
    pipeline = Pipeline(ctx)
    ctx.provide(PIPELINE, pipeline)
    ctx.provide(TOOLS, pipeline.registry)
    ctx.provide(GUARDS, pipeline.guards)
