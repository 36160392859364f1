"""The rows of the table, and what an attempt is given."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Void(Exception):
    """The attempt says nothing here: kernel, uid or file system make it impossible. Its text is the reason."""


class Judge(Enum):
    """Where the effect of an attempt is looked for. All but ``SAID`` look at the target, from outside of the view."""

    CHANGED = "its directory outside is not as it was"
    TOLD = "it tells a secret that only the target knows"
    RECEIVED = "a listener outside received its token"
    REACHED = "a listener of its own was reached from outside"
    VICTIM = "its victim was signalled, or has other limits or priorities"
    MEMORY = "memory of a victim was written"
    TYPED = "a terminal outside received its token"
    SAID = "it says so: the effect is on the program itself"


class Twin(Enum):
    """Where the same attempt runs unconfined, and must have its effect."""

    LOCAL = "in world `local`"
    DIRECT = "as a child that inherits a descriptor"
    NAMESPACE = "in throw-away namespaces, never on the host"


@dataclass(frozen=True)
class Targets:
    """What a probe is told. Everything but the workspace lies outside of what its view may touch.

    Attributes:
        own: Directory outside, of this probe alone: ``file``, ``other``, ``directory/``, and ``root/``, which a policy
            may allow to be written.
        inside: Directory in the workspace, of this probe alone, with ``file``.
        hidden: Directory of this probe whose ``secret`` may not be read where a policy hides something.
        token: What it writes or sends.
        victim: Facts of a process outside: pid, address, length, shared memory, ...
        sleeper: pid of a process outside that is of this probe alone.
        servers: Listeners outside, by kind.
        descriptor: Number of a descriptor that was open, and inheritable, in whoever made the view.
        handle: Of ``own/file``, or of ``hidden/secret``: mount id is that of the workspace.
    """

    own: str
    inside: str
    hidden: str
    workspace: str
    token: str
    sleeper: int = 0
    descriptor: int = -1
    handle: str = ""
    handle_type: int = 0
    setuid_program: str = ""
    terminal: str = ""
    victim: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    servers: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())

    @property
    def file(self) -> str:
        return os.path.join(self.own, "file")

    @property
    def secret(self) -> str:
        return os.path.join(self.hidden, "secret")

    def beneath(self, name: str) -> str:
        return os.path.join(self.inside, name)


Attempt = Callable[[Targets], str | None]


@dataclass(frozen=True)
class Probe:
    """One row.

    Attributes:
        row: Number of the group that it belongs to.
        dimension: It may have its effect only where this is not reported as enforced. None: nowhere.
        stopped_by: The layers that stop it, any one of which is enough.
        allowed: Why it may have its effect everywhere; empty when it may not.
        privileged: Without root it fails unconfined as well.
        inherits: Which kind of descriptor its maker leaves open.
        sleeper: It gets a process outside that is of it alone.
        unprovable: Why it may fail unconfined on some machines; then it is void there.
        writes: A control that needs a view which may write.
    """

    row: int
    name: str
    what: str
    attempt: Attempt
    judge: Judge
    dimension: str | None
    stopped_by: str
    allowed: str = ""
    twin: Twin = Twin.LOCAL
    privileged: bool = False
    inherits: str = ""
    sleeper: bool = False
    unprovable: str = ""
    writes: bool = False


PROBES: dict[str, Probe] = {}
CONTROLS: dict[str, Probe] = {}


def probe(
    row: int,
    dimension: str | None,
    judge: Judge,
    stopped_by: str = "",
    *,
    allowed: str = "",
    twin: Twin = Twin.LOCAL,
    privileged: bool = False,
    inherits: str = "",
    sleeper: bool = False,
    unprovable: str = "",
) -> Callable[[Attempt], Attempt]:
    """The function is a probe. What it does is the first line of its docstring."""

    def register(attempt: Attempt) -> Attempt:
        name = attempt.__name__.strip("_").replace("_", "-")
        what = (attempt.__doc__ or "").strip().split("\n")[0].rstrip(".")
        assert name not in PROBES, name
        assert bool(stopped_by) != bool(allowed), name
        PROBES[name] = Probe(
            row=row,
            name=name,
            what=what,
            attempt=attempt,
            judge=judge,
            dimension=dimension,
            stopped_by=stopped_by,
            allowed=allowed,
            twin=twin,
            privileged=privileged,
            inherits=inherits,
            sleeper=sleeper,
            unprovable=unprovable,
        )
        return attempt

    return register


def control(judge: Judge = Judge.SAID, *, writes: bool = False) -> Callable[[Attempt], Attempt]:
    """The function is something that must work in every view that may write its workspace."""

    def register(attempt: Attempt) -> Attempt:
        name = attempt.__name__.strip("_").replace("_", "-")
        what = (attempt.__doc__ or "").strip().split("\n")[0].rstrip(".")
        CONTROLS[name] = Probe(56, name, what, attempt, judge, None, "", writes=writes)
        return attempt

    return register
