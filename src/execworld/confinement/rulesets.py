"""Landlock rulesets of a cell: that of the cell, and that of its programs."""

from __future__ import annotations

from collections.abc import Mapping

from execworld.confinement import landlock
from execworld.confinement.dimensions import Situation
from execworld.confinement.landlock import FsRight, NetRight, Scope
from execworld.confinement.layers import Layer
from execworld.confinement.namespaces import has_private_shared_memory
from execworld.confinement.paths import (
    PLAIN_DEVICES,
    REPLACED,
    ROOT,
    SHARED_MEMORY,
    SYSTEM_ROOTS,
    TERMINAL,
    TERMINAL_MASTER,
    TERMINALS,
)
from execworld.confinement.place import PathKind
from execworld.confinement.steps import StepList
from execworld.machine.cell import PathRule, PortRule, Ruleset
from execworld.seams.policy import NetworkMode, SandboxMode
from execworld.seams.values import record


@record
class Rulesets:
    """Attributes:
    cell: The policy, and what the warden needs beyond it.
    program: Exactly the policy. None where no layer of its own is to be had.
    """

    cell: Ruleset
    program: Ruleset | None


def add_rulesets(steps: StepList, situation: Situation, pins: Mapping[bytes, int]) -> Rulesets:
    """Pins what the rules name, as it is after all mounts. The cell is restricted by the caller."""
    abi = landlock.known(situation.place.landlock_abi)
    handled = _handled(situation, abi)
    rules = _Rules(steps, situation, pins, handled)
    rules.add_policy()
    policy = dict(rules.rights)
    rules.add_needs_of_the_cell()
    net = _handled_net(situation, abi)
    confined = situation.policy.mode is not SandboxMode.FULL_ACCESS
    cell = Ruleset(
        handled_fs=int(handled),
        handled_net=int(net),
        scoped=int(landlock.scopes(abi)) if confined else 0,
        paths=_as_rules(rules.rights),
        ports=tuple(
            PortRule(port, int(NetRight.CONNECT_TCP)) for port in situation.policy.network.tcp_ports if net
        ),
    )
    if Layer.INNER_LANDLOCK not in situation.layers:
        return Rulesets(cell, None)
    # Without what relates to others: programs of one view may talk to each other, and ports are the cell's already.
    # Only signals need a border between a program and the cell where no numbers of their own part them.
    own_pids = Layer.PID_NAMESPACE in situation.layers
    scoped = landlock.scopes(abi) & (Scope.NONE if own_pids or not confined else Scope.SIGNAL)
    handled &= ~FsRight.RESOLVE_UNIX
    program = Ruleset(handled_fs=int(handled), scoped=int(scoped), paths=_as_rules(policy, handled))
    return Rulesets(cell, program)


def _handled(situation: Situation, abi: int) -> FsRight:
    """Reading is handled only where the policy restricts it; REFER always, because not handling it denies it."""
    known = landlock.fs_rights(abi)
    full = situation.policy.mode is SandboxMode.FULL_ACCESS
    handled = FsRight.REFER & known if full else known & ~landlock.READ
    if situation.paths.readable is not None:
        handled |= landlock.READ
    return handled


def _handled_net(situation: Situation, abi: int) -> NetRight:
    if situation.policy.network.mode is NetworkMode.PORTS and abi >= landlock.TCP_ABI:
        return NetRight.BIND_TCP | NetRight.CONNECT_TCP
    return NetRight.NONE


def _as_rules(rights: Mapping[int, FsRight], handled: FsRight | None = None) -> tuple[PathRule, ...]:
    masked = ((pin, right if handled is None else right & handled) for pin, right in rights.items())
    return tuple(PathRule(pin, int(right)) for pin, right in masked if right)


class _Rules:
    def __init__(
        self, steps: StepList, situation: Situation, pins: Mapping[bytes, int], handled: FsRight
    ) -> None:
        self._steps = steps
        self._situation = situation
        self._handled = handled
        # A pin sees what was mounted before it; at these places something else has been mounted since.
        self._pins = {path: pin for path, pin in pins.items() if path not in REPLACED}
        self.rights: dict[int, FsRight] = {}

    def add_policy(self) -> None:
        situation, paths = self._situation, self._situation.paths
        if situation.policy.mode is SandboxMode.FULL_ACCESS:
            self._grant(ROOT, FsRight.REFER)
        for path in paths.writable:
            self._grant(path, landlock.WRITE_ROOT)
        if paths.readable is not None:
            for path in (*paths.readable, *paths.present(SYSTEM_ROOTS)):
                self._grant(path, landlock.READ)
        for path in paths.present(PLAIN_DEVICES):
            self._grant(path, landlock.DEVICE)
        for path in paths.present((TERMINAL,)):
            self._grant(path, landlock.TERMINAL)
        if Layer.TERMINALS in situation.layers:
            self._grant_terminals()
        if has_private_shared_memory(situation) and situation.policy.mode is SandboxMode.WORKSPACE_WRITE:
            self._grant(SHARED_MEMORY, landlock.WRITE_ROOT)
        if Layer.PRIVATE_TEMP in situation.layers and paths.own_temp is not None:
            self._grant(paths.own_temp, landlock.WRITE_ROOT)

    def add_needs_of_the_cell(self) -> None:
        """The warden allocates terminals and hands out descriptors; those of others are not for programs."""
        if Layer.TERMINALS not in self._situation.layers:
            self._grant_terminals()

    def _grant_terminals(self) -> None:
        paths = self._situation.paths
        if paths.kind(TERMINAL_MASTER) is PathKind.OTHER:
            self._grant(TERMINAL_MASTER, landlock.TERMINAL)
        if paths.is_directory(TERMINALS):
            self._grant(TERMINALS, landlock.TERMINALS)

    def _grant(self, path: bytes, rights: FsRight) -> None:
        paths = self._situation.paths
        directory = path in (ROOT, paths.own_temp) or paths.is_directory(path)
        granted = rights & self._handled if directory else rights & self._handled & landlock.ON_FILES
        if not granted:
            return
        pin = self._pins.get(path)
        if pin is None:
            pin = self._pins[path] = self._steps.pin(Layer.LANDLOCK, path, directory=directory)
        self.rights[pin] = self.rights.get(pin, FsRight(0)) | granted
