"""Compilers of policies that forget something: each must be caught, by a canary of its own cell or by the suite."""

from __future__ import annotations

import errno
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

from execworld.confinement import opening
from execworld.confinement.compiler import CompiledCell, compile_cell
from execworld.confinement.seccomp import Rule, assemble
from execworld.machine.cell import (
    AttachTree,
    CellPlan,
    CellStep,
    Filter,
    KeepCapabilities,
    LoopbackUp,
    MountAttribute,
    Namespace,
    NewFileSystem,
    PathRule,
    PidNamespace,
    Pin,
    Restrict,
    Ruleset,
    SetMountAttributes,
    Unshare,
)

from .plans import HIDDEN, NAMESPACES, NET_NONE, PORTS, READ_ROOTS, WORKSPACE_WRITE, Plan

ROOT, USER = 0, 1000
WRITE_FILE, MAKE_SYMLINK, REFER, TRUNCATE = 1 << 1, 1 << 12, 1 << 13, 1 << 14
ALONE: Final = (NAMESPACES,)
ALL_CAPABILITIES: Final = (1 << 41) - 1

Change = Callable[[CompiledCell], CellPlan]


@dataclass(frozen=True, slots=True)
class Mutant:
    """Attributes:
    plan: A session in which nothing else makes up for what is forgotten.
    change: What the mutant makes of a right plan.
    caught_by: Probes or controls that are enough to catch it where no canary does.
    """

    plan: Plan
    change: Change
    caught_by: tuple[str, ...]


def _with_rulesets(compiled: CompiledCell, change: Callable[[Ruleset], Ruleset]) -> CellPlan:
    plan = compiled.plan
    steps = [Restrict(change(step.ruleset)) if isinstance(step, Restrict) else step for step in plan.steps]
    inner = plan.lock.ruleset
    return replace(plan, steps=tuple(steps), lock=replace(plan.lock, ruleset=inner and change(inner)))


def _without_right(right: int) -> Change:
    def change(ruleset: Ruleset) -> Ruleset:
        paths = tuple(replace(rule, access=rule.access & ~right) for rule in ruleset.paths)
        return replace(
            ruleset,
            handled_fs=ruleset.handled_fs & ~right,
            paths=tuple(rule for rule in paths if rule.access),
        )

    return lambda compiled: _with_rulesets(compiled, change)


def _inner_without_refer(compiled: CompiledCell) -> CellPlan:
    plan = compiled.plan
    assert plan.lock.ruleset is not None
    inner = plan.lock.ruleset
    paths = tuple(replace(rule, access=rule.access & ~REFER) for rule in inner.paths)
    changed = replace(
        inner, handled_fs=inner.handled_fs & ~REFER, paths=tuple(rule for rule in paths if rule.access)
    )
    return replace(plan, lock=replace(plan.lock, ruleset=changed))


def _all_writable(compiled: CompiledCell) -> CellPlan:
    """A rule on the root lets everything be written."""
    steps = list(compiled.plan.steps)
    place = next(number for number, step in enumerate(steps) if isinstance(step, Restrict))
    pin = sum(isinstance(step, Pin) for step in steps[:place])
    steps.insert(place, Pin(b"/", True))
    rule = PathRule(pin, WRITE_FILE | TRUNCATE)
    wider = replace(compiled, plan=replace(compiled.plan, steps=tuple(steps)))
    return _with_rulesets(wider, lambda ruleset: replace(ruleset, paths=(*ruleset.paths, rule)))


def _without_scopes(compiled: CompiledCell) -> CellPlan:
    return _with_rulesets(compiled, lambda ruleset: replace(ruleset, scoped=0))


def _without_ports(compiled: CompiledCell) -> CellPlan:
    return _with_rulesets(compiled, lambda ruleset: replace(ruleset, handled_net=0, ports=()))


def _with_rules(compiled: CompiledCell, keep: Callable[[Rule], bool]) -> CellPlan:
    """The rules of both filters for which *keep* holds."""
    plan, architecture = compiled.plan, compiled.place.arch

    def program(rules: Sequence[Rule]) -> bytes:
        return assemble(tuple(rule for rule in rules if keep(rule)) or (Rule("acct", 1),), architecture)

    cell = program(compiled.cell_rules)
    steps = [Filter(cell) if isinstance(step, Filter) else step for step in plan.steps]
    return replace(plan, steps=tuple(steps), lock=replace(plan.lock, program=program(compiled.program_rules)))


def _without_filters(compiled: CompiledCell) -> CellPlan:
    return _with_rules(compiled, lambda rule: False)


def _without_rules_on(*names: str) -> Change:
    return lambda compiled: _with_rules(compiled, lambda rule: rule.syscall not in names)


def _denying(*names: str) -> Change:
    """More is denied than the policy says: then what must be denied would look well held, whatever the layers are."""
    more = tuple(Rule(name, errno.EPERM) for name in names)

    def change(compiled: CompiledCell) -> CellPlan:
        wider = replace(compiled, program_rules=(*compiled.program_rules, *more))
        return _with_rules(wider, lambda rule: True)

    return change


def _without_granted_ports(compiled: CompiledCell) -> CellPlan:
    return _with_rulesets(compiled, lambda ruleset: replace(ruleset, ports=()))


def _with_steps(compiled: CompiledCell, change: Callable[[CellStep], CellStep | None]) -> CellPlan:
    changed = [change(step) for step in compiled.plan.steps]
    assert all(
        step is not None or not isinstance(old, Pin)
        for step, old in zip(changed, compiled.plan.steps, strict=True)
    )
    return replace(compiled.plan, steps=tuple(step for step in changed if step is not None))


def _with_all_capabilities(compiled: CompiledCell) -> CellPlan:
    plan = _with_steps(compiled, lambda step: None if isinstance(step, KeepCapabilities) else step)
    return replace(plan, lock=replace(plan.lock, capabilities=None))


def _writable_mounts(compiled: CompiledCell) -> CellPlan:
    def change(step: CellStep) -> CellStep:
        if isinstance(step, SetMountAttributes):
            return SetMountAttributes(step.attributes & ~MountAttribute.READ_ONLY)
        return step

    return _with_steps(compiled, change)


def _hidden_not_covered(compiled: CompiledCell) -> CellPlan:
    """What is mounted over hidden paths is left out."""
    pins = [step.path for step in compiled.plan.steps if isinstance(step, Pin)]
    hidden = {number for number, path in enumerate(pins) if path in compiled.situation.paths.hidden}

    def change(step: CellStep) -> CellStep | None:
        covers = isinstance(step, AttachTree | NewFileSystem) and step.pin in hidden
        return None if covers else step

    return _with_steps(compiled, change)


def _without_pid_namespace(compiled: CompiledCell) -> CellPlan:
    def change(step: CellStep) -> CellStep | None:
        proc = isinstance(step, NewFileSystem) and step.kind == b"proc"
        return None if proc or isinstance(step, PidNamespace) else step

    return _with_steps(compiled, change)


def _without_network_namespace(compiled: CompiledCell) -> CellPlan:
    without_filters = replace(compiled, plan=_without_filters(compiled))

    def change(step: CellStep) -> CellStep | None:
        if isinstance(step, Unshare):
            namespaces = step.namespaces & ~Namespace.NETWORK
            return Unshare(namespaces) if namespaces else None
        return None if isinstance(step, LoopbackUp) else step

    return _with_steps(without_filters, change)


def _plan(uid: int, policy: str = WORKSPACE_WRITE, **options: Any) -> Plan:
    return Plan(uid, policy=policy, **options)


MUTANTS: Final[dict[str, Mutant]] = {
    "forgets-writing": Mutant(_plan(USER, without=ALONE), _without_right(WRITE_FILE), ("open-for-writing",)),
    "forgets-truncation": Mutant(_plan(ROOT, without=ALONE), _without_right(TRUNCATE), ("truncate-path",)),
    "forgets-symlinks": Mutant(_plan(USER, without=ALONE), _without_right(MAKE_SYMLINK), ("symlink",)),
    "forgets-refer": Mutant(_plan(USER), _inner_without_refer, ("rename-across-directories",)),
    "grants-the-root": Mutant(_plan(ROOT, without=ALONE), _all_writable, ("open-for-writing",)),
    "forgets-scopes": Mutant(_plan(USER, without=ALONE), _without_scopes, ("kill", "connect-abstract")),
    "forgets-ports": Mutant(_plan(USER, PORTS, without=ALONE), _without_ports, ("connect-tcp",)),
    "forgets-filters": Mutant(
        _plan(USER, without=ALONE),
        _without_filters,
        ("limit-cpu-of-victim", "connect-path", "type-into-terminal"),
    ),
    "forgets-unix-sockets": Mutant(_plan(USER), _without_rules_on("socket", "socketpair"), ("connect-path",)),
    "forgets-limits-of-others": Mutant(
        _plan(ROOT, without=ALONE), _without_rules_on("prlimit64"), ("limit-cpu-of-victim",)
    ),
    "forgets-capabilities": Mutant(
        _plan(ROOT, without=ALONE), _with_all_capabilities, ("read-environment", "chroot", "make-bpf-map")
    ),
    "forgets-read-only": Mutant(_plan(USER, landlock_abi=0), _writable_mounts, ("open-for-writing", "chmod")),
    "forgets-metadata": Mutant(_plan(ROOT), _writable_mounts, ("chmod",)),
    "forgets-what-is-hidden": Mutant(_plan(ROOT, HIDDEN), _hidden_not_covered, ("read-secret",)),
    "forgets-pid-namespace": Mutant(_plan(USER), _without_pid_namespace, ("read-command-line",)),
    "forgets-network": Mutant(_plan(USER, NET_NONE), _without_network_namespace, ("connect-tcp", "send-udp")),
    "denies-all-internet-sockets": Mutant(_plan(USER, NET_NONE), _denying("socket"), ()),
    "denies-pairs-of-sockets": Mutant(_plan(USER), _denying("socketpair"), ()),
    "denies-granted-ports": Mutant(_plan(USER, PORTS, without=ALONE), _without_granted_ports, ()),
    "forgets-reading": Mutant(
        _plan(USER, READ_ROOTS, without=ALONE), _without_right(1 << 2), ("read-secret",)
    ),
}


@contextmanager
def mutated(name: str) -> Generator[None]:
    """The compiler is the mutant *name*, or itself when that is empty."""
    if not name:
        yield
        return
    right = compile_cell
    change = MUTANTS[name].change

    def wrong(*arguments: Any, **named: Any) -> CompiledCell:
        compiled = right(*arguments, **named)
        return replace(compiled, plan=change(compiled))

    with patch.object(opening, "compile_cell", wrong):
        yield
