"""One call of a tool: what it is, what the body is given, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from execworld.seams import Enforcement, World
from execworld.seams.values import value_class
from execworld.tools.content import Content, text_of
from execworld.tools.json_values import Json, thaw
from execworld.tools.session import ToolSession


@value_class
class ToolCall:
    """Who asked for what. It is the same for all that see the call, from the first listener to the last.

    Attributes:
        token: Opaque; never used twice.
        name: Of the tool.
        arguments: As they came, frozen. Text if they were no JSON, which no tool takes.
        parent: Token of the call whose body made this one; None for one that nobody's body made.
        session: Whose call it is.
    """

    token: str
    name: str
    arguments: Json
    parent: str | None
    session: ToolSession

    def argument(self, name: str) -> Json:
        """The argument of this name as it came; None when there is none. It may be of any type: nothing checked it."""
        return self.arguments.get(name) if isinstance(self.arguments, Mapping) else None


@value_class
class ToolResult:
    """What came of a call, frozen.

    Attributes:
        call: The call.
        ok: Whether the body did what it is there for. A command that exits with a status is ok.
        value: The canonical value; None when it is not ok.
        content: What an agent is shown, also when it is not ok.
        code: What went wrong; None when it is ok.
        contexts: What an agent is to be told beside the result, in order.
        view_id: What the body ran in; empty when it did not run.
        enforcement: What held there; None when it did not run.
        duration_s: From the call to the result.
    """

    call: ToolCall
    ok: bool
    value: Json
    content: Content
    code: str | None
    contexts: tuple[str, ...]
    view_id: str
    enforcement: Enforcement | None
    duration_s: float

    @property
    def text(self) -> str:
        """All text of the content."""
        return text_of(self.content)

    def as_dict(self) -> dict[str, object]:
        """The result as plain JSON values, without the bytes of images."""
        return {
            "call": self.call.token,
            "tool": self.call.name,
            "ok": self.ok,
            "code": self.code,
            "value": thaw(self.value),
            "text": self.text,
            "contexts": list(self.contexts),
            "view_id": self.view_id,
            "duration_s": self.duration_s,
        }


class CallTool(Protocol):
    """Makes a call whose parent is known."""

    def __call__(self, name: str, arguments: object, /) -> Awaitable[ToolResult]: ...


class ToolContext:
    """What the body of a tool is given beside its arguments.

    Attributes:
        call: The call.
        world: The view to work in. It is the world of the session, or a wider view of it that was granted to this call.
    """

    def __init__(
        self,
        call: ToolCall,
        world: World,
        *,
        call_tool: CallTool,
        on_progress: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.call: Final = call
        self.world: Final = world
        self._call_tool = call_tool
        self._on_progress = on_progress
        self._contexts: list[str] = []

    @property
    def session(self) -> ToolSession:
        return self.call.session

    @property
    def contexts(self) -> tuple[str, ...]:
        """What was added so far, by the body and by the calls that it made."""
        return tuple(self._contexts)

    async def call_tool(self, name: str, arguments: object) -> ToolResult:
        """Call another tool for the same session, by the same road: its guards, its approval, its own result.

        What the inner call has to be told beside its result comes with the result of this one.
        """
        result = await self._call_tool(name, arguments)
        self._contexts.extend(result.contexts)
        return result

    def progress(self, text: str) -> None:
        """Tell whoever watches how far it is. Nothing of it is part of the result."""
        self._on_progress(text)

    def add_context(self, text: str) -> None:
        """Have the agent told *text* beside the result, after all results of its step."""
        self._contexts.append(text)
