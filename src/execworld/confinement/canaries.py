"""Which probes are tried in a cell, and what their outcome says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from execworld.confinement.dimensions import TABLE, Claim, Situation, refuses_unix_sockets
from execworld.confinement.layers import Layer
from execworld.confinement.paths import ROOT
from execworld.machine.cell import Probe, ProbeKind
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.policy import NetworkMode
from execworld.seams.values import record

_MOST_PORTS: Final = 8
"""That many say as much as all of them would."""


def _has_own_network(situation: Situation) -> bool:
    alone = situation.policy.network.mode is NetworkMode.NONE
    return alone and Layer.NETWORK_NAMESPACE in situation.layers


_CONTROLS: Final[Mapping[ProbeKind, Callable[[Situation], bool]]] = {
    ProbeKind.OWN_TCP: _has_own_network,
    ProbeKind.OWN_UDP: _has_own_network,
    ProbeKind.OWN_SIGNAL: lambda situation: True,
    # Without a ruleset of their own, programs may not trace at all.
    ProbeKind.OWN_TRACE: lambda situation: Layer.INNER_LANDLOCK in situation.layers,
    ProbeKind.OWN_UNIX: lambda situation: not refuses_unix_sockets(situation),
    ProbeKind.OWN_PAIR: lambda situation: True,
}
"""When the policy allows what a control does. Where it never does, the attempt without confinement is the control."""


@record
class Canary:
    """Attributes:
    denied: The effect must not be had in the cell where its dimension is claimed; else it must be.
    """

    dimension: Dimension
    probe: Probe
    denied: bool


def canaries(situation: Situation, claims: Mapping[Dimension, Claim]) -> tuple[Canary, ...]:
    """Those of all claimed dimensions: what denies, and that it does not deny what the policy grants."""
    chosen: list[Canary] = []
    for dimension, made in claims.items():
        if made.state is EnforcementState.ABSENT:
            continue
        row = TABLE[dimension]
        for kind in row.denied:
            chosen += [Canary(dimension, probe, True) for probe in _denied(kind, situation)]
        for kind in row.allowed:
            chosen += [Canary(dimension, probe, False) for probe in _allowed(kind, situation)]
    return tuple(chosen)


def _denied(kind: ProbeKind, situation: Situation) -> Iterator[Probe]:
    if kind is ProbeKind.WRITE_BELOW:
        for path in situation.paths.kept if Layer.MOUNTS in situation.layers else ():
            if situation.paths.is_directory(path):
                yield Probe(kind, path)
        return
    if kind is not ProbeKind.READ:
        yield Probe(kind)
        return
    for path in situation.paths.hidden:
        yield Probe(kind, path)
    readable = situation.paths.readable
    if readable is not None and ROOT not in readable:
        yield Probe(kind, ROOT)  # below nothing that is granted, and readable for everybody elsewhere


def _allowed(kind: ProbeKind, situation: Situation) -> Iterator[Probe]:
    paths = situation.paths
    if kind is ProbeKind.WRITE_BELOW:
        for path in paths.writable:
            if paths.is_directory(path):
                yield Probe(kind, path)
        if Layer.PRIVATE_TEMP in situation.layers and paths.own_temp is not None:
            yield Probe(kind, paths.own_temp)
    elif kind is ProbeKind.GRANTED_PORT:
        for port in situation.policy.network.tcp_ports[:_MOST_PORTS]:
            yield Probe(kind, str(port).encode())
    elif kind in _CONTROLS:
        if _CONTROLS[kind](situation):
            yield Probe(kind)
    elif kind is ProbeKind.READ:
        for path in paths.readable or paths.writable or (b"/usr",):
            yield Probe(kind, path)
