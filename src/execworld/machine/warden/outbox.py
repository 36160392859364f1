"""What waits to be sent: control before bulk, and a ledger of what was handed over."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

_GATHERED_BYTES: Final = 64 * 1024


class Parcel:
    """One message on its way.

    Attributes:
        handed: Its first byte was handed to the transport.
        complete: Its last byte was.
    """

    __slots__ = ("complete", "handed", "withdrawn")

    def __init__(self) -> None:
        self.handed = self.complete = self.withdrawn = False


class _Frame(NamedTuple):
    data: bytes
    parcel: Parcel | None
    last: bool


class Outbox:
    """Two queues of frames. Frames of one queue keep their order; no frame is ever cut by another one.

    Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._control: deque[_Frame] = deque()
        self._bulk: deque[_Frame] = deque()
        self._current: _Frame | None = None
        self._left = memoryview(b"")

    def put(self, frames: list[bytes], parcel: Parcel | None = None, *, bulk: bool = False) -> None:
        queue = self._bulk if bulk else self._control
        with self._lock:
            queue.extend(_Frame(data, parcel, data is frames[-1]) for data in frames)

    def withdraw(self, parcel: Parcel) -> bool:
        """Take a message back. False when the other side may have seen the beginning of it."""
        with self._lock:
            parcel.withdrawn = not parcel.handed
            if parcel.withdrawn and self._current is not None and self._current.parcel is parcel:
                self._left = memoryview(b"")
            return parcel.withdrawn

    def push(self, send_now: Callable[[memoryview], int]) -> bool:
        """Hand over what can be without waiting. False when something is left."""
        with self._lock:
            while self._left or self._load():
                taken = send_now(self._left)
                if not taken:
                    return False
                self._note(taken)
        return True

    def beat(self, make_frame: Callable[[], bytes], send_now: Callable[[memoryview], int]) -> None:
        """Hand over something now: the rest of a frame that was begun, else one of *make_frame*."""
        with self._lock:
            if not self._left:
                data = make_frame()
                self._current, self._left = _Frame(data, None, True), memoryview(data)
            self._note(send_now(self._left))

    def was_completed(self, parcel: Parcel) -> bool:
        with self._lock:
            return parcel.complete

    def take(self) -> bytes:
        """The next bytes for a transport that will send all of them; empty when there are none."""
        with self._lock:
            gathered: list[bytes] = []
            size = 0
            while size < _GATHERED_BYTES and (self._left or self._load()):
                gathered.append(bytes(self._left))
                size += len(self._left)
                self._note(len(self._left))
            return b"".join(gathered)

    def _load(self) -> bool:
        for queue in (self._control, self._bulk):
            while queue:
                frame = queue.popleft()
                if frame.parcel is None or not frame.parcel.withdrawn:
                    self._current, self._left = frame, memoryview(frame.data)
                    return True
        return False

    def _note(self, taken: int) -> None:
        assert self._current is not None
        self._left = self._left[taken:]
        parcel = self._current.parcel
        if parcel is not None and taken:
            parcel.handed = True
            parcel.complete = parcel.complete or (self._current.last and not self._left)
