"""How a call is cancelled by somebody who still wants its result."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import anyio


class Cancellation:
    """Cancels the calls that were made with it. They end in order, and each has a result that says so.

    Cancelling the task that waits for a call ends the call as well; then nobody gets a result but those who watch.
    """

    def __init__(self) -> None:
        self._cancelled = False
        self._scopes: dict[anyio.CancelScope, None] = {}

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Idempotent. Bodies are told, and waited for."""
        self._cancelled = True
        for scope in tuple(self._scopes):
            scope.cancel()

    @contextmanager
    def scope(self) -> Generator[anyio.CancelScope]:
        """A cancel scope that is cancelled with it."""
        with anyio.CancelScope() as scope:
            self._scopes[scope] = None
            if self._cancelled:
                scope.cancel()
            try:
                yield scope
            finally:
                del self._scopes[scope]
