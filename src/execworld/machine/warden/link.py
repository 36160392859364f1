"""One connection to a warden: requests and their replies, the reader, the writer, and the end of it all."""

from __future__ import annotations

import itertools
import socket
import struct
import threading
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
import anyio.lowlevel

from execworld.machine.warden.facts import LinkSettings
from execworld.machine.warden.frames import (
    MAX_MESSAGE_BYTES,
    FrameParser,
    HostMessage,
    WardenMessage,
    encode_message,
)
from execworld.machine.warden.outbox import Outbox, Parcel
from execworld.machine.warden.transport import (
    DirectTransport,
    FarSideGone,
    LinkEnd,
    Transport,
    TransportBroken,
)
from execworld.machine.warden.wire import Cursor, Malformed
from execworld.seams.errors import OutcomeUnknown, WorldClosed, WorldLost

ValueT = TypeVar("ValueT")

_READ_BYTES: Final = 256 * 1024
_YIELD_BYTES: Final = 1024 * 1024
_BULK_BYTES: Final = 16 * 1024
_BEATS_A_LEASE: Final = 3
_FIRST_HEARTBEAT: Final = 1 << 63
_LAST_WORDS_S: Final = 1.0
_LOOK_S: Final = 1.0
"""After this time without an answer at the end it is asked whether one can be expected."""
_ENDING_SIGNAL: Final = 4
_ENDINGS: Final = {
    1: "a violation of the protocol by this side",
    2: "the version of the protocol",
    3: "its lease ran out",
    _ENDING_SIGNAL: "a signal",
    5: "an internal error",
    6: "a cover that was taken away",
}


class _Ended(Exception):
    """The stream has ended, or the warden says that somebody told it to end. Why is for the transport to find out."""


class Receiver(Protocol):
    """Takes what the warden sends unasked. Called by the reader, so nothing here may wait."""

    def notified(self, kind: WardenMessage, body: memoryview) -> None: ...

    def ended(self) -> None: ...


class Request(Generic[ValueT]):
    """One request until its reply.

    Attributes:
        value: What the reply said; None before, and after a loss.
        abandoned: Nobody waits for the reply any more.
    """

    __slots__ = (
        "_decode",
        "_discard",
        "_settled",
        "_waiter",
        "abandoned",
        "answered",
        "number",
        "parcel",
        "parts",
        "value",
    )

    def __init__(
        self, number: int, decode: Callable[[bytes], ValueT], discard: Callable[[ValueT], None] | None
    ) -> None:
        self.number = number
        self.parcel = Parcel()
        self.parts: bytearray | None = None
        self._settled = False
        self._waiter: anyio.Event | None = None
        self.answered = False
        self.abandoned = False
        self.value: ValueT | None = None
        self._decode = decode
        self._discard = discard

    def answer(self, body: bytes) -> None:
        self.value = self._decode(body)
        self.answered = True
        self.settle()
        if self.abandoned:
            self.discard()

    async def settled(self) -> None:
        """Wait for the reply, or until there will be none."""
        if not self._settled:
            self._waiter = anyio.Event()
            await self._waiter.wait()

    def settle(self) -> None:
        self._settled = True
        if self._waiter is not None:
            self._waiter.set()

    def discard(self) -> None:
        if self._discard is not None and self.answered:
            self._discard(self.value)  # type: ignore[arg-type]  # answered: it is what decode made

    def result(self) -> ValueT:
        return self.value  # type: ignore[return-value]  # answered: it is what decode made


class Link:
    """Made by `open_warden_machine`, which runs `run` beside it."""

    def __init__(self, transport: Transport, settings: LinkSettings) -> None:
        self.world_id = ""
        self.receiver: Receiver | None = None
        self.closing = False
        self._transport = transport
        self._direct = transport if isinstance(transport, DirectTransport) else None
        self._settings = settings
        self._parser = FrameParser()
        self._outbox = Outbox()
        self._numbers = itertools.count(1)
        self._requests: dict[int, Request[Any]] = {}
        self._waiting_to_send = False
        self._something_to_send = anyio.Event()
        self._send_failure: TransportBroken | None = None
        self._lost: str | None = None
        self._hint = ""
        self._over = anyio.Event()
        self._finished = anyio.Event()
        self._silent_beats = 0
        self._end: LinkEnd | None = None
        self._heart = _Heart(self._outbox, self._direct, settings) if settings.lease_s else None

    # For callers

    @property
    def lost(self) -> bool:
        return self._lost is not None

    @property
    def end(self) -> LinkEnd | None:
        """How the link ended; None while it has not."""
        return self._end

    @property
    def takes_descriptors(self) -> bool:
        return self._transport.takes_descriptors

    def take_descriptor(self) -> socket.socket | None:
        return self._transport.take_descriptor()

    def check(self, op: str) -> None:
        """Raises:
        WorldLost, WorldClosed: nothing can be sent any more.
        """
        if self._lost is not None or self.closing:
            raise self.not_sent(op)

    def not_sent(self, op: str) -> WorldLost | WorldClosed:
        if self.closing:
            return WorldClosed("the world is closed", op=op, world=self.world_id)
        return WorldLost(f"the world is lost: {self._lost}", op=op, world=self.world_id, hint=self._hint)

    def outcome_unknown(self, op: str) -> OutcomeUnknown | WorldClosed:
        if self.closing:
            return WorldClosed("the world was closed meanwhile", op=op, world=self.world_id)
        return OutcomeUnknown(
            f"the world was lost meanwhile: {self._lost}",
            op=op,
            world=self.world_id,
            hint="\n".join(filter(None, (self._hint, "look at what it was to change before repeating it"))),
        )

    async def call(
        self,
        kind: HostMessage,
        body: bytes,
        decode: Callable[[bytes], ValueT],
        *,
        op: str,
        effects: bool,
        discard: Callable[[ValueT], None] | None = None,
    ) -> ValueT:
        """Send a request and wait for its reply.

        Args:
            decode: Reads the reply, in the reader, before anything that the warden sent after it is looked at.
            effects: Whether it may have changed something when its reply does not come.
            discard: Undoes what a reply brought that came after the caller was cancelled.

        Raises:
            WorldLost: it did not happen, or changed nothing.
            OutcomeUnknown: it was sent, and the reply did not come.
        """
        self.check(op)
        request = self._begin(kind, body, decode, discard, bulk=len(body) > _BULK_BYTES)
        try:
            if kind is HostMessage.BATCH:  # its operations may wait for what lies outside of the warden
                await request.settled()
            else:
                await self._answered_in_time(request, op)
        except BaseException:
            self.give_up(request, cancel=kind is HostMessage.BATCH)
            raise
        if not request.answered:
            raise self.outcome_unknown(op) if effects and request.parcel.handed else self.not_sent(op)
        return request.result()

    async def _answered_in_time(self, request: Request[Any], op: str) -> None:
        limit_s = self._settings.answer_timeout_s
        while True:
            with anyio.move_on_after(limit_s) as waiting:
                await request.settled()
            if not waiting.cancelled_caught:
                return
            if request.parcel.handed and not await self._transport.excuse_silence():
                self.lose(f"the warden did not answer `{op}` within {limit_s:g} s")

    def post(
        self,
        kind: HostMessage,
        body: bytes,
        then: Callable[[bytes], None] | None = None,
        *,
        bulk: bool = False,
    ) -> Request[None]:
        """Send a request whose reply nobody waits for; *then* is called with it, in the reader."""
        return self._begin(kind, body, then or _ignore, None, bulk=bulk)

    def tell(self, kind: HostMessage, body: bytes, *, bulk: bool = False) -> None:
        """Send a message that has no reply."""
        self._outbox.put(encode_message(kind, 0, body), bulk=bulk)
        self._push()

    def give_up(self, request: Request[Any], *, cancel: bool) -> bool:
        """Nobody waits for *request* any more; with *cancel* the warden is asked to end it.

        Returns:
            Whether it could be taken back, as if it had never been made.
        """
        request.abandoned = True
        if request.answered:
            request.discard()
        elif self._lost is None:
            if self._outbox.withdraw(request.parcel):
                del self._requests[request.number]
                return True
            if cancel:
                # Never ahead of the message that it is about.
                body = struct.pack("<Q", request.number)
                self.tell(HostMessage.CANCEL, body, bulk=not request.parcel.complete)
        return False

    async def close_world(self, decode: Callable[[bytes], ValueT]) -> ValueT | None:
        """Ask the warden to end. None when it did not answer in time, or the world was lost already."""
        self.closing = True
        if self._lost is not None:
            return None
        request = self._begin(HostMessage.CLOSE, b"", decode, None, bulk=False)
        with anyio.move_on_after(self._settings.close_timeout_s):
            with anyio.move_on_after(_LOOK_S) as look:
                await request.settled()
            if look.cancelled_caught and not await self._transport.excuse_silence():
                await request.settled()
        return request.value

    def lose(self, reason: str) -> None:
        """End the world; everyone who waits is told. Later reasons do not count."""
        if self._lost is not None:
            return
        self._lost = reason
        for request in self._requests.values():
            request.settle()
        self._requests.clear()
        if self.receiver is not None:
            self.receiver.ended()
        self._over.set()

    async def stop(self) -> None:
        """Close the transport and wait until it is closed."""
        self.lose("it was closed")
        await self._finished.wait()

    # Tasks

    async def run(self, received: bytes) -> None:
        """Read and write until the world is lost or stopped, then close the transport.

        Ends by itself and not by cancellation from outside, so that a request to end still gets through.
        """
        with anyio.CancelScope(shield=True):
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._read, received)
                    tasks.start_soon(self._write)
                    if self._heart is not None:
                        tasks.start_soon(self._keep_lease, self._heart)
                    await self._over.wait()
                    tasks.cancel_scope.cancel()
            finally:
                if self._heart is not None:
                    self._heart.stop()
                self.lose("an internal error of this side")
                try:
                    self._end = await self._transport.aclose()
                finally:
                    self._finished.set()

    async def _read(self, received: bytes) -> None:
        try:
            self._take_in(received)
            if self._direct is None or not await self._read_when_called(self._direct):
                await self._read_in_turn()
        except _Ended as ended:
            self._lose_for(await self._transport.explain_end() or ended)
        except (Malformed, TransportBroken) as error:
            self._lose_for(error)

    async def _read_in_turn(self) -> None:
        since_yield = 0
        while self._lost is None:
            data = await self._transport.receive(_READ_BYTES)
            self._heard(data)
            since_yield += len(data)
            if since_yield >= _YIELD_BYTES:
                since_yield = 0
                await anyio.lowlevel.checkpoint()

    async def _read_when_called(self, direct: DirectTransport) -> bool:
        """Read in the event loop's own call, and not in a task that it wakes; False where there is no such thing."""
        failures: list[Exception] = []
        failed = anyio.Event()

        def read() -> None:
            if self._lost is not None or failures:
                return
            try:
                data = direct.receive_now(_READ_BYTES)
                if data is not None:
                    self._heard(data)
            except (Malformed, TransportBroken) as error:
                self._lose_for(error)
            except Exception as error:  # noqa: BLE001 - raised below, in a task, where somebody hears of it
                failures.append(error)
                failed.set()

        stop = direct.call_when_readable(read)
        if stop is None:
            return False
        try:
            await failed.wait()
        finally:
            stop()
        raise failures[0]

    def _heard(self, data: bytes) -> None:
        if not data:
            raise _Ended("the link ended")
        self._silent_beats = 0
        self._take_in(data)

    def _lose_for(self, error: Exception) -> None:
        if isinstance(error, FarSideGone):
            self._hint = error.hint
            self.lose(str(error))
        elif isinstance(error, Malformed):
            self.lose(f"the warden broke the protocol: {error}")
        elif isinstance(error, TransportBroken):
            self.lose(f"the link failed: {error}")
        else:
            self.lose(str(error))

    def _take_in(self, data: bytes) -> None:
        for kind, more, number, body in self._parser.feed(data):
            if kind is WardenMessage.REPLY:
                self._take_reply(number, more, body)
            elif kind is WardenMessage.ENDING:
                self._take_ending(bytes(body))
            elif kind is WardenMessage.HELLO or self.receiver is None:
                raise Malformed("a second greeting")
            else:
                self.receiver.notified(kind, body)
            if self._lost is not None:
                return

    def _take_reply(self, number: int, more: bool, body: memoryview) -> None:
        request = self._requests.get(number)
        if request is None:
            if number < _FIRST_HEARTBEAT or self._heart is None:
                raise Malformed(f"a reply to {number}, which was not asked")
            self._heart.answered(number, bytes(body), more)
            return
        if more or request.parts is not None:
            parts = request.parts = request.parts or bytearray()
            if len(parts) + len(body) > MAX_MESSAGE_BYTES:
                raise Malformed("a reply that is too long")
            parts += body
            if more:
                return
            whole = bytes(parts)
        else:
            whole = bytes(body)
        if not self._outbox.was_completed(request.parcel):
            raise Malformed("a reply to a request that was not sent")
        # While it is still known: whoever waits must hear of a reply that cannot be read.
        request.answer(whole)
        del self._requests[number]

    def _take_ending(self, body: bytes) -> None:
        cursor = Cursor(body)
        reason, text = cursor.u16(), cursor.byte_string()
        cursor.end()
        if reason not in _ENDINGS:
            raise Malformed(f"it ended for reason {reason}")
        detail = f" ({text.decode('utf-8', 'replace')[:200]})" if text else ""
        ended = f"the warden ended because of {_ENDINGS[reason]}{detail}"
        if reason == _ENDING_SIGNAL:
            raise _Ended(ended)
        self.lose(ended)

    async def _write(self) -> None:
        try:
            while self._send_failure is None:
                await self._something_to_send.wait()
                self._something_to_send = anyio.Event()
                if self._direct is None:
                    while data := self._outbox.take():
                        await self._transport.send(data)
                    continue
                self._waiting_to_send = True
                while not self._outbox.push(self._direct.send_now):
                    await self._direct.wait_sendable()
                self._waiting_to_send = False
        except TransportBroken as error:
            self._send_failure = error
        # What the warden said before it ended may still lie on its way, the reply to CLOSE above all: the reader
        # comes to it, and to the end behind it, and so stops this wait.
        await anyio.sleep(_LAST_WORDS_S)
        self.lose(f"the link failed: {self._send_failure}")

    def _push(self) -> None:
        if self._direct is None:
            self._something_to_send.set()
        elif not self._waiting_to_send and self._send_failure is None:
            try:
                if not self._outbox.push(self._direct.send_now):
                    self._waiting_to_send = True
                    self._something_to_send.set()
            except TransportBroken as error:
                self._send_failure = error
                self._something_to_send.set()

    async def _keep_lease(self, heart: _Heart) -> None:
        heart.start()
        while True:
            await anyio.sleep(heart.interval_s)
            # Counted in beats and not by the clock: a loop that was blocked has not read what is there, and a
            # machine that slept has not been silent.
            self._silent_beats += 1
            if self._silent_beats > _BEATS_A_LEASE and not await self._transport.excuse_silence():
                self.lose(f"nothing came from the warden for {heart.interval_s * self._silent_beats:.0f} s")
            if self._direct is None:
                heart.beat_by_loop()
                self._something_to_send.set()

    def _begin(
        self,
        kind: HostMessage,
        body: bytes,
        decode: Callable[[bytes], ValueT],
        discard: Callable[[ValueT], None] | None,
        *,
        bulk: bool,
    ) -> Request[ValueT]:
        number = next(self._numbers)
        request = Request(number, decode, discard)
        if self._lost is None:
            self._requests[number] = request
            self._outbox.put(encode_message(kind, number, body), request.parcel, bulk=bulk)
            self._push()
        return request


class _Heart:
    """Sends a PING in time. On a direct transport by a thread, so that a blocked event loop loses no world.

    A thread of Python needs the interpreter lock: C code that holds it for longer than the lease still loses it.
    """

    def __init__(self, outbox: Outbox, direct: DirectTransport | None, settings: LinkSettings) -> None:
        assert settings.lease_s is not None
        self.interval_s = settings.lease_s / _BEATS_A_LEASE
        self._outbox = outbox
        self._direct = direct
        self._numbers = itertools.count(_FIRST_HEARTBEAT)
        self._unanswered: set[int] = set()
        self._stopped = threading.Event()

    def start(self) -> None:
        if self._direct is not None:
            threading.Thread(
                target=self._beat, args=(self._direct,), name="execworld-lease", daemon=True
            ).start()

    def stop(self) -> None:
        self._stopped.set()

    def answered(self, number: int, body: bytes, more: bool) -> None:
        if number not in self._unanswered or body != b"\0\0" or more:
            raise Malformed("a wrong reply to a heartbeat")
        self._unanswered.discard(number)

    def beat_by_loop(self) -> None:
        self._outbox.put([self._frame()])

    def _beat(self, direct: DirectTransport) -> None:
        while not self._stopped.wait(self.interval_s):
            try:
                self._outbox.beat(self._frame, direct.send_now)
            except TransportBroken:
                return  # the reader sees it too

    def _frame(self) -> bytes:
        number = next(self._numbers)
        self._unanswered.add(number)
        return encode_message(HostMessage.PING, number, b"")[0]


def _ignore(body: bytes) -> None:
    status = Cursor(body)
    status.u16()
