"""What a distribution registers under the entry point group ``execworld.providers``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.identity import Boundary
from execworld.seams.policy import SandboxPolicy
from execworld.seams.world import World

ENTRY_POINT_GROUP: Final = "execworld.providers"

ConfigT = TypeVar("ConfigT")


@dataclass(frozen=True, slots=True)
class OpenRequest(Generic[ConfigT]):
    """What is asked of a provider.

    Attributes:
        config: Validated options of this provider.
        policy: Policy that the world's root view must obey.
        cwd: Working directory in the world; None for the provider's default.
        environment: Names that are let through from the environment of the host beside the allow-list.
    """

    config: ConfigT
    policy: SandboxPolicy
    cwd: str | None = None
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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
    """

    name: str
    summary: str
    config_type: type[ConfigT]
    open: Callable[[OpenRequest[ConfigT]], AbstractAsyncContextManager[World]]
    probe: Callable[[], Awaitable[Probe]]
    config_from_url: Callable[[str], Mapping[str, Any]] | None = None
    default_policy: Callable[[str | None], SandboxPolicy] | None = None
    extra: str = ""
