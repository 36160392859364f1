"""What a distribution registers under the entry point group ``execworld.providers``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.identity import Boundary
from execworld.seams.policy import SandboxPolicy
from execworld.seams.values import value_class
from execworld.seams.world import World

ENTRY_POINT_GROUP: Final = "execworld.providers"

ConfigT = TypeVar("ConfigT")


@value_class
class OpenProgress:
    """How far the opening of a world is, where that takes longer than a moment.

    Attributes:
        text: What is being done, in one line that a terminal shows as it is.
        done_bytes: How much of it is done; None where that is not known.
        total_bytes: Of how much; None likewise.
    """

    text: str
    done_bytes: int | None = None
    total_bytes: int | None = None


OnProgress: TypeAlias = Callable[[OpenProgress], None]


@value_class
class OpenRequest(Generic[ConfigT]):
    """What is asked of a provider.

    Attributes:
        config: Validated options of this provider.
        policy: Policy that the world's root view must obey.
        cwd: Working directory in the world; None for the provider's default.
        environment: Names that are let through from the environment of the host beside the allow-list.
        on_progress: Called in the thread of the event loop while something takes long; None when nobody looks.
        obeyed: Files and directories of the host from which execworld reads what holds. Where the world has the files
            of the host, no program under a policy may write there.
    """

    config: ConfigT
    policy: SandboxPolicy
    cwd: str | None = None
    environment: tuple[str, ...] = ()
    on_progress: OnProgress | None = None
    obeyed: tuple[str, ...] = ()


@value_class
class Probe:
    """Answer of a provider to "could you open a world here, and what could it enforce?".

    Attributes:
        available: A world can be opened with the default configuration.
        reason: Why not; empty when available.
        hint: What would change that.
        boundary: What such a world is separated from the host by.
        enforceable: What it could enforce, with the enforcer or the reason why not.
    """

    available: bool
    reason: str = ""
    hint: str = ""
    boundary: Boundary = Boundary.NONE
    enforceable: Mapping[Dimension, tuple[EnforcementState, str]] | None = None


@value_class
class WorldClaims:
    """What can be said of a world by its options, before it is opened. Opening it proves or refutes that.

    Attributes:
        boundary: It is separated from the host by at most this; what cannot be told counts as nothing.
        images: Names of images that it is made of; None when that cannot be told.
        hosts: Other hosts that are reached for it; None likewise.
    """

    boundary: Boundary = Boundary.NONE
    images: tuple[str, ...] | None = None
    hosts: tuple[str, ...] | None = None


class LeftoverState(StrEnum):
    """What became of a leftover."""

    REMOVED = "removed"
    REMOVABLE = "removable"
    """It would be removed if this were no dry run."""

    KEPT = "kept"
    FAILED = "failed"
    """It should be removed, and could not be."""


@value_class
class Leftover:
    """Something that was made for a world, and was found after the fact.

    Attributes:
        kind: What it is: a container, a directory, ...
        name: By which people find it.
        state: What became of it.
        reason: Why it was removed or kept, or what went wrong.
    """

    kind: str
    name: str
    state: LeftoverState
    reason: str


class Clean(Protocol):
    """Removes what worlds of a provider left behind because the process that had opened them was killed."""

    async def __call__(self, *, dry_run: bool) -> Sequence[Leftover]:
        """Everything that was found. What is in use, or what cannot be told from that, is kept.

        Args:
            dry_run: Change nothing.

        Raises:
            WorldUnavailable: it cannot be looked for here.
        """
        ...


@value_class
class Provider(Generic[ConfigT]):
    """One way to reach a world. Importing the object imports no SDK; opening does.

    Attributes:
        name: Kind of the worlds, also the scheme of their URLs.
        summary: One line for lists.
        config_type: Frozen dataclass whose fields are the options; each has a default and a docstring or ``help``
            metadata. An option that is not a field is an error.
        open: Makes the world; leaving the context closes it.
        probe: Tells what could be opened here, without leaving anything behind.
        config_from_url: Turns a whole world URL, ``NAME://...`` or ``NAME+HOW://...``, into options; None when the name
            takes no URL.
        default_policy: The policy of a world that is opened without one, made of the working directory that was asked
            for; None for plain full access.
        extra: The optional dependency group that the provider needs; empty for none.
        clean: Removes what worlds left behind; None when they cannot leave anything.
        claims: Tells what a world with these options and this policy would be; None for nothing that can be told.
    """

    name: str
    summary: str
    config_type: type[ConfigT]
    open: Callable[[OpenRequest[ConfigT]], AbstractAsyncContextManager[World]]
    probe: Callable[[], Awaitable[Probe]]
    config_from_url: Callable[[str], Mapping[str, Any]] | None = None
    default_policy: Callable[[str | None], SandboxPolicy] | None = None
    extra: str = ""
    clean: Clean | None = None
    claims: Callable[[ConfigT, SandboxPolicy], WorldClaims] | None = None
