"""A wider sandbox for one call: what an agent says to get it, and who makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final, Literal, Protocol

from pydantic import BaseModel, Field

from execworld.kernel import Key
from execworld.seams import (
    FloorViolated,
    InvalidArguments,
    Sandbox,
    SandboxMode,
    SandboxPolicy,
    World,
    WorldClaims,
)
from execworld.seams.floor import Floor
from execworld.seams.open_floor import refuse_below_floor, told
from execworld.seams.policy_order import is_mode_within
from execworld.seams.values import value_class
from execworld.tools.calls import ToolCall
from execworld.tools.json_values import Json

ESCALATION_FIELDS: Final = ("sandbox_permissions", "justification")


class Escalatable(BaseModel, extra="forbid", frozen=True):
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


class WiderViews(Protocol):
    """Makes views of the world that allow more than the one that tools are given. Only the host side has it."""

    @property
    def world_id(self) -> str: ...

    def check(self, policy: SandboxPolicy) -> None:
        """Refuse a policy below the floor before anybody is asked.

        Raises:
            FloorViolated
        """
        ...

    async def open(self, policy: SandboxPolicy) -> World:
        """The view, which is closed with the world.

        Raises:
            FloorViolated, SandboxUnavailable: there is none.
        """
        ...


WIDER_VIEWS: Final = Key[WiderViews]("wider_views")


class HostViews(WiderViews):
    """Views of one world, none of them below a floor.

    Args:
        world: What tools are given.
        sandbox: Of its root view.
        floor: What every view holds at the least.
        claims: What is known of the images and hosts of the world.
    """

    def __init__(self, world: World, sandbox: Sandbox, floor: Floor, claims: WorldClaims) -> None:
        self._world = world
        self._sandbox = sandbox
        self._floor = floor
        self._claims = claims

    @property
    def world_id(self) -> str:
        return self._world.world_id

    def check(self, policy: SandboxPolicy) -> None:
        claims = WorldClaims(self._world.facts.boundary, images=self._claims.images, hosts=self._claims.hosts)
        if lost := self._floor.lacks(self._world.identity.kind, claims, policy):
            raise FloorViolated(
                "a wider sandbox would not hold the floor\n" + "\n".join(map(told, lost)),
                op="tools.escalate",
                world=self.world_id,
                hint="`execworld floor show` tells who demands what",
            )

    async def open(self, policy: SandboxPolicy) -> World:
        self.check(policy)
        view = await self._sandbox.confine(policy)
        refuse_below_floor(self._floor, view, self._claims)
        return view


@value_class
class Escalation:
    """What a call asks for.

    Attributes:
        mode: The wider sandbox.
        justification: For the person.
    """

    mode: SandboxMode
    justification: str


def requested_escalation(arguments: Json) -> Escalation | None:
    """What *arguments* of an escalatable tool ask for; None when they do not.

    Raises:
        InvalidArguments: one without the other, or neither a mode nor a reason.
    """
    if not isinstance(arguments, Mapping):
        return None
    wanted, why = (arguments.get(name) for name in ESCALATION_FIELDS)
    if wanted is None and why is None:
        return None
    if not isinstance(wanted, str) or wanted not in (SandboxMode.WORKSPACE_WRITE, SandboxMode.FULL_ACCESS):
        raise InvalidArguments(
            "`justification` goes with `sandbox_permissions`: workspace-write or full-access"
        )
    if not isinstance(why, str) or not why.strip():
        raise InvalidArguments("`sandbox_permissions` goes with a `justification` that is not blank")
    return Escalation(SandboxMode(wanted), why.strip())


def widened(policy: SandboxPolicy, mode: SandboxMode, cwd: str) -> SandboxPolicy:
    """*policy* in a wider mode. All else that it asks for stays: network, hidden paths, limits.

    Raises:
        InvalidArguments: it is not wider.
    """
    if is_mode_within(mode, policy.mode):
        raise InvalidArguments(
            f"`sandbox_permissions` is for a wider sandbox: this call runs under {policy.mode} already"
        )
    workspace = policy.workspace or (cwd if mode is SandboxMode.WORKSPACE_WRITE else None)
    wider = replace(policy, mode=mode, workspace=workspace, write_roots=())
    return wider if wider.confines else SandboxPolicy.full_access()  # which is the root view, and no cell


def question(call: ToolCall, escalation: Escalation, policy: SandboxPolicy) -> str:
    """What a person is asked, in a text that needs nothing beside it."""
    return (
        f"`{call.name}` asks to run this one call under {escalation.mode} and not {policy.mode}: "
        f"{escalation.justification}"
    )
