"""What one session of the suite runs: a world, a policy, a user, probes."""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from execworld.seams import NetworkMode, NetworkPolicy, SandboxMode, SandboxPolicy

WORKSPACE_WRITE, READ_ONLY, NET_NONE = "workspace-write", "read-only", "net-none"
PORTS, HIDDEN, READ_ROOTS = "ports", "hidden", "read-roots"
NAMESPACES = "namespaces"
PORTS_ALONE = "ports-alone"
POLICIES = (WORKSPACE_WRITE, READ_ONLY, NET_NONE, PORTS, HIDDEN, READ_ROOTS)


@dataclass(frozen=True, slots=True)
class Plan:
    """One session.

    Attributes:
        uid: Whose rights it has, the host side as well; the group is the same number.
        world: ``landlock``; or for twins ``local``, ``direct``, ``namespace``; or a kind of container, in which a twin
            is what has no policy.
        policy: One of `POLICIES`, or `PORTS_ALONE`, with everything else allowed; empty for none.
        without: Layers that the world is to do without.
        landlock_abi: As if the kernel knew no more than this; 0: what it knows.
        answers: Errno that system calls of the warden get instead of being run, by name.
        setting: What is hard in the surroundings; see `hardship`.
        mutant: Which compiler of policies is used; see `mutants`.
        probes: Names; empty for all.
    """

    uid: int
    world: str = "landlock"
    policy: str = WORKSPACE_WRITE
    without: tuple[str, ...] = ()
    landlock_abi: int | None = None
    answers: tuple[tuple[str, int], ...] = ()
    setting: str = ""
    mutant: str = ""
    probes: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = ["root" if self.uid == 0 else "user", self.world, self.policy]
        parts += [f"no-{layer}" for layer in self.without]
        if self.landlock_abi is not None:
            parts.append(f"abi{self.landlock_abi}")
        parts += [f"{name}={errno.errorcode[error]}" for name, error in self.answers]
        parts += [self.setting, self.mutant]
        return "-".join(filter(None, parts))


def twins(uid: int) -> tuple[Plan, ...]:
    """The sessions in which every probe runs unconfined, one way or another."""
    return tuple(Plan(uid, world=world, policy="") for world in ("local", "direct", "namespace"))


@dataclass(slots=True)
class Result:
    """What became of one probe.

    Attributes:
        outcome: What the program in the world said: ``effect``, ``denied``, ``void``, ``broken``, ``silent``.
        effect: Whether the effect was seen where the probe's judge looks.
        detail: Error, reason or evidence.
    """

    outcome: str
    effect: bool
    detail: str = ""


@dataclass(slots=True)
class Outcome:
    """What became of one session.

    Attributes:
        refused: Text of the refusal when the world would not open.
        enforcement: The report of the view.
        crossings: What crosses the boundary of the world, as its facts say.
    """

    refused: str = ""
    enforcement: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    results: dict[str, Result] = field(default_factory=dict[str, Result])
    crossings: list[str] = field(default_factory=list[str])

    def state(self, dimension: str) -> str:
        return str(self.enforcement.get(dimension, {}).get("state", "absent"))

    def encoded(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decoded(cls, text: str) -> Outcome:
        values = json.loads(text)
        results = {name: Result(**result) for name, result in values.pop("results").items()}
        return cls(results=results, **values)


def sandbox_policy(
    name: str, base: Path, *, allowed_port: int, write_roots: Sequence[str], readable: Sequence[str]
) -> SandboxPolicy:
    """The policy of a plan over the targets below *base*."""
    workspace = str(base / "workspace")
    if name == READ_ONLY:
        return SandboxPolicy.read_only(workspace)
    network = NetworkPolicy()
    if name == NET_NONE:
        network = NetworkPolicy(NetworkMode.NONE)
    elif name in (PORTS, PORTS_ALONE):
        network = NetworkPolicy(NetworkMode.PORTS, (allowed_port,))
    if name == PORTS_ALONE:
        return SandboxPolicy(SandboxMode.FULL_ACCESS, network=network)
    return SandboxPolicy(
        SandboxMode.WORKSPACE_WRITE,
        workspace,
        write_roots=tuple(write_roots),
        network=network,
        hidden=(str(base / "hidden"),) if name == HIDDEN else (),
        read_roots=tuple(readable) if name == READ_ROOTS else (),
    )
