"""The byte stream between this side and a warden."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from execworld.seams.results import TreeReport
from execworld.seams.values import record

if TYPE_CHECKING:
    import socket


class TransportBroken(Exception):
    """The stream failed: nothing more can be sent, or nothing more will come."""


class FarSideGone(TransportBroken):
    """What the stream led to has ended, and it is known how.

    Attributes:
        hint: What the reader can do about it; empty when there is nothing honest to say.
    """

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason)
        self.hint = hint


@record
class LinkEnd:
    """How a link ended.

    Attributes:
        reason: For people.
        exit_code: Of the warden, minus N for signal N; None when that cannot be known.
        tree: What is left of all that the warden ran, where somebody else can tell.
    """

    reason: str
    exit_code: int | None = None
    tree: TreeReport | None = None


class Transport(ABC):
    """Bytes to and from one warden. Chunks may be cut anywhere.

    One task receives, one sends, and both may be in a call when `aclose` is. Every failure is `TransportBroken`.

    Attributes:
        takes_descriptors: The stream is a UNIX socket as far as the warden, and what that passes is kept here.
    """

    takes_descriptors: ClassVar[bool] = False

    def take_descriptor(self) -> socket.socket | None:
        """The earliest one that was passed no later than what was received; it is the caller's from now on."""
        return None

    @abstractmethod
    async def receive(self, max_bytes: int) -> bytes:
        """The next bytes, at least one; empty at the end of the stream."""

    @abstractmethod
    async def send(self, data: bytes) -> None:
        """Hand all of *data* over.

        A heartbeat for the lease is sent by the same event loop, so with a transport that is no `DirectTransport` a
        program that blocks its event loop for longer than the lease loses its world.
        """

    async def explain_end(self) -> FarSideGone | None:
        """Why the stream has ended, or will because somebody told the warden to end, when that can be found out."""
        return None

    async def excuse_silence(self) -> bool:
        """Whether the far side is known to be held up, so that its silence for a whole lease means nothing."""
        return False

    @abstractmethod
    async def aclose(self) -> LinkEnd:
        """Close both directions, so that the warden ends, and tell how it did. Bounded in time, idempotent."""


class DirectTransport(Transport):
    """A transport that takes bytes without waiting and from any thread.

    Requests are then written by the task that makes them, and the heartbeat by a thread of its own.
    """

    @abstractmethod
    def send_now(self, data: memoryview) -> int:
        """Take as much of *data* as possible without waiting. Returns how many bytes that was, perhaps 0."""

    @abstractmethod
    async def wait_sendable(self) -> None:
        """Wait until `send_now` would take something, or fail."""

    def receive_now(self, max_bytes: int) -> bytes | None:
        """As `receive`, without waiting: None when nothing is there."""
        raise NotImplementedError

    def call_when_readable(self, call: Callable[[], None]) -> Callable[[], None] | None:
        """Have *call* called by the event loop whenever `receive_now` may give something, instead of `receive`.

        *call* must not raise. Returns what ends that; None where it cannot be had.
        """
        return None

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            taken = self.send_now(view)
            view = view[taken:]
            if not taken:
                await self.wait_sendable()
