"""The plan of a cell in words and as JSON values, for `--explain` and `doctor`."""

from __future__ import annotations

from enum import IntFlag

from execworld.confinement.compiler import CompiledCell
from execworld.confinement.landlock import FsRight, NetRight, Scope
from execworld.confinement.layers import Layer
from execworld.confinement.seccomp import Rule
from execworld.machine.cell import CellStep, Filter, KeepCapabilities, Pin, Restrict, Ruleset
from execworld.seams.enforcement import Enforcement


def explain_as_dict(compiled: CompiledCell, enforcement: Enforcement | None = None) -> dict[str, object]:
    """Everything that `explain` says, as plain JSON values. The form may grow; what is there keeps its meaning."""
    required = compiled.policy.required()
    dimensions: dict[str, dict[str, object]] = {
        str(dimension): {
            "required": dimension in required,
            "state": str(made.state),
            "by": made.by,
            "why_not": made.why_not,
            "probes": [
                canary.probe.kind.name for canary in compiled.canaries if canary.dimension is dimension
            ],
        }
        for dimension, made in compiled.claims.items()
    }
    inner = compiled.plan.lock.ruleset
    pins = _pins(compiled)
    return {
        "policy": compiled.policy.as_dict(),
        "proven": enforcement is not None,
        "dimensions": enforcement.as_dict() if enforcement is not None else dimensions,
        "layers": sorted(str(layer) for layer in compiled.situation.layers),
        "fallen": {str(layer): why.text for layer, why in compiled.fallen.items()},
        "steps": [
            {"layer": None if layer is None else str(layer), "step": _described(step, pins)}
            for layer, step in zip(compiled.layer_of_step, compiled.plan.steps, strict=True)
        ],
        "programs": {
            "ruleset": None if inner is None else _ruleset(inner, pins),
            "capabilities": compiled.plan.lock.capabilities,
            "limits": [list(limit) for limit in compiled.plan.lock.limits],
            "denied": _rules((*compiled.cell_rules, *compiled.program_rules)),
        },
        "environment": dict(compiled.environment),
        "kept": [path.decode("utf-8", "backslashreplace") for path in kept(compiled)],
    }


def explain(compiled: CompiledCell, enforcement: Enforcement | None = None) -> str:
    """One line for each dimension, layer, step and rule."""
    required = compiled.policy.required()
    lines = ["dimensions:" if enforcement is None else "dimensions, proven:"]
    for dimension, made in compiled.claims.items():
        entry = made if enforcement is None else enforcement.entries[dimension]
        detail = " ".join(
            filter(None, [entry.by and f"by {entry.by}", entry.why_not and f"({entry.why_not})"])
        )
        asked = "required" if dimension in required else "reported"
        lines.append(f"  {dimension:<18} {asked:<9} {entry.state:<9} {detail}".rstrip())
    if compiled.fallen:
        lines.append("layers that are not to be had:")
        lines += [f"  {layer}: {why}" for layer, why in compiled.fallen.items()]
    pins = _pins(compiled)
    lines.append("steps:")
    for layer, step in zip(compiled.layer_of_step, compiled.plan.steps, strict=True):
        lines.append(f"  {layer or 'policy':<36} {_described(step, pins)}")
    lines.append("system calls denied to programs:")
    lines += [f"  {rule}" for rule in _rules((*compiled.cell_rules, *compiled.program_rules))]
    if kept(compiled):
        lines.append("kept read-only, because execworld itself runs it, or goes by it:")
        lines += [f"  {path.decode('utf-8', 'backslashreplace')}" for path in kept(compiled)]
    if compiled.environment:
        lines.append("environment:")
        lines += [f"  {name}={value}" for name, value in compiled.environment.items()]
    return "\n".join(lines) + "\n"


def kept(compiled: CompiledCell) -> tuple[bytes, ...]:
    """What may not be written although it lies below a root that may."""
    situation = compiled.situation
    return situation.paths.kept if Layer.MOUNTS in situation.layers else ()


def _pins(compiled: CompiledCell) -> list[str]:
    return [
        step.path.decode("utf-8", "backslashreplace") for step in compiled.plan.steps if isinstance(step, Pin)
    ]


def _described(step: CellStep, pins: list[str]) -> str:
    if isinstance(step, Restrict):
        return f"Restrict {_ruleset(step.ruleset, pins)}"
    if isinstance(step, Filter):
        return f"Filter of {len(step.program) // 8} instructions"
    if isinstance(step, KeepCapabilities):
        return f"KeepCapabilities {step.mask:#x}"
    if isinstance(step, Pin):
        return f"Pin {step.path.decode('utf-8', 'backslashreplace')}"
    return repr(step)


def _ruleset(ruleset: Ruleset, pins: list[str]) -> str:
    parts = [f"handles {_flags(FsRight(ruleset.handled_fs))}"]
    if ruleset.handled_net:
        parts.append(f"handles {_flags(NetRight(ruleset.handled_net))}")
    if ruleset.scoped:
        parts.append(f"scopes {_flags(Scope(ruleset.scoped))}")
    parts += [f"{pins[rule.pin]}: {_flags(FsRight(rule.access))}" for rule in ruleset.paths]
    parts += [f"port {rule.port}: {_flags(NetRight(rule.access))}" for rule in ruleset.ports]
    return "; ".join(parts)


def _flags(value: IntFlag) -> str:
    return "|".join(flag.name or "" for flag in type(value) if flag & value)


def _rules(rules: tuple[Rule, ...]) -> list[str]:
    return [str(rule) for rule in rules]
