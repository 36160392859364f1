"""A batch of operations: one round trip, one order, one undo.

A batch stops at its first failing step. Then the undo operations of the steps that had succeeded run in reverse, their
errors ignored, and every handle opened by the batch is closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, cast

from execworld.machine.operations import Operation, ResultT
from execworld.machine.values import HandleRef, PathPart, PathRef
from execworld.seams.values import record


@record
class Step(Generic[ResultT]):
    """A step of a batch under construction; refers to its result in later steps and picks it from the results."""

    index: int

    @property
    def handle(self) -> HandleRef:
        return HandleRef(self.index)

    @property
    def path(self) -> PathRef:
        return PathRef(self.index)

    @property
    def parent(self) -> PathRef:
        return PathRef(self.index, PathPart.PARENT)

    @property
    def name(self) -> PathRef:
        return PathRef(self.index, PathPart.NAME)


@record
class BatchStep:
    """One operation, the error numbers after which the batch goes on, and what undoes it."""

    operation: Operation[Any]
    tolerate: frozenset[int] = frozenset()
    undo: Operation[Any] | None = None


@dataclass(slots=True)
class Batch:
    """A sequence of dependent operations that is one round trip."""

    steps: list[BatchStep] = field(default_factory=list[BatchStep])

    def add(
        self,
        operation: Operation[ResultT],
        *,
        tolerate: Iterable[int] = (),
        undo: Operation[Any] | None = None,
    ) -> Step[ResultT]:
        self.steps.append(BatchStep(operation, frozenset(tolerate), undo))
        return Step(len(self.steps) - 1)


@record
class StepError:
    """A failed step: error number of this host's ``errno`` module or a `CheckStatus`, and a detail (`SpawnStage`)."""

    status: int
    detail: int = 0


@record
class Results:
    """What the steps returned; a `StepError` where a failure was tolerated."""

    values: Sequence[object]

    def __getitem__(self, step: Step[ResultT]) -> ResultT:
        value = self.values[step.index]
        if isinstance(value, StepError):
            raise KeyError(f"step {step.index} failed with {value.status}")
        return cast(ResultT, value)

    def get(self, step: Step[ResultT]) -> ResultT | None:
        """The result, None when the step failed in a tolerated way."""
        value = self.values[step.index]
        return None if isinstance(value, StepError) else cast(ResultT, value)


class BatchFailed(Exception):
    """A step failed and was not tolerated. Undo has run.

    Attributes:
        step: Index of the failed step.
        error: Why.
        results: What the steps before it returned; handles among them are closed.
    """

    def __init__(self, step: int, error: StepError, results: Results) -> None:
        super().__init__(f"step {step} failed with status {error.status}")
        self.step = step
        self.error = error
        self.results = results
