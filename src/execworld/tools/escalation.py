"""A wider sandbox for one call: what an agent says to get it."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import BaseModel, Field

ESCALATION_FIELDS: Final = ("sandbox_permissions", "justification")


class Escalatable(BaseModel):
    """Arguments of a tool whose calls may ask for a wider sandbox. Both or neither is given.

    The body has no part in it: it works in the view that it is given.
    """

    sandbox_permissions: Literal["workspace-write", "full-access"] | None = Field(
        default=None,
        description="A wider sandbox for this call alone, which a person has to allow. Leave it out at first.",
    )
    justification: str | None = Field(
        default=None, description="Why this call needs it, in a sentence for the person who is asked."
    )
