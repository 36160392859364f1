"""The rule of the suite."""

from __future__ import annotations

from execworld.seams import Dimension, EnforcementState

from .plans import NET_NONE, READ_ONLY, READ_ROOTS, Outcome, Plan
from .probes import CONTROLS, PROBES

_WHOLE = (Dimension.FS_METADATA, Dimension.PROC_VISIBILITY, Dimension.IPC_UNIX)


def about(*dimensions: str | None) -> tuple[str, ...]:
    """The probes of these dimensions, and the controls."""
    return (*(name for name, probe in PROBES.items() if probe.dimension in dimensions), *CONTROLS)


def one_of_each_kind() -> tuple[str, ...]:
    """The first probe of each row and dimension, and the controls."""
    kinds = {(probe.row, probe.dimension): name for name, probe in reversed(PROBES.items())}
    return (*sorted(kinds.values()), *CONTROLS)


def whole(outcome: Outcome) -> bool:
    """Whether every kind of layer is there: namespaces enforce what nothing else does."""
    return all(outcome.state(str(d)) == EnforcementState.ENFORCED for d in _WHOLE)


def violations(plan: Plan, outcome: Outcome) -> list[str]:
    """Probes that had an effect which the report of the view, or the table, rules out; and controls that had none."""
    found: list[str] = []
    for name, result in outcome.results.items():
        told = f"{name}: {result.outcome} {result.detail[-300:]}"
        if result.outcome == "broken":
            found.append(f"{told} (the probe is broken)")
        elif name in CONTROLS:
            if not result.effect and result.outcome != "void" and must_work(name, plan):
                found.append(f"{told} (must work)")
        elif result.effect and (reason := ruled_out(name, outcome)):
            found.append(f"{told} ({reason})")
    return found


def must_work(control: str, plan: Plan) -> bool:
    if control == "connect-to-allowed-port":
        return plan.policy != NET_NONE
    if control == "rename-across-directories" and plan.landlock_abi == 1 and plan.policy == READ_ROOTS:
        return False  # only Landlock holds read roots, and its first version refuses every such rename
    return not (CONTROLS[control].writes and plan.policy == READ_ONLY)


def ruled_out(name: str, outcome: Outcome) -> str:
    """Why a probe may not have its effect in this view; empty when it may."""
    probe = PROBES[name]
    if probe.allowed:
        return ""
    if probe.dimension is None:
        return "never allowed"
    if outcome.state(probe.dimension) == EnforcementState.ENFORCED:
        return f"{probe.dimension} is reported as enforced by {outcome.enforcement[probe.dimension]['by']}"
    if whole(outcome) and outcome.enforcement.get(probe.dimension, {}).get("asked"):
        return f"{probe.dimension} is asked for, and all layers are there"
    return ""
