"""The partial order of policies: what one policy allows that another does not.

A policy is at least as tight as another when nothing is lost by taking it instead. What cannot be compared counts as
lost. Paths are compared by their names: that two of them lead to one place through a link is not known here.
"""

from __future__ import annotations

from dataclasses import fields

from execworld.seams.containment import lies_within_any
from execworld.seams.policy import (
    NetworkMode,
    NetworkPolicy,
    ResourceLimits,
    SandboxMode,
    SandboxPolicy,
)
from execworld.seams.values import value_class


@value_class
class Shortfall:
    """One guarantee that is missing.

    Attributes:
        subject: What it is about, as a key of a composition: ``policy.mode``, ``world.use``, ...
        wanted: What is demanded, or what there was before.
        found: What there is.
    """

    subject: str
    wanted: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.wanted} is wanted, and there is {self.found}"

    def as_dict(self) -> dict[str, object]:
        return {"subject": self.subject, "wanted": self.wanted, "found": self.found}


_WIDTH = (SandboxMode.READ_ONLY, SandboxMode.WORKSPACE_WRITE, SandboxMode.FULL_ACCESS)


def is_mode_within(mode: SandboxMode, widest: SandboxMode) -> bool:
    """``read-only`` is within ``workspace-write``, and both are within ``full-access``."""
    return _WIDTH.index(mode) <= _WIDTH.index(widest)


def is_network_within(network: NetworkPolicy, widest: NetworkPolicy) -> bool:
    if network.mode is NetworkMode.NONE or widest.mode is NetworkMode.ALL:
        return True
    return (
        network.mode is NetworkMode.PORTS
        and widest.mode is NetworkMode.PORTS
        and set(network.tcp_ports) <= set(widest.tcp_ports)
    )


def limits_beyond(limits: ResourceLimits, largest: ResourceLimits) -> tuple[str, ...]:
    """Names of the limits that *largest* sets and that *limits* does not keep."""
    found: list[str] = []
    for item in fields(largest):
        bound, value = getattr(largest, item.name), getattr(limits, item.name)
        if bound is not None and (value is None or value > bound):
            found.append(item.name)
    return tuple(found)


def show_network(network: NetworkPolicy) -> str:
    ports = ", ".join(map(str, network.tcp_ports))
    return f"TCP to port {ports}" if network.mode is NetworkMode.PORTS else str(network.mode)


def show_paths(paths: tuple[str, ...]) -> str:
    return ", ".join(paths) if paths else "none"


def writable_roots(policy: SandboxPolicy) -> tuple[str, ...]:
    """What may be written; the whole file system with full access."""
    if policy.mode is SandboxMode.FULL_ACCESS:
        return ("/",)
    if policy.mode is SandboxMode.READ_ONLY:
        return ()
    return tuple(filter(None, (policy.workspace, *policy.write_roots)))


def readable_roots(policy: SandboxPolicy) -> tuple[str, ...]:
    """What may be read beside what programs need to start; the whole file system without read roots."""
    if not policy.read_roots:
        return ("/",)
    return tuple(filter(None, (policy.workspace, *policy.read_roots, *policy.write_roots)))


def policy_losses(before: SandboxPolicy, after: SandboxPolicy) -> tuple[Shortfall, ...]:
    """What *before* guarantees and *after* does not; nothing when *after* is at least as tight."""
    lost: list[Shortfall] = []
    if not is_mode_within(after.mode, before.mode):
        lost.append(Shortfall("policy.mode", str(before.mode), str(after.mode)))
    elif wider := _outside(writable_roots(after), writable_roots(before)):
        lost.append(
            Shortfall(
                "policy.write_roots",
                f"nothing to be written beyond {show_paths(writable_roots(before))}",
                show_paths(wider),
            )
        )
    if wider := _outside(readable_roots(after), readable_roots(before)):
        lost.append(
            Shortfall(
                "policy.read_roots",
                f"nothing to be read beyond {show_paths(readable_roots(before))}",
                show_paths(wider),
            )
        )
    if bared := tuple(path for path in before.hidden if not lies_within_any(path, after.hidden)):
        lost.append(Shortfall("policy.hidden", f"{show_paths(bared)} hidden", show_paths(after.hidden)))
    if not is_network_within(after.network, before.network):
        lost.append(Shortfall("policy.network", show_network(before.network), show_network(after.network)))
    lost += [
        Shortfall(
            f"policy.limits.{name}",
            f"at most {getattr(before.limits, name)}",
            _shown_limit(getattr(after.limits, name)),
        )
        for name in limits_beyond(after.limits, before.limits)
    ]
    if let_in := tuple(name for name in after.environment if name not in before.environment):
        lost.append(
            Shortfall("policy.environment", "these variables kept out", f"let in: {', '.join(let_in)}")
        )
    lost += [
        Shortfall("policy.require", f"{dimension} enforced", "no demand for it")
        for dimension in sorted(before.required() - after.required())
    ]
    return tuple(lost)


def _outside(paths: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(path for path in paths if not lies_within_any(path, roots))


def _shown_limit(value: float | None) -> str:
    return "no limit" if value is None else str(value)
