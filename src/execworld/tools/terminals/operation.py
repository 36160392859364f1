"""One input to a terminal, until it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import anyio

from execworld.seams.errors import ExecworldError, SignalRefused
from execworld.seams.terminal import Foreground
from execworld.tools.terminals.readiness import Evidence, Readiness, WaitReason
from execworld.tools.terminals.values import SendResult, TerminalStatus, Viewport

if TYPE_CHECKING:
    from execworld.tools.terminals.session import TerminalSession

_FIRST_DELAY_S: Final = 0.001
_LONGEST_DELAY_S: Final = 0.05
_LEAST_BETWEEN_QUESTIONS_S: Final = 0.005  # the world reads the process table for each
_INTERRUPT: Final = 2  # SIGINT


class SendOperation:
    """A send that is under way. Reading what came so far consumes nothing."""

    def __init__(
        self,
        session: TerminalSession,
        text: str,
        *,
        submit: bool,
        timeout_s: float,
        prompts: int = 1,
        starts: bool = False,
    ) -> None:
        """
        Args:
            session: Where to.
            text: What is typed.
            submit: Enter is pressed after it.
            timeout_s: When to give up waiting; the program goes on.
            prompts: How many prompts of the shell answer it.
            starts: The program has just been started, and *text* is for its first question.
        """
        self._session = session
        self._text = text
        self._submit = submit
        self._timeout_s = timeout_s
        self._prompts = prompts
        self._starts = starts
        self._mark = session.emulator.mark()
        self._first_count = session.prompt_count
        self._received_before = session.received_bytes
        self._written_at: float | None = None
        self._written = anyio.Event()
        self._done = anyio.Event()
        self._typed = False
        self._interrupted = False
        self._asked_at = 0.0
        self._result: SendResult | None = None
        self._error: ExecworldError | None = None

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def viewport(self) -> Viewport:
        """What was written since the input, so far."""
        return self._session.viewport(self._session.emulator.text_since(self._mark))

    async def wait(self) -> SendResult:
        """Wait until it is answered.

        Raises:
            ExecworldError: what befell the world meanwhile.
        """
        await self.over()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    async def over(self) -> None:
        """Wait until it is answered, in whatever way."""
        await self._done.wait()

    async def interrupt(self) -> None:
        """Interrupt the foreground program, once the input is written; nothing when that failed, or it is answered."""
        await self._written.wait()
        if self.done or not self._typed:
            return
        self._interrupted = True
        try:
            await self._session.signal(_INTERRUPT)
        except SignalRefused:
            pass  # it ended by itself

    async def run(self) -> None:
        """Type the input and wait for the answer; in a task of the session."""
        try:
            reason = await self._settle()
            if reason is WaitReason.SESSION_EXIT and self._session.failure is not None:
                raise self._session.failure
            self._result = self._outcome(reason)
        except ExecworldError as error:
            self._error = error
        finally:
            if self._result is None and self._error is None:
                self._result = self._outcome(WaitReason.SESSION_EXIT)  # the terminal is being closed
            self._written.set()
            self._session.settled(self)
            self._done.set()

    def _outcome(self, reason: WaitReason) -> SendResult:
        session = self._session
        status = session.status
        if reason is WaitReason.SESSION_EXIT and status.running:
            status = TerminalStatus(running=False)
        prompt = session.prompt if reason is WaitReason.PROMPT else None
        return SendResult(
            viewport=self.viewport(),
            reason=reason,
            status=status,
            last_exit_code=None if prompt is None else prompt.status,
            typed=self._typed,
            interrupted=self._interrupted,
        )

    async def _settle(self) -> WaitReason:
        session = self._session
        before = None if self._starts else await session.foreground()
        readiness = Readiness(
            session.timing,
            timeout_s=self._timeout_s,
            shell_group=session.shell_group,
            before=before,
            submitted=self._submit,
            needs_output=self._starts,
            provable=session.provable,
        )
        await self._write(before)
        delay_s = _FIRST_DELAY_S
        while True:
            changed = session.changed
            evidence = self._evidence()
            if not evidence.exited and self._may_ask() and readiness.wants_foreground(evidence):
                foreground = await session.foreground()
                evidence = evidence.with_answer(foreground, self._evidence())
            reason = readiness.judge(evidence)
            session.provable = readiness.provable
            if reason is not None:
                return reason
            with anyio.move_on_after(min(delay_s, max(0.0, self._timeout_s - evidence.now_s))):
                await changed.wait()
            delay_s = _FIRST_DELAY_S if changed.is_set() else min(2 * delay_s, _LONGEST_DELAY_S)

    async def _write(self, before: Foreground | None) -> None:
        session = self._session
        self._received_before = session.received_bytes
        self._first_count = session.prompt_count
        started = anyio.current_time()
        with anyio.move_on_after(self._timeout_s):
            self._typed = await session.type(session.keys(self._text, submit=self._submit, foreground=before))
        # A limit that passed while the program did not read counts from the start.
        self._written_at = anyio.current_time() if self._typed else started
        self._written.set()

    def _may_ask(self) -> bool:
        now = anyio.current_time()
        if now - self._asked_at < _LEAST_BETWEEN_QUESTIONS_S and not self._session.at_prompt:
            return False
        self._asked_at = now
        return True

    def _evidence(self) -> Evidence:
        session = self._session
        now = anyio.current_time()
        written_at = now if self._written_at is None else self._written_at
        wrote = session.received_bytes > self._received_before
        prompted = session.prompt_count >= self._first_count + self._prompts
        return Evidence(
            now_s=now - written_at,
            silent_s=now - max(written_at, session.last_output_at),
            wrote=wrote,
            exited=session.exited,
            prompted=prompted,
            at_prompt=prompted and session.at_prompt,
            foreground=None,
        )
