"""What a container itself enforces, for every program in it: read from its settings, and seen from within to hold.

A setting that was not seen to hold is `PARTIAL`, so that no policy is satisfied by configuration alone.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from execworld.confinement.surroundings import Given
from execworld.machine.base import Machine
from execworld.machine.batch import Batch, BatchFailed
from execworld.machine.operations import Close, Connect, Open, Operation, Read
from execworld.machine.values import AddressKind
from execworld.providers.docker.boundary import ContainerBoundary
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.identity import Boundary
from execworld.seams.policy import NetworkMode, SandboxMode, SandboxPolicy

_MOST_BYTES: Final = 64 * 1024
_INTERFACES: Final = b"/proc/self/net/dev"
_ELSEWHERE: Final = (b"192.0.2.1", b"2001:db8::1")
"""Addresses that nobody has (RFC 5737, RFC 3849): where there is a route, asking does not fail at once."""
_DISCARD_PORT: Final = 9
_LOOPBACK: Final = "its loopback interface leads to what other programs of the container listen on"
_NO_ROUTE: Final = frozenset({errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_OF_EVERY_NETWORK: Final = frozenset(
    {"lo", "erspan0", "gre0", "gretap0", "ip6_vti0", "ip6gre0", "ip6tnl0", "ip_vti0", "sit0", "tunl0"}
)
"""Loopback, and the devices that the kernel adds to every network namespace for the tunnels that it knows; those are
down."""
_PROCESSES: Final = (b"/sys/fs/cgroup/pids.max", b"/sys/fs/cgroup/pids/pids.max")
_MEMORY: Final = (b"/sys/fs/cgroup/memory.max", b"/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen from within the container.

    Attributes:
        no_network: Why it cannot be said that there is no network; empty when there is none.
        processes: Limit of the container's own control group, *memory_bytes* likewise; None when none was found.
    """

    no_network: str
    processes: int | None
    memory_bytes: int | None


async def observe(machine: Machine) -> Observed:
    """Look from within, before any program ran there."""
    return Observed(
        no_network=await _network_found(machine),
        processes=await _first_number(machine, _PROCESSES),
        memory_bytes=await _first_number(machine, _MEMORY),
    )


@dataclass(frozen=True, slots=True)
class ContainerSurroundings:
    """A `Surroundings`: what the container gives to a policy."""

    boundary: ContainerBoundary
    observed: Observed

    def __call__(self, policy: SandboxPolicy) -> Mapping[Dimension, Given]:
        found: dict[Dimension, Given] = {}
        if policy.network.mode is not NetworkMode.ALL and self.boundary.no_network:
            doubt = self.observed.no_network
            why_not = f"could not be verified: {doubt}" if doubt else _LOOPBACK
            for dimension in (Dimension.NET_TCP, Dimension.NET_UDP):
                found[dimension] = _partial("container without network", why_not)
        if policy.mode is SandboxMode.READ_ONLY and self.boundary.read_only_root:
            places = ", ".join(self.boundary.writable)
            for dimension in (Dimension.FS_WRITE, Dimension.FS_METADATA):
                found[dimension] = _partial("container with a read-only root", f"not read-only: {places}")
        if self.boundary.own_processes and policy.mode is not SandboxMode.FULL_ACCESS:
            for dimension in (Dimension.IPC_SIGNAL, Dimension.IPC_TRACE, Dimension.PROC_VISIBILITY):
                found[dimension] = _partial("container", "other processes of the container are not kept away")
        limits = policy.limits
        _add_limit(
            found,
            Dimension.LIMIT_PROCESSES,
            limits.processes,
            self.boundary.processes,
            self.observed.processes,
        )
        _add_limit(
            found,
            Dimension.LIMIT_MEMORY,
            limits.memory_bytes,
            self.boundary.memory_bytes,
            self.observed.memory_bytes,
        )
        return MappingProxyType(
            found if self._holds else {name: _doubted(one) for name, one in found.items()}
        )

    @property
    def _holds(self) -> bool:
        """Whether a program could not simply undo what the container is set to."""
        kinds = (Boundary.CONTAINER, Boundary.VIRTUAL_MACHINE)
        return self.boundary.boundary in kinds and not self.boundary.administrator


def _doubted(one: Given) -> Given:
    if one.state is not EnforcementState.ENFORCED:
        return one
    return _partial(one.by, "with its rights a program can undo it")


def _add_limit(
    found: dict[Dimension, Given],
    dimension: Dimension,
    asked: int | None,
    set_to: int | None,
    seen: int | None,
) -> None:
    """A limit of the whole container holds for a view that asks for as much or more."""
    if asked is None or set_to is None:
        return
    by = f"container limited to {set_to}"
    if set_to > asked:
        found[dimension] = _partial(by, f"{asked} was asked for")
    elif seen is None or seen > asked:
        said = "there is no control group to look at" if seen is None else f"its control group says {seen}"
        found[dimension] = _seen(by, said)
    else:
        found[dimension] = _seen(by, "")


def _seen(by: str, contradiction: str) -> Given:
    if contradiction:
        return _partial(by, f"could not be verified: {contradiction}")
    return Given(EnforcementState.ENFORCED, by)


def _partial(by: str, why_not: str) -> Given:
    return Given(EnforcementState.PARTIAL, by, why_not)


async def _network_found(machine: Machine) -> str:
    table = await _read(machine, _INTERFACES)
    if table is None:
        return "the interfaces cannot be listed"
    names = {line.partition(b":")[0].strip().decode("utf-8", "replace") for line in table.splitlines()[2:]}
    if others := sorted(names - _OF_EVERY_NETWORK):
        return f"there is an interface {', '.join(others)}"
    for address in _ELSEWHERE:
        status = await _status_of(machine, Connect(AddressKind.TCP, address, _DISCARD_PORT))
        if status not in _NO_ROUTE:
            return f"{address.decode()} can be asked ({errno.errorcode.get(status, status)})"
    return ""


async def _status_of(machine: Machine, operation: Operation[int]) -> int:
    batch = Batch()
    step = batch.add(operation)
    batch.add(Close(step.handle))
    try:
        await machine.run(batch)
    except BatchFailed as failure:
        return failure.error.status
    return 0


async def _first_number(machine: Machine, paths: tuple[bytes, ...]) -> int | None:
    for path in paths:
        text = await _read(machine, path)
        if text is not None:
            return int(text) if text.strip().isdigit() else None
    return None


async def _read(machine: Machine, path: bytes) -> bytes | None:
    batch = Batch()
    handle = batch.add(Open(path))
    read = batch.add(Read(handle.handle, _MOST_BYTES))
    batch.add(Close(handle.handle))
    try:
        return (await machine.run(batch))[read]
    except BatchFailed:
        return None
