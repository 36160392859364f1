"""Which tools there are, for whom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from execworld.kernel import Context, Effect, Key, Registry
from execworld.tools.definition import AnyTool


class ToolRegistry:
    """Tools by name, in one layer for everybody and one for each session; the nearest of a name counts.

    A plugin injects `TOOLS` and adds its tools; they go with it.
    """

    def __init__(self) -> None:
        self._tools = Registry[AnyTool]("tool")

    def add(self, ctx: Context, tool: AnyTool) -> Effect:
        """Register *tool* in the scope of *ctx*.

        Raises:
            RegistrationConflict: the layer has a tool of this name.
        """
        return self._tools.add(ctx, tool.name, tool)

    def get(self, ctx: Context, name: str) -> AnyTool | None:
        """The tool that *ctx* sees under this name."""
        return self.view(ctx).get(name)

    def view(self, ctx: Context) -> Mapping[str, AnyTool]:
        """Every tool that *ctx* sees."""
        return self._tools.view(ctx)


TOOLS: Final = Key[ToolRegistry]("tools")
