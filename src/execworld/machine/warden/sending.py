"""Input of one handle: section 8 of the protocol, SEND."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

from execworld.machine.base import NoSuchHandle, StreamClosed
from execworld.machine.warden.decoding import decode_status
from execworld.machine.warden.frames import HostMessage
from execworld.machine.warden.handles import Input
from execworld.machine.warden.link import Link, Request
from execworld.machine.warden.wire import Cursor

_PIECE_BYTES: Final = 32 * 1024
_SMALL_BYTES: Final = 4 * 1024
_HANDLE: Final = struct.Struct("<Q")


class _Sender:
    """What is the same for whoever sends to the input of a handle."""

    def __init__(self, link: Link, handle: int, target: Input, window_bytes: int) -> None:
        self._link = link
        self._handle = handle
        self._target = target
        self._window_bytes = window_bytes

    def _post(self, piece: bytes, answered: Callable[[int], None]) -> Request[None]:
        """Send *piece*, for which there is room in the window.

        Args:
            answered: Called in the reader with 0, or with what went wrong as an errno of this host.
        """
        target = self._target

        def take(body: bytes) -> None:
            cursor = Cursor(body)
            number = cursor.u16()
            cursor.end()
            status = decode_status(number) if number else 0
            target.unanswered -= len(piece)
            answered(status)
            target.wake()

        # A keystroke goes ahead of bulk data, unless earlier input of the same handle waits there.
        bulk = len(piece) > _SMALL_BYTES or target.waits_in_bulk
        target.unanswered += len(piece)
        request = self._link.post(HostMessage.SEND, _HANDLE.pack(self._handle) + piece, take, bulk=bulk)
        if bulk:
            target.in_bulk = request.parcel
        return request


class InputPipe(_Sender):
    """The input of one handle for one sender that waits for no answer: the window alone holds it up.

    A reader that is gone is seen with a later call.
    """

    def send_now(self, data: memoryview) -> int:
        """Take as much of *data* as the window lets through. Returns how many bytes that was.

        Raises:
            StreamClosed, NoSuchHandle, WorldLost: nothing was taken.
        """
        self._link.check("machine.send")
        target, taken = self._target, 0
        if target.released:
            raise NoSuchHandle(f"{self._handle} was released")
        if target.closed or target.broken:
            raise StreamClosed
        while taken < len(data) and target.unanswered < self._window_bytes:
            size = min(len(data) - taken, _PIECE_BYTES, self._window_bytes - target.unanswered)
            self._post(bytes(data[taken : taken + size]), self._answered)
            taken += size
        return taken

    async def wait_sendable(self) -> None:
        """Wait until `send_now` would take something, or fail."""
        target = self._target
        while (
            target.unanswered >= self._window_bytes
            and not (target.closed or target.broken or target.released)
            and not self._link.lost
        ):
            await target.progress()

    def _answered(self, status: int) -> None:
        if status:
            self._target.broken = True


class InputSender(_Sender):
    """One call of `Machine.send`: pieces that are under way together, as far as the window reaches."""

    def __init__(self, link: Link, handle: int, target: Input, window_bytes: int) -> None:
        super().__init__(link, handle, target, window_bytes)
        self._pending: dict[int, tuple[Request[None], int]] = {}
        self._status = 0
        self._handed = False

    async def send(self, data: bytes) -> None:
        """Raises:
        StreamClosed, NoSuchHandle, WorldLost, OutcomeUnknown: see `Machine.send`.
        """
        try:
            for start in range(0, len(data), _PIECE_BYTES):
                await self._send_piece(data[start : start + _PIECE_BYTES])
            self._check(sending=not data)
            while self._pending:
                await self._target.progress()
                self._check(sending=False)
        finally:
            self._give_up()

    async def _send_piece(self, piece: bytes) -> None:
        self._check(sending=True)
        while self._target.unanswered + len(piece) > self._window_bytes:
            await self._target.progress()
            self._check(sending=True)
        key = len(self._pending) and max(self._pending) + 1
        self._pending[key] = (self._post(piece, partial(self._answered, key)), len(piece))

    def _check(self, *, sending: bool) -> None:
        target = self._target
        if self._link.lost:
            handed = self._handed or any(request.parcel.handed for request, _ in self._pending.values())
            raise (
                self._link.outcome_unknown("machine.send") if handed else self._link.not_sent("machine.send")
            )
        if target.released:
            raise NoSuchHandle(f"{self._handle} was released")
        if self._status or (sending and (target.closed or target.broken)):
            raise StreamClosed(errno.errorcode.get(self._status, ""))

    def _answered(self, key: int, status: int) -> None:
        del self._pending[key]
        self._handed = True
        self._status = self._status or status

    def _give_up(self) -> None:
        for key, (request, size) in list(self._pending.items()):
            if self._link.give_up(request, cancel=True):
                del self._pending[key]
                self._target.unanswered -= size
                self._target.wake()
