"""What settles a send, and what must not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from execworld.seams import Foreground
from execworld.tools.terminals.readiness import Evidence, Readiness, Timing, WaitReason

SHELL, OTHER = 10, 20
NOTHING = Evidence(
    now_s=0.0,
    silent_s=0.0,
    wrote=False,
    exited=False,
    prompted=False,
    at_prompt=False,
    foreground=None,
)
SHELL_WAITS = Foreground(SHELL, waits_for_input=True)
SHELL_WORKS = Foreground(SHELL, waits_for_input=False)
OTHER_WAITS = Foreground(OTHER, waits_for_input=True)
OTHER_WORKS = Foreground(OTHER, waits_for_input=False)


def readiness(
    before: Foreground | None = SHELL_WAITS,
    *,
    submitted: bool = True,
    provable: bool = True,
    starts: bool = False,
) -> Readiness:
    return Readiness(
        Timing(),
        timeout_s=30,
        shell_group=SHELL,
        before=before,
        submitted=submitted,
        needs_output=starts,
        provable=provable,
    )


def judged(by: Readiness, **changes: object) -> WaitReason | None:
    return by.judge(replace(NOTHING, **changes))  # type: ignore[arg-type]  # names of fields, with their values


def test_a_prompt_of_the_waiting_shell_settles_at_once() -> None:
    assert (
        judged(readiness(), wrote=True, prompted=True, at_prompt=True, foreground=SHELL_WAITS)
        is WaitReason.PROMPT
    )


@pytest.mark.parametrize("foreground", [OTHER_WAITS, OTHER_WORKS, SHELL_WORKS])
def test_a_prompt_settles_nothing_while_something_else_runs(foreground: Foreground) -> None:
    """Not even one with the secret: a child could have inherited it."""
    assert judged(readiness(), wrote=True, prompted=True, at_prompt=True, foreground=foreground) is None


def test_a_prompt_with_output_behind_it_is_none() -> None:
    assert judged(readiness(), wrote=True, prompted=True, at_prompt=False, foreground=SHELL_WAITS) is None


def test_an_answer_is_as_old_as_its_question() -> None:
    """A wait that was seen before the output does not count as one after it, however late it is told."""
    asked = replace(NOTHING, silent_s=0.001)
    late = asked.with_answer(SHELL_WAITS, replace(NOTHING, now_s=0.9, silent_s=0.8, wrote=True))
    assert readiness().judge(late) is None
    late = asked.with_answer(SHELL_WAITS, replace(NOTHING, wrote=True, prompted=True, at_prompt=True))
    assert readiness().judge(late) is None
    asked = replace(NOTHING, silent_s=0.5, wrote=True)
    assert readiness().judge(asked.with_answer(SHELL_WAITS, replace(asked, silent_s=0.0))) is None
    assert readiness().judge(asked.with_answer(SHELL_WAITS, asked)) is WaitReason.STDIN_READ


def test_where_nothing_can_be_proven_a_prompt_must_stand() -> None:
    proven = {"wrote": True, "prompted": True, "at_prompt": True, "foreground": SHELL_WORKS}
    assert judged(readiness(provable=False), silent_s=0.05, **proven) is None
    assert judged(readiness(provable=False), silent_s=0.11, **proven) is WaitReason.PROMPT
    assert judged(readiness(provable=True), silent_s=0.11, **proven) is None
    assert judged(readiness(provable=True), silent_s=1.1, **proven) is WaitReason.PROMPT


def test_the_wait_from_before_the_input_settles_nothing() -> None:
    """Until the program left it, or wrote something."""
    by = readiness(before=OTHER_WAITS)
    assert judged(by, silent_s=1.0, foreground=OTHER_WAITS) is None
    assert judged(by, silent_s=1.0, foreground=OTHER_WORKS) is None
    assert judged(by, silent_s=1.0, foreground=OTHER_WAITS) is WaitReason.STDIN_READ
    by = readiness(before=OTHER_WAITS)
    assert judged(by, silent_s=1.0, wrote=True, foreground=OTHER_WAITS) is WaitReason.STDIN_READ
    by = readiness(before=SHELL_WAITS)
    assert judged(by, silent_s=1.0, foreground=OTHER_WAITS) is WaitReason.STDIN_READ


def test_a_wait_must_last_longer_than_the_way_of_the_input() -> None:
    by = readiness(before=OTHER_WAITS)
    assert judged(by, silent_s=0.01, wrote=True, foreground=OTHER_WAITS) is None
    assert judged(by, silent_s=0.06, wrote=True, foreground=OTHER_WAITS) is WaitReason.STDIN_READ


def test_a_shell_without_a_prompt_gets_more_time() -> None:
    """It may be about to run what it got; if it is not, it wants the rest of a command."""
    assert judged(readiness(), silent_s=0.2, wrote=True, foreground=SHELL_WAITS) is None
    assert judged(readiness(), silent_s=0.5, wrote=True, foreground=SHELL_WAITS) is WaitReason.STDIN_READ
    typed = readiness(submitted=False)
    assert judged(typed, silent_s=0.06, wrote=True, foreground=SHELL_WAITS) is WaitReason.STDIN_READ


def test_silence_and_time() -> None:
    assert judged(readiness(), silent_s=2.9, foreground=OTHER_WORKS) is None
    assert judged(readiness(), silent_s=3.0, foreground=OTHER_WORKS) is WaitReason.INFERRED_IDLE
    assert judged(readiness(), silent_s=3.0, prompted=True, foreground=OTHER_WORKS) is None
    assert (
        judged(readiness(), silent_s=3.5, prompted=True, foreground=OTHER_WORKS) is WaitReason.INFERRED_IDLE
    )
    assert judged(readiness(), now_s=30.0, wrote=True, foreground=OTHER_WORKS) is WaitReason.TIMEOUT
    assert judged(readiness(None, starts=True), silent_s=3.0) is None, "a silent start is no readiness"


def test_the_end_goes_before_everything() -> None:
    assert (
        judged(readiness(), now_s=99.0, silent_s=99.0, exited=True, foreground=None)
        is WaitReason.SESSION_EXIT
    )
