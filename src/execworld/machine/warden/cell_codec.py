"""Plans of cells and what became of them: section 12 of the protocol."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterable
from typing import Any, Final

from execworld.machine.cell import (
    AttachTree,
    CellFailed,
    CellPlan,
    CellReport,
    CellStage,
    CellStep,
    CellsUnsupported,
    CloneTree,
    Filter,
    KeepCapabilities,
    LimitMethod,
    LoopbackUp,
    MapIds,
    NewFileSystem,
    PidNamespace,
    Pin,
    PrivateMounts,
    ProbeResult,
    ProgramLock,
    Restrict,
    Ruleset,
    SetMountAttributes,
    Unshare,
)
from execworld.machine.warden.decoding import decode_status
from execworld.machine.warden.frames import MAX_BODY_BYTES
from execworld.machine.warden.numbers import MAX_ERRNO, host_errno
from execworld.machine.warden.wire import Cursor, Malformed, byte_string

_HAS_RULESET, _HAS_CAPABILITIES = 1, 2
_MAX_TIMEOUT_S: Final = 60.0
_STAGES: Final = {int(stage) + 1: stage for stage in CellStage}
_METHODS: Final = {int(method): method for method in LimitMethod}
_pack: Final = struct.pack


def encode_plan(plan: CellPlan) -> bytes:
    """The body of MAKE_CELL.

    Raises:
        CellFailed: a value does not fit its field, or all of it does not fit a message; nothing was sent.
    """
    try:
        body = b"".join(
            (
                _pack("<IQQ", _timeout_ms(plan), plan.processes or 0, plan.memory_bytes or 0),
                byte_string(plan.scratch),
                _list(_step(step) for step in plan.steps),
                _lock(plan.lock),
                _list(_pack("<B", probe.kind) + byte_string(probe.target) for probe in plan.probes),
            )
        )
    except (struct.error, OverflowError) as error:
        raise CellFailed(CellStage.START, 0, errno.EINVAL) from error
    if len(body) > MAX_BODY_BYTES:
        raise CellFailed(CellStage.START, 0, errno.EMSGSIZE)
    return body


def _timeout_ms(plan: CellPlan) -> int:
    return max(1, int(min(plan.timeout_s, _MAX_TIMEOUT_S) * 1000))


def _list(items: Iterable[bytes]) -> bytes:
    encoded = list(items)
    return _pack("<I", len(encoded)) + b"".join(encoded)


def _lock(lock: ProgramLock) -> bytes:
    has = (lock.ruleset is not None) * _HAS_RULESET | (lock.capabilities is not None) * _HAS_CAPABILITIES
    return b"".join(
        (
            _pack("<B", has),
            b"" if lock.ruleset is None else _ruleset(lock.ruleset),
            b"" if lock.capabilities is None else _pack("<Q", lock.capabilities),
            byte_string(lock.program),
            _list(_pack("<IQQ", *limit) for limit in lock.limits),
        )
    )


def _ruleset(ruleset: Ruleset) -> bytes:
    return (
        _pack("<QQQ", ruleset.handled_fs, ruleset.handled_net, ruleset.scoped)
        + _list(_pack("<HQ", rule.pin, rule.access) for rule in ruleset.paths)
        + _list(_pack("<HQ", rule.port, rule.access) for rule in ruleset.ports)
    )


def _step(step: CellStep) -> bytes:
    opcode, encode = _STEPS[type(step)]
    return _pack("<B", opcode) + encode(step)


def _unshare(step: Unshare) -> bytes:
    return _pack("<I", step.namespaces)


def _nothing(step: MapIds | PidNamespace | PrivateMounts | LoopbackUp) -> bytes:
    return b""


def _pin(step: Pin) -> bytes:
    return byte_string(step.path) + _pack("<B", step.directory)


def _clone_tree(step: CloneTree) -> bytes:
    return _pack("<H", step.pin)


def _set_mount_attributes(step: SetMountAttributes) -> bytes:
    return _pack("<Q", step.attributes)


def _attach_tree(step: AttachTree) -> bytes:
    return _pack("<HHQ", step.tree, step.pin, step.attributes)


def _new_file_system(step: NewFileSystem) -> bytes:
    options = _list(byte_string(key) + byte_string(value) for key, value in step.options)
    return byte_string(step.kind) + _pack("<H", step.pin) + options + _pack("<Q", step.attributes)


def _restrict(step: Restrict) -> bytes:
    return _ruleset(step.ruleset)


def _keep_capabilities(step: KeepCapabilities) -> bytes:
    return _pack("<Q", step.mask)


def _filter(step: Filter) -> bytes:
    return byte_string(step.program)


_STEPS: Final[dict[type[CellStep], tuple[int, Callable[[Any], bytes]]]] = {
    Unshare: (1, _unshare),
    MapIds: (2, _nothing),
    PidNamespace: (3, _nothing),
    PrivateMounts: (4, _nothing),
    Pin: (5, _pin),
    CloneTree: (6, _clone_tree),
    SetMountAttributes: (7, _set_mount_attributes),
    AttachTree: (8, _attach_tree),
    NewFileSystem: (9, _new_file_system),
    LoopbackUp: (10, _nothing),
    Restrict: (11, _restrict),
    KeepCapabilities: (12, _keep_capabilities),
    Filter: (13, _filter),
}


def decode_cell_reply(plan: CellPlan, body: bytes) -> CellReport | CellFailed | CellsUnsupported:
    """What became of *plan*. A failure is returned, not raised.

    Raises:
        Malformed: the reply does not fit the plan.
    """
    cursor = Cursor(body)
    if number := cursor.u16():
        cursor.end()
        status = decode_status(number)
        if status in (errno.EPERM, errno.ENOSYS):
            return CellsUnsupported("no cell can be made from here")
        return CellFailed(CellStage.START, 0, status)
    outcome, step, error = cursor.u8(), cursor.u16(), cursor.u16()
    if outcome:
        cursor.end()
        return _failure(plan, outcome, step, error)
    if step or error:
        raise Malformed("a cell that runs has an error")
    report = CellReport(
        handle=cursor.u64(),
        processes_by=_method(cursor.u8()),
        memory_by=_method(cursor.u8()),
        processes_error=_errno(cursor.u16()),
        memory_error=_errno(cursor.u16()),
        probes=_probes(cursor),
    )
    cursor.end()
    if len(report.probes) != len(plan.probes):
        raise Malformed("the results of the probes of a cell do not fit its plan")
    if not report.handle:
        raise Malformed("handle 0")
    return report


def _failure(plan: CellPlan, outcome: int, step: int, error: int) -> CellFailed:
    stage = _STAGES.get(outcome)
    fits = stage is not None and error and (step < len(plan.steps) if stage is CellStage.STEP else not step)
    if not fits or stage is None:
        raise Malformed(f"outcome {outcome} of step {step} of a cell, with error {error}")
    return CellFailed(stage, step, _errno(error))


def _method(number: int) -> LimitMethod:
    method = _METHODS.get(number)
    if method is None:
        raise Malformed(f"method {number} of a limit")
    return method


def _errno(number: int) -> int:
    if number > MAX_ERRNO:
        raise Malformed(f"error {number}")
    return host_errno(number) if number else 0


def _probes(cursor: Cursor) -> tuple[ProbeResult, ...]:
    return tuple(ProbeResult(_errno(cursor.u16()), _errno(cursor.u16())) for _ in range(cursor.u32()))
