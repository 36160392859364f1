"""What is running, what provides what, and why something is not: plain values for people and programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from execworld.kernel.states import FiberState
from execworld.seams.values import value_class

if TYPE_CHECKING:
    from execworld.kernel.fiber import Fiber
    from execworld.kernel.services import Slot


@value_class
class ServiceUse:
    """A service that a plugin injects.

    Attributes:
        service: Its name.
        realm: Label of the realm; empty for the one that all share.
        provider: Name of the plugin that it runs on, or that it would be started on; empty when there is none.
        provider_uid: Number of that fiber; None when there is none.
        required: False for an optional one.
    """

    service: str
    realm: str
    provider: str
    provider_uid: int | None
    required: bool


@value_class
class MissingService:
    """A service for which a plugin is PENDING.

    Attributes:
        service: Its name.
        realm: Label of the realm; empty for the one that all share.
        reason: Why it is missing, for people.
        declared_by: Names of the plugins that declare to provide it here.
    """

    service: str
    realm: str
    reason: str
    declared_by: tuple[str, ...]


@value_class
class ProvidedService:
    """A service that a plugin provides now.

    Attributes:
        service: Its name.
        realm: Label of the realm; empty for the one that all share.
        users: Names of the plugins that run on it.
    """

    service: str
    realm: str
    users: tuple[str, ...]


@value_class
class FiberDescription:
    """One plugin, and those that it applied.

    Attributes:
        uid: Number of the fiber; None when it is disposed.
        error: Why it is FAILED; empty otherwise.
        held: It has started, and waits to replace another one.
        missing: Why it is PENDING; empty when it is not.
        effects: How many registrations it holds.
    """

    name: str
    uid: int | None
    state: FiberState
    error: str
    held: bool
    uses: tuple[ServiceUse, ...]
    missing: tuple[MissingService, ...]
    provides: tuple[ProvidedService, ...]
    effects: int
    children: tuple[FiberDescription, ...]


def describe(fiber: Fiber) -> FiberDescription:
    """*fiber* and all inside it, as they are now."""
    run = fiber.run
    error = fiber.error
    provisions = tuple(run.provisions) if run is not None else ()
    return FiberDescription(
        name=fiber.name,
        uid=fiber.uid,
        state=fiber.state,
        error="" if error is None else f"{type(error).__name__}: {error}",
        held=fiber.held,
        uses=tuple(_use(fiber, slot) for slot in fiber.needs),
        missing=_missing(fiber),
        provides=tuple(
            ProvidedService(each.slot.name, each.slot.realm.label, tuple(user.name for user in each.users))
            for each in provisions
        ),
        effects=len(run.effects) if run is not None else 0,
        children=tuple(describe(child) for child in run.children) if run is not None else (),
    )


def _use(fiber: Fiber, slot: Slot) -> ServiceUse:
    bound = fiber.run.bindings.get(slot) if fiber.run is not None else None
    provision = bound or slot.seen_by(fiber)
    owner = provision.owner if provision is not None else None
    return ServiceUse(
        service=slot.name,
        realm=slot.realm.label,
        provider=owner.name if owner is not None else "",
        provider_uid=owner.uid if owner is not None else None,
        required=slot in fiber.required,
    )


def _missing(fiber: Fiber) -> tuple[MissingService, ...]:
    if fiber.state is not FiberState.PENDING:
        return ()
    return tuple(
        MissingService(
            slot.name, slot.realm.label, _reason(slot), tuple(each.name for each in slot.claimants)
        )
        for slot in fiber.required
        if slot.seen_by(fiber) is None
    )


def _reason(slot: Slot) -> str:
    if not slot.claimants:
        return "no plugin provides it"
    return "; ".join(_claim(claimant, slot) for claimant in slot.claimants)


def _claim(claimant: Fiber, slot: Slot) -> str:
    if claimant.held:
        return f"`{claimant.name}` will provide it when it has replaced another plugin"
    if claimant.state is FiberState.FAILED:
        return f"`{claimant.name}` would provide it and is FAILED: {claimant.error}"
    if claimant.state is FiberState.PENDING:
        lacking = ", ".join(f"`{each.name}`" for each in claimant.required if each.seen_by(claimant) is None)
        return f"`{claimant.name}` would provide it and is PENDING" + (f" for {lacking}" if lacking else "")
    if claimant.state is FiberState.ACTIVE and not any(each.owner is claimant for each in slot.provisions):
        return f"`{claimant.name}` may provide it, is ACTIVE, and did not"
    around = [each for each in claimant.lineage if each.state is not FiberState.ACTIVE]
    waiting = around[0] if claimant.state is FiberState.ACTIVE and around else claimant
    return f"`{waiting.name}` would provide it and is {waiting.state}"
