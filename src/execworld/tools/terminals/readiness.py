"""When a terminal is ready for the next input: what counts as a proof, and what is only a guess.

Ranked by how much they prove:

1. the program ended;
2. the shell drew a new prompt with the secret of this terminal in it, is the foreground group, and provably waits;
3. the foreground program provably waits for input, and that cannot be the wait from before the input;
4. nothing has been written for a while;
5. time is up.
"""

from __future__ import annotations

from enum import StrEnum

from execworld.seams.terminal import Foreground
from execworld.seams.values import record, value_class


class WaitReason(StrEnum):
    """Why a send returned."""

    PROMPT = "prompt"
    STDIN_READ = "stdin_read"
    SESSION_EXIT = "session_exit"
    INFERRED_IDLE = "inferred_idle"
    TIMEOUT = "timeout"


@value_class
class Timing:
    """All in seconds.

    Attributes:
        settle_s: How long a program that provably waits must have written nothing. It covers the moment in which the
            input is on its way from the terminal to the program.
        unanswered_s: The same for a shell that got a line and drew no prompt: it wants more lines, or will prompt yet.
        unproven_s: How long a prompt must stand where the world cannot prove that the shell waits.
        doubtful_s: The same where the world can, and yet does not.
        idle_s: Silence after which the program is taken to be waiting.
        handover_s: Added to it when a prompt was seen, whose shell then must be doing something.
    """

    settle_s: float = 0.05
    unanswered_s: float = 0.4
    unproven_s: float = 0.1
    doubtful_s: float = 1.0
    idle_s: float = 3.0
    handover_s: float = 0.5


@record
class Evidence:
    """What is known at one moment.

    Attributes:
        now_s: Time since the input was written.
        silent_s: Time since the last output; since the input when there was none.
        wrote: There was output since the input.
        exited: The program ended and all its output came.
        prompted: The shell drew a prompt since the input.
        at_prompt: And nothing was drawn after it.
        foreground: The answer of the world, when it was asked.
    """

    now_s: float
    silent_s: float
    wrote: bool
    exited: bool
    prompted: bool
    at_prompt: bool
    foreground: Foreground | None

    def with_answer(self, foreground: Foreground | None, after: Evidence) -> Evidence:
        """This, when the world was asked, and what is known now that it answered.

        The answer can be as old as the question, however long it took. So what came meanwhile can only speak against
        readiness: it may be what the answer does not know of yet.
        """
        return Evidence(
            now_s=after.now_s,
            silent_s=min(self.silent_s, after.silent_s),
            wrote=self.wrote,
            exited=after.exited,
            prompted=self.prompted and after.prompted,
            at_prompt=self.at_prompt and after.at_prompt,
            foreground=foreground,
        )


class Readiness:
    """Judges one send."""

    def __init__(
        self,
        timing: Timing,
        *,
        timeout_s: float,
        shell_group: int | None,
        before: Foreground | None,
        submitted: bool,
        needs_output: bool = False,
        provable: bool = False,
    ) -> None:
        """
        Args:
            timing: How long to wait for what.
            timeout_s: When to give up, from the input on.
            shell_group: Process group of the shell that draws prompts; None for another program.
            before: The foreground just before the input; None when nothing had been started to wait then.
            submitted: The input ended a line.
            needs_output: Silence alone is not readiness: the program has just been started.
            provable: This world has proven a wait before.
        """
        self._timing = timing
        self._timeout_s = timeout_s
        self._shell_group = shell_group
        self._before = before
        self._submitted = submitted
        self._needs_output = needs_output
        self._left_wait = before is None or not before.waits_for_input
        self.provable = provable

    def wants_foreground(self, evidence: Evidence) -> bool:
        """Whether asking the world could settle the matter now."""
        return evidence.at_prompt or evidence.silent_s >= self._timing.settle_s or not self._left_wait

    def judge(self, evidence: Evidence) -> WaitReason | None:
        if evidence.exited:
            return WaitReason.SESSION_EXIT
        foreground = evidence.foreground
        if foreground is not None:
            if foreground.waits_for_input:
                self.provable = True
            elif self._before is not None and foreground.group_id == self._before.group_id:
                self._left_wait = True
            reason = self._judge_wait(evidence, foreground)
            if reason is not None:
                return reason
        idle_s = self._timing.idle_s + (self._timing.handover_s if evidence.prompted else 0)
        if evidence.silent_s >= idle_s and (evidence.wrote or not self._needs_output):
            return WaitReason.INFERRED_IDLE
        return WaitReason.TIMEOUT if evidence.now_s >= self._timeout_s else None

    def _judge_wait(self, evidence: Evidence, foreground: Foreground) -> WaitReason | None:
        in_shell = foreground.group_id == self._shell_group
        if in_shell and evidence.at_prompt:
            if foreground.waits_for_input:
                return WaitReason.PROMPT
            stands_s = self._timing.doubtful_s if self.provable else self._timing.unproven_s
            return WaitReason.PROMPT if evidence.silent_s >= stands_s else None
        if not foreground.waits_for_input or not self._is_new(evidence, foreground):
            return None
        needed_s = self._timing.unanswered_s if in_shell and self._submitted else self._timing.settle_s
        return WaitReason.STDIN_READ if evidence.silent_s >= needed_s else None

    def _is_new(self, evidence: Evidence, foreground: Foreground) -> bool:
        """Whether the wait cannot be the one from before the input, which the program may not have got yet.

        The terminal echoes before it wakes the reader, so output after the input is proof as well.
        """
        before = self._before
        return self._left_wait or evidence.wrote or before is None or foreground.group_id != before.group_id
