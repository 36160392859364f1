"""The one question to a person, for one call."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Protocol, cast

from execworld.kernel import Key
from execworld.seams import SandboxMode
from execworld.seams.values import value_class
from execworld.tools.calls import ToolCall


class Answer(StrEnum):
    ALLOWED_ONCE = "allowed-once"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"


@value_class
class ApprovalRequest:
    """What a person is asked.

    Attributes:
        call: With its arguments.
        reason: Why somebody is asked: a self-contained text.
        mode: The sandbox that the call is to get; None when it is not to be another one.
    """

    call: ToolCall
    reason: str
    mode: SandboxMode | None = None


class Approval(Protocol):
    """Asks a person. What it raises, and what is no `Answer`, counts as unavailable."""

    async def ask(self, request: ApprovalRequest) -> Answer: ...


APPROVAL: Final = Key[Approval]("approval")

REFUSALS: Final = {
    Answer.REJECTED: "the user rejected this call",
    Answer.CANCELLED: "the question about this call was cancelled before the user answered",
    Answer.UNAVAILABLE: "this call needs the user's approval, and the user could not be asked",
}
NOBODY_TO_ASK: Final = "this call needs approval, and nobody is there to give it"


async def answer_of(approval: Approval, request: ApprovalRequest) -> Answer:
    """What *approval* says; a cancellation passes."""
    try:
        found = cast("object", await approval.ask(request))
    except Exception:  # noqa: BLE001 - whatever broke, nobody has said yes
        return Answer.UNAVAILABLE
    return found if isinstance(found, Answer) else Answer.UNAVAILABLE
