"""What plugins may say about a call, and when."""

from __future__ import annotations

from typing import Final, TypeAlias

from execworld.kernel import Event, Waterfall
from execworld.seams.values import value_class
from execworld.tools.calls import ToolCall, ToolResult
from execworld.tools.content import Content
from execworld.tools.json_values import Json


@value_class
class Allow:
    """Nothing against it."""


@value_class
class Ask:
    """A person decides."""

    reason: str = ""


@value_class
class Deny:
    """The call does not run; the agent is told the reason."""

    reason: str


PreDecision: TypeAlias = Allow | Ask | Deny


@value_class
class Success:
    """The body did it.

    Attributes:
        value: The canonical value, or what its model makes one of.
    """

    value: object


@value_class
class Failure:
    """It came to nothing.

    Attributes:
        code: For programs.
        message: For the agent.
    """

    code: str
    message: str


Outcome: TypeAlias = Success | Failure


@value_class
class Settled:
    """A call that ran, or was not let, before its result is made.

    Attributes:
        value: The canonical value; None when it is not ok.
        content: What the agent would be shown.
        code: What went wrong; None when it is ok.
    """

    call: ToolCall
    ok: bool
    value: Json
    content: Content
    code: str | None


@value_class
class Accept:
    """The outcome stands.

    Attributes:
        content: Shown in place of what would be; the value stays.
        value: A canonical value in place of the one there is, which is validated and shown anew. Not for a failure,
            and not together with *content*.
        contexts: What the agent is to be told beside the result.
    """

    content: Content | None = None
    value: object = None
    contexts: tuple[str, ...] = ()


@value_class
class Block:
    """The agent gets nothing of the outcome but *feedback*, and none of the contexts but these."""

    feedback: str
    contexts: tuple[str, ...] = ()


PostDecision: TypeAlias = Accept | Block

# Of these two, every listener is heard, and a no stays a no whatever the others say.
PRE_EXECUTE: Final = Waterfall[ToolCall, PreDecision]("tools/pre-execute")
POST_EXECUTE: Final = Waterfall[Settled, PostDecision]("tools/post-execute")
# A listener may go on again to retry, go on inside a cancel scope, or answer without going on.
EXECUTE: Final = Waterfall[ToolCall, Outcome]("tools/execute")
RESULT: Final = Event[ToolResult, None]("tools/result")


def strictest(behind: PreDecision, said: PreDecision, heard: bool) -> PreDecision:
    """Deny before ask before allow; of two of a kind, the one that came first on the way in."""
    for each in (behind, said):
        _check_kind(each, (Allow, Ask, Deny), "a call")
    for kind in (Deny, Ask):
        for each in (said, behind):
            if isinstance(each, kind):
                return each
    return said


def _check_kind(decision: object, kinds: tuple[type[object], ...], subject: str) -> None:
    """Listeners are code of others, and not everybody has types checked."""
    if not isinstance(decision, kinds):
        raise TypeError(f"no decision about {subject}: {type(decision).__name__}")


def blocked_stays_blocked(behind: PostDecision, said: PostDecision, heard: bool) -> PostDecision:
    """A block stands. Who has heard the others may replace what they said, who has not adds to it."""
    for each in (behind, said):
        _check_kind(each, (Accept, Block), "an outcome")
    if isinstance(behind, Block):
        return behind
    if isinstance(said, Block) or heard:
        return said
    replaces = said.content is not None or said.value is not None
    kept = said if replaces else behind
    return Accept(kept.content, kept.value, (*behind.contexts, *said.contexts))
