"""What flows and how it ends: credit, input, the lease, closing."""

from __future__ import annotations

import errno
import struct

import anyio
import pytest

from execworld.machine.base import NoSuchHandle, StreamClosed
from execworld.machine.values import Redirect
from execworld.machine.warden import (
    LinkEnd,
    LinkSettings,
    open_warden_machine,
)
from execworld.seams.errors import WorldClosed, WorldLost
from execworld.seams.results import KillMethod, TreeReport
from execworld.testing.scripted_warden import (
    BATCH,
    CANCEL,
    CLOSE,
    CLOSE_INPUT,
    CREDIT,
    INPUT_CLOSED,
    INPUT_WINDOW,
    OK,
    PING,
    RELEASE,
    SEND,
    SMALL,
    SPAWN,
    Peer,
    data,
    frame,
    greeting,
    make_pipe,
    opened,
    run,
    spawned,
    with_process,
)

pytestmark = pytest.mark.anyio


# Streams and credit


async def credits(peer: Peer) -> tuple[int, dict[int, int]]:
    _, body = await peer.expect(CREDIT)
    window, count = struct.unpack_from("<II", body)
    entries = [struct.unpack_from("<QBI", body, 8 + 13 * index) for index in range(count)]
    return window, {handle: size for handle, _, size in entries}


async def test_credit_comes_back_when_data_was_read_and_not_before() -> None:
    async with with_process() as (machine, peer):
        await peer.write(data(7, b"x" * 2048))
        await peer.nothing_comes()
        assert len(await machine.receive(7, 1, 500)) == 500
        await peer.nothing_comes()
        assert len(await machine.receive(7, 1, 5000)) == 1548
        assert await credits(peer) == (2048, {7: 2048})


async def test_a_stream_that_is_not_read_holds_up_nobody() -> None:
    async with with_process() as (machine, peer):
        await peer.write(data(7, b"x" * 2048))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.ping)
            number, _ = await peer.expect(PING)
            await peer.reply(number)


async def test_data_of_a_released_handle_gives_its_window_back() -> None:
    async with with_process() as (machine, peer):
        await peer.write(data(7, b"x" * 2000))
        await anyio.wait_all_tasks_blocked()
        await machine.release(7)
        await peer.expect(RELEASE)
        await peer.write(data(7, b"x" * 48), data(7, b"x" * 2048))
        assert (await credits(peer))[0] == 4096
        with pytest.raises(NoSuchHandle):
            await machine.receive(7, 1, 10)


async def test_under_pressure_little_is_given_back_at_once() -> None:
    """When others hold most of the window, a reader must not wait until it has much to give back."""
    async with with_process() as (machine, peer):
        results: list[object] = []
        async with anyio.create_task_group() as tasks:
            for handle in (8, 9, 10):
                tasks.start_soon(run, machine, SPAWN, results)
                number, _ = await peer.expect(BATCH)
                await peer.reply(number, spawned(handle))
        await peer.write(*(data(handle, b"x" * 2048) for handle in (8, 9, 10)))
        await peer.write(data(7, b"y" * 10))
        assert await machine.receive(7, 1, 100) == b"y" * 10
        assert await credits(peer) == (10, {7: 10})


async def test_single_bytes_cost_little_more_than_their_size() -> None:
    """A writer may cut its output as small as it likes; the bound on memory is one of memory, not of bytes."""
    import tracemalloc

    settings = LinkSettings(stream_credit_bytes=1 << 20, window_bytes=1 << 20, close_timeout_s=0.05)
    async with with_process(settings) as (machine, peer):
        byte = data(7, b"x")
        tracemalloc.start()
        for _ in range(64):
            await peer.write(byte * 1024)
            await anyio.wait_all_tasks_blocked()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 1 << 20
        assert len(await machine.receive(7, 1, 1 << 20)) == 65536


async def test_a_waiting_reader_is_told_of_the_release() -> None:
    async with with_process() as (machine, _):
        async with anyio.create_task_group() as tasks:

            async def read() -> None:
                with pytest.raises(NoSuchHandle):
                    await machine.receive(7, 1, 10)

            async def wait() -> None:
                with pytest.raises(NoSuchHandle):
                    await machine.wait(7)

            tasks.start_soon(read)
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            await machine.release(7)


# Input


async def test_input_stays_within_its_window() -> None:
    async with with_process(stdin=Redirect.PIPE) as (machine, peer):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.send, 7, b"x" * (INPUT_WINDOW + 10))
            numbers: list[int] = []
            sent = 0
            while sent < INPUT_WINDOW:
                number, body = await peer.expect(SEND)
                numbers.append(number)
                sent += len(body) - 8
            await peer.nothing_comes()
            await peer.reply(numbers.pop(0))
            number, body = await peer.expect(SEND)
            assert len(body) - 8 == 10
            for left in (*numbers, number):
                await peer.reply(left)


async def test_a_closed_reader_is_an_error_of_send() -> None:
    async with with_process(stdin=Redirect.PIPE) as (machine, peer):
        async with anyio.create_task_group() as tasks:

            async def send() -> None:
                with pytest.raises(StreamClosed):
                    await machine.send(7, b"x")

            tasks.start_soon(send)
            number, _ = await peer.expect(SEND)
            await peer.reply(number, struct.pack("<H", errno.EPIPE))
        await peer.write(frame(INPUT_CLOSED, 0, struct.pack("<QH", 7, errno.EPIPE)))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(StreamClosed):
            await machine.send(7, b"y")
        await peer.nothing_comes()


async def test_the_end_of_input_follows_the_input() -> None:
    async with with_process(stdin=Redirect.PIPE) as (machine, peer):
        peer.pipe.open_gate = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.ping)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(machine.send, 7, b"x" * 20_000)
            await anyio.wait_all_tasks_blocked()
            await machine.close_input(7)
            await machine.close_input(7)
            peer.pipe.open_gate.set()
            ping, _ = await peer.expect(PING)
            number, _ = await peer.expect(SEND)
            await peer.expect(CLOSE_INPUT)
            await peer.reply(number)
            await peer.reply(ping)
        await peer.nothing_comes()


async def test_cancelled_input_is_taken_back() -> None:
    async with with_process(stdin=Redirect.PIPE) as (machine, peer):
        with anyio.move_on_after(0.05):
            await machine.send(7, b"x")
        number, _ = await peer.expect(SEND)
        assert await peer.expect(CANCEL) == (0, struct.pack("<Q", number))
        await peer.reply(number, struct.pack("<H", errno.ECANCELED))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(machine.send, 7, b"y")
            number, body = await peer.expect(SEND)
            assert body[8:] == b"y"
            await peer.reply(number)


# Lease


async def test_a_heartbeat_comes_in_time() -> None:
    settings = LinkSettings(lease_s=1, close_timeout_s=0.05)
    async with opened(settings) as (_, peer):
        for _ in range(3):
            with anyio.fail_after(0.9):
                number, _ = await peer.expect(PING)
            await peer.reply(number)


async def test_a_silent_warden_is_lost() -> None:
    settings = LinkSettings(lease_s=1, close_timeout_s=0.05)
    async with opened(settings) as (machine, _):
        with anyio.fail_after(4), pytest.raises(WorldLost, match="nothing came"):
            await machine.ping()


# End


async def test_closing_asks_the_warden_and_reports_what_it_says() -> None:
    async with opened() as (machine, peer):
        reports: list[TreeReport] = []

        async def close() -> None:
            reports.append(await machine.aclose())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
            tasks.start_soon(close)
            number, _ = await peer.expect(CLOSE)
            await peer.reply(number, OK + struct.pack("<BBIi", 0, 1, 1, 42))
        assert reports == [TreeReport(False, KillMethod.CGROUP, (42,))] * 2
        assert machine.link_end == LinkEnd("closed by the test", 0)
        with pytest.raises(WorldClosed):
            await machine.ping()


async def test_a_warden_that_does_not_answer_is_closed_all_the_same() -> None:
    async with opened() as (machine, peer):
        with anyio.fail_after(5):
            report = await machine.aclose()
        assert not report.gone
        assert peer.pipe.closed.is_set()


async def test_a_cancelled_context_still_asks_for_the_end() -> None:
    pipe, peer = make_pipe()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(peer.greet)
        with anyio.CancelScope() as scope:
            async with open_warden_machine(pipe, SMALL):
                await anyio.wait_all_tasks_blocked()
                scope.cancel()
                await anyio.sleep_forever()
        await peer.expect(CLOSE)
    assert pipe.closed.is_set()


async def test_the_error_of_the_body_is_raised_as_it_is() -> None:
    pipe, peer = make_pipe()
    await peer.write(greeting())
    with pytest.raises(LookupError, match="mine"):
        async with open_warden_machine(pipe, SMALL):
            raise LookupError("mine")
