"""One agent's state across its calls."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

import anyio

from execworld.kernel import Scope
from execworld.seams import CleanupIncomplete, ExecworldError, SessionClosed

Close = Callable[[], Awaitable[None]]


class ToolSession:
    """What one agent has beside the world: the owner of its jobs, its terminals and of what it has seen.

    Leaving it, or `aclose`, ends all that it owns and waits until that is over. It belongs to nobody else: whoever has
    no reference to it cannot reach what it owns.

    Attributes:
        id: Opaque; never used twice.
        cwd: A path of the world, from which relative paths of its calls start.
        scope: Where guards, tools and listeners for this agent alone are registered.
    """

    def __init__(self, cwd: str, *, parent: Scope | None = None) -> None:
        self.id: Final = secrets.token_hex(8)
        self.cwd: Final = cwd
        self.scope: Final = Scope(f"session {self.id}", parent)
        self._owned: dict[object, tuple[str, Close]] = {}
        self._closing = False
        self._over = anyio.Event()
        self._errors: list[tuple[str, Exception]] = []

    def __repr__(self) -> str:
        return f"<ToolSession {self.id}>"

    @property
    def closed(self) -> bool:
        """Whether it takes no calls and nothing to own any more."""
        return self._closing

    def check_open(self) -> None:
        """Refuse to begin anything for a session that is over.

        Raises:
            SessionClosed
        """
        if self._closing:
            raise SessionClosed("the session is over", op="tools.session")

    def own(self, name: str, close: Close) -> Callable[[], None]:
        """Have *close* called when the session ends, the last that came first.

        Args:
            name: What it is, for messages.
            close: Ends it, waits until it is over, and may be called when it is over already.

        Returns:
            What takes it from the session again, because it is over or because somebody else ends it.

        Raises:
            SessionClosed: it must be ended by the caller.
        """
        self.check_open()
        token = object()
        self._owned[token] = (name, close)
        return lambda: void(self._owned.pop(token, None))

    async def aclose(self) -> None:
        """End everything it owns. Idempotent; later calls join the first.

        Raises:
            CleanupIncomplete: everything was attempted, and something could not be ended.
        """
        if not self._closing:
            self._closing = True
            with anyio.CancelScope(shield=True):
                await self._close_owned()
            self._over.set()
        await self._over.wait()
        if self._errors:
            listing = "; ".join(f"{name}: {error}" for name, error in self._errors)
            raise CleanupIncomplete(
                f"the session could not end all that it owned: {listing}",
                survivors=tuple(pid for _, error in self._errors for pid in getattr(error, "survivors", ())),
                leftovers=tuple(name for name, _ in self._errors),
            ) from self._errors[0][1]

    async def _close_owned(self) -> None:
        while self._owned:
            name, close = self._owned.popitem()[1]
            try:
                await close()
            except Exception as error:  # noqa: BLE001 - all others must still be ended
                self._errors.append((name, error))

    async def __aenter__(self) -> Self:
        self.check_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.aclose()
        except ExecworldError as further:
            if error is None:
                raise
            error.add_note(f"[{further.code}] {further.message}")


def void(_: object) -> None:
    """Nothing, of something."""
