"""Who may send how far ahead of its reader."""

from __future__ import annotations

import struct

import pytest

from execworld.machine.warden.credit import CreditLedger, StreamBuffer
from execworld.machine.warden.facts import LinkSettings
from execworld.machine.warden.wire import Malformed

CREDIT, FLOOR, WINDOW = 1024, 256, 64 * 1024


class Sent:
    """What the ledger gave back: to the window, and to each stream."""

    def __init__(self) -> None:
        self.window = 0
        self.streams: dict[int, int] = {}
        self.messages = 0

    def __call__(self, body: bytes) -> None:
        window, count = struct.unpack_from("<II", body)
        self.window += window
        self.messages += 1
        for index in range(count):
            handle, _, size = struct.unpack_from("<QBI", body, 8 + 13 * index)
            self.streams[handle] = self.streams.get(handle, 0) + size


def ledger() -> tuple[CreditLedger, Sent]:
    sent = Sent()
    settings = LinkSettings(stream_credit_bytes=CREDIT, stream_floor_bytes=FLOOR, window_bytes=WINDOW)
    return CreditLedger(settings, sent), sent


def pass_through(ledger: CreditLedger, handle: int, stream: StreamBuffer, total: int) -> None:
    """Bytes that come and are read at once."""
    for _ in range(total // FLOOR):
        ledger.came(stream, FLOOR, windowed=True)
        stream.add(bytes(FLOOR))
        ledger.consumed((handle, 1), stream, len(stream.take(FLOOR)))


def test_a_stream_that_keeps_up_may_run_further_ahead() -> None:
    """Four times as far, once, and it costs a quarter of the messages from then on."""
    books, sent = ledger()
    stream = StreamBuffer()
    pass_through(books, 1, stream, 64 * CREDIT)
    assert sent.streams[1] + stream.due == (64 + 3) * CREDIT
    before = sent.messages
    pass_through(books, 1, stream, 64 * CREDIT)
    assert sent.messages - before <= 64 * CREDIT // (2 * CREDIT) + 1
    rest = 4 * CREDIT - stream.due
    books.came(stream, rest, windowed=True)
    stream.add(bytes(rest))
    with pytest.raises(Malformed):
        books.came(stream, 1, windowed=True)


def test_a_stream_whose_reader_lags_keeps_what_it_has() -> None:
    books, sent = ledger()
    stream = StreamBuffer()
    books.came(stream, 512, windowed=True)
    stream.add(bytes(512))
    for _ in range(64 * CREDIT // FLOOR):
        books.came(stream, FLOOR, windowed=True)
        stream.add(bytes(FLOOR))
        books.consumed((1, 1), stream, len(stream.take(FLOOR)))
    assert sent.streams[1] + stream.due == 64 * CREDIT


def test_few_run_ahead_at_a_time_and_another_one_when_one_is_done() -> None:
    """What they may send beyond the window is bounded, however many there are."""
    books, sent = ledger()
    streams = {handle: StreamBuffer() for handle in range(1, 7)}
    for handle, stream in streams.items():
        pass_through(books, handle, stream, 8 * CREDIT)
    given = {handle: sent.streams[handle] + stream.due for handle, stream in streams.items()}
    assert [given[handle] // CREDIT for handle in sorted(given)] == [11, 11, 11, 11, 8, 8]
    books.gave_up((1, 1), streams[1])
    pass_through(books, 5, streams[5], CREDIT)
    assert sent.streams[5] + streams[5].due == 12 * CREDIT
