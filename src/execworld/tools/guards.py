"""Guards: checks whose no nothing undoes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias, cast

from execworld.kernel import Context, Effect, Key, Registry
from execworld.tools.calls import ToolCall

Guard: TypeAlias = Callable[[ToolCall], str | None]
"""Says why a call must not run, or None to abstain. It cannot allow, and cannot wait."""


class GuardRegistry:
    """Guards, for everybody or for one session.

    They are asked after all policies and after the person, right before the body, and again before each retry: first
    those for everybody, then from the farthest scope to the nearest. The first reason counts. None hides another.
    """

    def __init__(self) -> None:
        self._guards = Registry[Guard]("guard")
        self._count = 0

    def add(self, ctx: Context, guard: Guard, *, name: str = "") -> Effect:
        """Register *guard* in the scope of *ctx*."""
        self._count += 1
        return self._guards.add(ctx, f"{name or ctx.fiber.name} {self._count}", guard)

    def refusal(self, ctx: Context, call: ToolCall) -> str | None:
        """Why *call* must not run.

        Raises:
            TypeError: a guard said neither yes nor no; the call must not run.
            Exception: a guard broke; likewise.
        """
        for name, guard in self._guards.view(ctx).items():
            answer = cast("object", guard(call))
            if isinstance(answer, str):
                return answer
            if answer is not None:
                close = getattr(answer, "close", None)  # of a coroutine, which nobody will run
                if callable(close):
                    close()
                raise TypeError(f"guard `{name}` answered with a {type(answer).__name__}")
        return None


GUARDS: Final = Key[GuardRegistry]("guards")
