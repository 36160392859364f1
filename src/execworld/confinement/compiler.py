"""The compiler: from a policy and a place to the plan of a cell and what may be claimed of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from execworld.confinement import capabilities
from execworld.confinement.caches import cell_environment
from execworld.confinement.canaries import Canary, canaries
from execworld.confinement.dimensions import Claim, Situation, claim
from execworld.confinement.filters import policy_rules, program_rules
from execworld.confinement.layers import Layer, standing
from execworld.confinement.namespaces import add_mounts, add_namespaces
from execworld.confinement.obstacle import Obstacle
from execworld.confinement.paths import policy_paths
from execworld.confinement.place import NOTHING_KNOWN, CellDirectories, PathKinds, Place
from execworld.confinement.rulesets import add_rulesets
from execworld.confinement.seccomp import Rule, assemble
from execworld.confinement.steps import StepList
from execworld.machine.cell import CellPlan, Filter, KeepCapabilities, ProgramLock, Restrict, Ruleset
from execworld.seams.enforcement import Dimension, EnforcementState
from execworld.seams.policy import SandboxPolicy
from execworld.seams.values import record

TASKS_OF_A_CELL: Final = 16
"""Warden, its threads, keeper and supervisors in a cell that runs a few commands at a time."""

_RLIMIT_CPU, _RLIMIT_FSIZE, _RLIMIT_NPROC = 0, 1, 6  # the same on all architectures that a warden runs on


@record
class CompiledCell:
    """A plan and what it stands for.

    Attributes:
        layer_of_step: One for each step; None for the pin of a path of the policy.
        environment: What programs are to find set, over what they would inherit.
        claims: For each asked dimension, before any probe was tried.
        canaries: One for each probe of the plan.
        fallen: Layers that the policy would use and the plan does not have, and why.
        cell_rules: What the filter of the cell denies; *program_rules* that of programs.
    """

    policy: SandboxPolicy
    place: Place
    plan: CellPlan
    layer_of_step: tuple[Layer | None, ...]
    environment: Mapping[str, str]
    claims: Mapping[Dimension, Claim]
    canaries: tuple[Canary, ...]
    situation: Situation
    fallen: Mapping[Layer, Obstacle]
    cell_rules: tuple[Rule, ...]
    program_rules: tuple[Rule, ...]

    def missing(self) -> tuple[Dimension, ...]:
        """Required dimensions that this plan cannot enforce."""
        return missing(self.policy, self.claims)


def missing(policy: SandboxPolicy, claims: Mapping[Dimension, Claim]) -> tuple[Dimension, ...]:
    """Required dimensions that these claims do not enforce."""
    required = policy.required()
    return tuple(
        dimension
        for dimension, made in claims.items()
        if dimension in required and made.state is not EnforcementState.ENFORCED
    )


def compile_cell(
    policy: SandboxPolicy,
    place: Place,
    directories: CellDirectories,
    without: Mapping[Layer, Obstacle],
    kinds: PathKinds = NOTHING_KNOWN,
) -> CompiledCell:
    """Make the plan for *policy*, whose paths are resolved, in *place*.

    Args:
        without: Layers that are known not to be had here, and why.
        kinds: What is at the paths that decide about the plan (`survey`); a usual system is assumed where nothing is
            known.

    Raises:
        ConfigurationError: what the policy hides and what it grants contradict each other.
    """
    paths = policy_paths(policy, directories, kinds, place.installation)
    found = standing(policy, place, paths, without)
    situation = Situation(policy, place, paths, found.layers, place.counts_processes, place.bounds_memory)
    steps = StepList()
    add_namespaces(steps, found.layers)
    pins = {
        path: steps.pin(None, path, directory=paths.is_directory(path))
        for path in paths.given
        if path not in paths.hidden or Layer.MOUNTS not in found.layers
    }
    if Layer.MOUNTS in found.layers:
        add_mounts(steps, situation, pins)
    inner: Ruleset | None = None
    if Layer.LANDLOCK in found.layers:
        rulesets = add_rulesets(steps, situation, pins)
        steps.add(Layer.LANDLOCK, Restrict(rulesets.cell))
        inner = rulesets.program
    kept: int | None = None
    if Layer.CAPABILITIES in found.layers:
        kept = capabilities.of_programs(policy, place.uid)
        steps.add(Layer.CAPABILITIES, KeepCapabilities(capabilities.of_cell(policy, place.uid, found.layers)))
    cell_rules: tuple[Rule, ...] = ()
    programs: tuple[Rule, ...] = ()
    if Layer.SECCOMP in found.layers:
        cell_rules, programs = policy_rules(situation), program_rules(situation)
        if cell_rules:
            steps.add(Layer.SECCOMP, Filter(assemble(cell_rules, place.arch)))
    claims = {dimension: claim(dimension, situation, found.fallen) for dimension in _in_order(policy.asked())}
    chosen = canaries(situation, claims)
    plan = CellPlan(
        steps=tuple(steps.steps),
        lock=ProgramLock(
            ruleset=inner,
            program=assemble(programs, place.arch) if programs else b"",
            capabilities=kept,
            limits=_limits(policy, found.layers),
        ),
        processes=_processes(policy) if Layer.CGROUP in found.layers else None,
        memory_bytes=policy.limits.memory_bytes if Layer.CGROUP in found.layers else None,
        probes=tuple(canary.probe for canary in chosen),
        scratch=directories.scratch if chosen else b"",
    )
    return CompiledCell(
        policy=policy,
        place=place,
        plan=plan,
        layer_of_step=tuple(steps.layers),
        environment=cell_environment(situation, directories),
        claims=claims,
        canaries=chosen,
        situation=situation,
        fallen=found.fallen,
        cell_rules=cell_rules,
        program_rules=programs,
    )


def with_limits_held(situation: Situation, *, processes: bool, memory: bool) -> Situation:
    """The same, once it is known which limits a control group holds."""
    return replace(situation, counts_processes=processes, bounds_memory=memory)


def _in_order(asked: frozenset[Dimension]) -> tuple[Dimension, ...]:
    return tuple(dimension for dimension in Dimension if dimension in asked)


def _limits(policy: SandboxPolicy, layers: frozenset[Layer]) -> tuple[tuple[int, int, int], ...]:
    if Layer.RLIMITS not in layers:
        return ()
    limits = policy.limits
    values: list[tuple[int, int, int]] = []
    if limits.cpu_s is not None:
        seconds = math.ceil(limits.cpu_s)
        values.append((_RLIMIT_CPU, seconds, seconds))
    if limits.file_size_bytes is not None:
        values.append((_RLIMIT_FSIZE, limits.file_size_bytes, limits.file_size_bytes))
    processes = _processes(policy)
    if processes is not None and Layer.USER_NAMESPACE in layers:
        values.append((_RLIMIT_NPROC, processes, processes))
    return tuple(values)


def _processes(policy: SandboxPolicy) -> int | None:
    """What the kernel is told: it counts the tasks of the cell itself as well."""
    asked = policy.limits.processes
    return None if asked is None else asked + TASKS_OF_A_CELL
