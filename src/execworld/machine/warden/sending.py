"""Input of one handle: section 8 of the protocol, SEND."""

from __future__ import annotations

import errno
import struct
from typing import Any, Final

from execworld.machine.base import NoSuchHandle, StreamClosed
from execworld.machine.warden.decoding import decode_status
from execworld.machine.warden.frames import HostMessage
from execworld.machine.warden.handles import Input
from execworld.machine.warden.link import Link, Request
from execworld.machine.warden.wire import Cursor

_PIECE_BYTES: Final = 32 * 1024
_SMALL_BYTES: Final = 4 * 1024
_HANDLE: Final = struct.Struct("<Q")


class InputPipe:
    """The input of one handle for one sender that waits for no answer: the window alone holds it up.

    A reader that is gone is seen with a later call.
    """

    def __init__(self, link: Link, handle: int, target: Input, window_bytes: int) -> None:
        self._link = link
        self._handle = handle
        self._target = target
        self._window_bytes = window_bytes

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
            self._post(bytes(data[taken : taken + size]))
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

    def _post(self, piece: bytes) -> None:
        target = self._target
        bulk = len(piece) > _SMALL_BYTES or (target.in_bulk is not None and not target.in_bulk.complete)
        target.unanswered += len(piece)
        request = self._link.post(
            HostMessage.SEND,
            _HANDLE.pack(self._handle) + piece,
            lambda body: self._answered(len(piece), body),
            bulk=bulk,
        )
        if bulk:
            target.in_bulk = request.parcel

    def _answered(self, size: int, body: bytes) -> None:
        cursor = Cursor(body)
        status = cursor.u16()
        cursor.end()
        target = self._target
        target.unanswered -= size
        if status:
            decode_status(status)
            target.broken = True
        target.wake()


class InputSender:
    """One call of `Machine.send`: pieces that are under way together, as far as the window reaches."""

    def __init__(self, link: Link, handle: int, target: Input, window_bytes: int) -> None:
        self._link = link
        self._handle = handle
        self._target = target
        self._window_bytes = window_bytes
        self._pending: dict[int, tuple[Request[Any], int]] = {}
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
        target = self._target
        self._check(sending=True)
        while target.unanswered + len(piece) > self._window_bytes:
            await target.progress()
            self._check(sending=True)
        # A keystroke goes ahead of bulk data, unless earlier input of the same handle waits there.
        bulk = len(piece) > _SMALL_BYTES or (target.in_bulk is not None and not target.in_bulk.complete)
        target.unanswered += len(piece)
        key = len(self._pending) and max(self._pending) + 1
        request = self._link.post(
            HostMessage.SEND,
            _HANDLE.pack(self._handle) + piece,
            lambda body: self._answered(key, body),
            bulk=bulk,
        )
        if bulk:
            target.in_bulk = request.parcel
        self._pending[key] = (request, len(piece))

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

    def _answered(self, key: int, body: bytes) -> None:
        cursor = Cursor(body)
        status = cursor.u16()
        cursor.end()
        _, size = self._pending.pop(key)
        self._handed = True
        self._status = self._status or (decode_status(status) if status else 0)
        self._target.unanswered -= size
        self._target.wake()

    def _give_up(self) -> None:
        for key, (request, size) in list(self._pending.items()):
            if self._link.give_up(request, cancel=True):
                del self._pending[key]
                self._target.unanswered -= size
                self._target.wake()
