"""A layer that cannot be set up is a refusal, or is missing from the report; and what is still claimed holds."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from .hardship import FULL_MOUNTS, NO_PROC
from .judging import one_of_each_kind, violations
from .plans import HIDDEN, NET_NONE, READ_ROOTS, WORKSPACE_WRITE, Plan

if TYPE_CHECKING:
    from tests.conftest import Note

    from .conftest import Session

FULL: Final = os.environ.get("EXECWORLD_FULL") == "1"
ROOT, USER = 0, 1000
NEW_MOUNTS: Final = ("open_tree", "move_mount", "fsopen", "fsmount", "mount_setattr")
CONTAINER: Final = (
    *("unshare", "setns", "mount", "umount2", "open_tree", "move_mount", "fsopen", "mount_setattr"),
    *("process_vm_readv", "process_vm_writev", "kcmp", "bpf", "add_key", "userfaultfd"),
)
"""What the filter of a container engine denies to a container without privileges."""
LANDLOCK: Final = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.landlock,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.uname().sysname != "Linux", reason="cells are of Linux"),
]


def failing(uid: int, policy: str, error: int, *names: str) -> Plan:
    return Plan(uid, policy=policy, answers=tuple((name, error) for name in names))


def short(plan: Plan) -> Plan:
    return replace(plan, probes=one_of_each_kind())


SHORT: Final = tuple(
    short(plan)
    for plan in (
        failing(USER, WORKSPACE_WRITE, errno.EPERM, "unshare"),
        failing(ROOT, NET_NONE, errno.EPERM, "unshare"),
        failing(ROOT, WORKSPACE_WRITE, errno.ENOSYS, "mount_setattr"),
        failing(ROOT, WORKSPACE_WRITE, errno.ENOSYS, *LANDLOCK),
        failing(USER, READ_ROOTS, errno.EOPNOTSUPP, *LANDLOCK),
        failing(USER, WORKSPACE_WRITE, errno.EPERM, "unshare", *LANDLOCK),
        failing(USER, NET_NONE, errno.EPERM, "seccomp"),
        Plan(ROOT, setting=NO_PROC),
        Plan(ROOT, policy=HIDDEN, setting=FULL_MOUNTS),
        Plan(USER, setting="layers-16"),
        Plan(ROOT, setting="layers-15"),
    )
)
LONG: Final = tuple(
    short(plan)
    for uid in (ROOT, USER)
    for policy in (WORKSPACE_WRITE, HIDDEN)
    for plan in (
        *(
            failing(uid, policy, error, name)
            for error in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM)
            for name in (*NEW_MOUNTS, *LANDLOCK, "unshare", "seccomp")
        ),
        *(Plan(uid, policy=policy, setting=f"layers-{count}") for count in (14, 15, 16)),
        *(Plan(uid, policy=policy, setting=setting) for setting in (NO_PROC, FULL_MOUNTS) if uid == ROOT),
    )
    if short(plan) not in SHORT
)


def check(session: Session, note: Note, plan: Plan) -> None:
    outcome = session(plan)
    if outcome.refused:
        note(f"{plan}: refused: {outcome.refused.splitlines()[0]}")
        return
    lost = [dimension for dimension, entry in outcome.enforcement.items() if entry["state"] != "enforced"]
    note(f"{plan}: without {', '.join(lost) or 'any loss'}")
    assert [d for d in lost if outcome.enforcement[d]["required"]] == []
    assert violations(plan, outcome) == []


@pytest.mark.parametrize("uid", [ROOT, USER])
def test_in_a_container_without_privileges_landlock_is_enough(session: Session, uid: int) -> None:
    """Engines deny more than namespaces: process_vm_readv, by which the right to trace was tried first."""
    outcome = session(short(failing(uid, WORKSPACE_WRITE, errno.EPERM, *CONTAINER)))
    assert outcome.refused == ""
    required = {name: entry["state"] for name, entry in outcome.enforcement.items() if entry["required"]}
    assert required
    assert set(required.values()) == {"enforced"}
    assert outcome.enforcement["fs.write"]["by"].startswith("landlock")


@pytest.mark.parametrize("plan", SHORT, ids=str)
def test_a_lost_layer_is_not_claimed(session: Session, note: Note, plan: Plan) -> None:
    check(session, note, plan)


@pytest.mark.skipif(
    not FULL, reason="every system call takes some ten minutes; set EXECWORLD_FULL=1 to run it"
)
@pytest.mark.parametrize("plan", LONG if FULL else LONG[:1], ids=str)
def test_no_lost_layer_is_claimed(session: Session, note: Note, plan: Plan) -> None:
    check(session, note, plan)
